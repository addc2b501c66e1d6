"""The GPUs of this machine: NVML names them, or else the files of the drivers of the kernel.

Source of NVML: https://docs.nvidia.com/deploy/nvml-api/, by way of the package `nvidia-ml-py`.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.gpu import GPUType, type_of_device


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Attributes:
    index: what CUDA_VISIBLE_DEVICES takes, where CUDA counts in the order of the PCI bus.
    name: what the driver calls it; empty where it does not say.
    memory: bytes, where they are known.
    part: whether it is a part of a GPU (MIG).
    """

    index: str
    name: str = ""
    memory: int | None = None
    uuid: str = ""
    part: bool = False

    @property
    def kind(self) -> GPUType | None:
        """Its type; `None` where the table has none for its name."""
        return type_of_device(self.name, self.memory)

    def may_be(self, wanted: GPUType) -> bool:
        """Whether it may be of a type: of any, where nobody knows its name."""
        if not self.name or wanted is GPUType.GPU:
            return True
        kind = self.kind
        return kind is not None and wanted.covers(kind)

    def is_meant_by(self, entry: str) -> bool:
        """Whether an entry of CUDA_VISIBLE_DEVICES names it: its number, its UUID, or how its UUID
        begins."""
        if entry.startswith("GPU-"):
            return not self.part and len(entry) > len("GPU-") and self.uuid.startswith(entry)
        return entry == self.index

    def __str__(self) -> str:
        name = self.name or "GPU without a name"
        return name if self._gigabytes is None else f"{name} ({self._gigabytes} GB)"

    @property
    def _gigabytes(self) -> int | None:
        """As its vendor counts them: the driver keeps a part of them for itself."""
        kind = self.kind
        if kind is not None and len(kind.memory) == 1:
            return kind.memory[0]
        return None if self.memory is None else round(self.memory / 1e9)


_LIBRARY = "libnvidia-ml.so.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlReport:
    """`trouble` is the error of a library that cannot work."""

    devices: tuple[Device, ...] = ()
    trouble: str = ""


def read_nvml(chosen: str) -> NvmlReport | None:
    """Return the GPUs, in the order of the PCI bus, and the parts of GPUs (MIG) that `chosen`, the
    text of CUDA_VISIBLE_DEVICES, names. `None` where there is no such library, no driver, or no
    package that speaks with it."""
    import ctypes

    try:
        ctypes.CDLL(_LIBRARY)  # the package takes far longer to import than this takes to fail
        import pynvml
    except (OSError, ImportError):
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_DRIVER_NOT_LOADED:
            return None
        return NvmlReport(trouble=str(error))
    try:
        count = pynvml.nvmlDeviceGetCount()
        whole = [_device(pynvml, number) for number in range(count)]
        parts = [_part(pynvml, entry) for entry in map(str.strip, chosen.split(","))]
    except pynvml.NVMLError as error:
        return NvmlReport(trouble=str(error))
    finally:
        pynvml.nvmlShutdown()
    return NvmlReport(devices=tuple(device for device in (*whole, *parts) if device is not None))


