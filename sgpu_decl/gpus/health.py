"""The driver of this machine's GPUs and the processes that use them, as NVML tells them."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sgpu_decl.frozen_dataclass import dataclass

_LIBRARY = "libnvidia-ml.so.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """One GPU. `processes` are pairs of pid and bytes, which are `None` where the driver does not
    say. `capability` is its CUDA compute capability, such as 90 for an H100. `lost` is the driver's
    error about a GPU that does not answer."""

    index: int
    name: str = ""
    used: int = 0
    total: int = 0
    processes: tuple[tuple[int, int | None], ...] = ()
    prohibited: bool = False
    capability: int | None = None
    lost: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHealth:
    """`driver` is the version of the driver, `cuda` the newest CUDA that it has, each `None` where
    there is no working driver; `trouble` is the error of a driver that does not work."""

    driver: str | None = None
    cuda: tuple[int, int] | None = None
    gpus: tuple[GpuUse, ...] = ()
    trouble: str = ""


@contextmanager
def nvml_loaded() -> Iterator[None]:
    """Keep NVML open, so that reading does not wait for the driver each time: without
    its persistence mode, the first program that opens it wakes all GPUs up."""
    try:
        ctypes.CDLL(_LIBRARY)
        import pynvml
    except (OSError, ImportError):
        yield
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # whoever reads says so
        yield
        return
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def read_gpu_health() -> GpuHealth:
    """Ask NVML. No NVIDIA driver is an answer too, without anything in it."""
    try:
        ctypes.CDLL(_LIBRARY)  # the package takes far longer to import than this takes to fail
        import pynvml
    except (OSError, ImportError):
        return GpuHealth()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_DRIVER_NOT_LOADED:
            return GpuHealth()
        return GpuHealth(trouble=str(error))
    try:
        number = int(pynvml.nvmlSystemGetCudaDriverVersion())
        return GpuHealth(
            driver=str(pynvml.nvmlSystemGetDriverVersion()),
            cuda=(number // 1000, number % 1000 // 10),
            gpus=tuple(_use(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())),
        )
    except pynvml.NVMLError as error:
        return GpuHealth(trouble=str(error))
    finally:
        pynvml.nvmlShutdown()


def _use(nvml: Any, index: int) -> GpuUse:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        name = str(nvml.nvmlDeviceGetName(handle))
    except nvml.NVMLError as error:
        return GpuUse(index=index, lost=str(error))
    used, total = _memory(nvml, handle)
    return GpuUse(
        index=index,
        name=name,
        used=used,
        total=total,
        processes=_processes(nvml, handle),
        prohibited=_prohibited(nvml, handle),
        capability=_capability(nvml, handle),
    )


def _memory(nvml: Any, handle: Any) -> tuple[int, int]:
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError:  # GPUs that share the memory of the host do not say
        return 0, 0
    return int(memory.used), int(memory.total)


def _processes(nvml: Any, handle: Any) -> tuple[tuple[int, int | None], ...]:
    try:
        processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError:
        return ()
    return tuple((int(item.pid), item.usedGpuMemory) for item in processes)


def _prohibited(nvml: Any, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetComputeMode(handle) == nvml.NVML_COMPUTEMODE_PROHIBITED)
    except nvml.NVMLError:
        return False


def _capability(nvml: Any, handle: Any) -> int | None:
    try:
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    except nvml.NVMLError:
        return None
    return int(major) * 10 + int(minor)