def _device(nvml: Any, number: int) -> Device | None:
    """A GPU that fell off the bus is none."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(number)
    except nvml.NVMLError:
        return None
    return _described(nvml, handle, str(number), part=False)


def _part(nvml: Any, entry: str) -> Device | None:
    if not entry.startswith("MIG-"):
        return None
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(entry)
    except nvml.NVMLError:
        return None
    return _described(nvml, handle, entry, part=True)


def _described(nvml: Any, handle: Any, index: str, *, part: bool) -> Device:
    return Device(
        index=index,
        name=str(nvml.nvmlDeviceGetName(handle)),
        memory=_memory(nvml, handle),
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
        part=part,
    )


def _memory(nvml: Any, handle: Any) -> int | None:
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError:  # GPUs that share the memory of the host do not say
        return None


_NODE = re.compile(r"nvidia(\d+)")
_AMD = 0x1002
# https://pci-ids.ucw.cz/read/PC/1002; numbers that stand for two models are left out.
_AMD_NAMES: Mapping[int, str] = MappingProxyType(
    {
        0x738C: "AMD Instinct MI100",
        0x740F: "AMD Instinct MI210",
        0x7408: "AMD Instinct MI250X",
        0x74A0: "AMD Instinct MI300A",
        0x74A1: "AMD Instinct MI300X",
        0x74A2: "AMD Instinct MI308X",
        0x74A5: "AMD Instinct MI325X",
        0x75A0: "AMD Instinct MI350X",
        0x75A3: "AMD Instinct MI355X",
    }
)


def nvidia_devices(
    dev: Path = Path("/dev"), driver: Path = Path("/proc/driver/nvidia/gpus")
) -> tuple[Device, ...]:
    """Those whose device files are here, in the order of the PCI bus, as CUDA counts them."""
    minors = {int(match[1]) for name in _names(dev) if (match := _NODE.fullmatch(name))}
    told = [_facts(driver / bus / "information", ":") for bus in sorted(_names(driver))]
    here = [facts for facts in told if facts.get("Device Minor", "").isdigit()]
    here = [facts for facts in here if int(facts["Device Minor"]) in minors]
    if len(here) < len(minors):  # of some, or of all, nobody tells the name
        return tuple(Device(index=str(number)) for number in range(len(minors)))
    return tuple(
        Device(index=str(number), name=facts.get("Model", ""), uuid=facts.get("GPU UUID", ""))
        for number, facts in enumerate(here)
    )


def amd_devices(
    dev: Path = Path("/dev"), nodes: Path = Path("/sys/class/kfd/kfd/topology/nodes")
) -> tuple[Device, ...]:
    """Those that ROCm uses, in its order."""
    if not (dev / "kfd").exists():
        return ()
    numbered = sorted((name for name in _names(nodes) if name.isdigit()), key=int)
    told = ((nodes / name, _facts(nodes / name / "properties", " ")) for name in numbered)
    amd_nodes = [(node, facts) for node, facts in told if _number(facts, "vendor_id") == _AMD
             and _number(facts, "simd_count")]  # fmt: skip
    return tuple(
        Device(
            index=str(number),
            name=_AMD_NAMES.get(_number(facts, "device_id"), ""),
            memory=sum(_banks(node)) or None,
        )
        for number, (node, facts) in enumerate(amd_nodes)
    )


def _banks(node: Path) -> Iterator[int]:
    for bank in _names(node / "mem_banks"):
        facts = _facts(node / "mem_banks" / bank / "properties", " ")
        if _number(facts, "heap_type") in (1, 2):  # of the device: public and private
            yield _number(facts, "size_in_bytes")


def _number(facts: Mapping[str, str], key: str) -> int:
    text = facts.get(key, "")
    return int(text) if text.isdigit() else 0


def _facts(path: Path, between: str) -> dict[str, str]:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {
        key.strip(): value.strip() for key, _, value in (line.partition(between) for line in lines)
    }


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


_CHOICES = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")  # the first that is set counts for AMD


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """`visible` are the devices that this process may use; `hidden` is how many devices the
    environment variable `variable` hides; `trouble` is the error of a driver that does not work."""

    visible: tuple[Device, ...] = ()
    hidden: int = 0
    variable: str = ""
    trouble: str = ""


def driver_devices() -> tuple[Device, ...]:
    """The devices that the files of a driver show; no library is loaded."""
    return nvidia_devices() or amd_devices()


def read_devices(environ: Mapping[str, str] = os.environ) -> Devices:
    """Return the devices of this machine, from NVML if it is installed, else from the files of the
    drivers.

    CUDA_VISIBLE_DEVICES is honoured. A part of a GPU (MIG) that it names counts as one device.
    """
    report = read_nvml(environ.get("CUDA_VISIBLE_DEVICES", ""))
    if report is not None:
        devices = Devices(visible=report.devices, trouble=report.trouble)
        return _chosen(devices, environ, "CUDA_VISIBLE_DEVICES")
    if nvidia := nvidia_devices():
        return _chosen(Devices(visible=nvidia), environ, "CUDA_VISIBLE_DEVICES")
    variable = next((name for name in _CHOICES if name in environ), _CHOICES[-1])
    return _chosen(Devices(visible=amd_devices()), environ, variable)


def in_words(devices: Iterable[Device]) -> str:
    """`8 x NVIDIA H100 80GB HBM3 (80 GB)`, each kind once."""
    counted = Counter(map(str, devices))
    return ", ".join(f"{count} x {device}" for device, count in counted.items())


def _chosen(devices: Devices, environ: Mapping[str, str], variable: str) -> Devices:
    text = environ.get(variable)
    whole = tuple(device for device in devices.visible if not device.part)
    if text is None:
        return replace(devices, visible=whole)
    chosen: list[Device] = []
    for entry in (entry.strip() for entry in text.split(",")):
        device = next((device for device in devices.visible if device.is_meant_by(entry)), None)
        if device is None or device in chosen:
            break  # CUDA itself ignores everything from the first invalid entry on
        chosen.append(device)
    hidden = max(0, len(whole) - len(chosen))
    return replace(devices, visible=tuple(chosen), hidden=hidden, variable=variable)
