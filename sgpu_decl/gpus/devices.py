"""The GPUs of this machine, as their drivers tell them."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.gpus import driver_files, nvml
from sgpu_decl.gpus.device import Device

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
    return driver_files.nvidia_devices() or driver_files.amd_devices()


def read_devices(environ: Mapping[str, str] = os.environ) -> Devices:
    """Return the devices of this machine, from NVML if it is installed, else from the files of the
    drivers.

    CUDA_VISIBLE_DEVICES is honoured. A part of a GPU (MIG) that it names counts as one device.
    """
    report = nvml.read_nvml(environ.get("CUDA_VISIBLE_DEVICES", ""))
    if report is not None:
        devices = Devices(visible=report.devices, trouble=report.trouble)
        return _chosen(devices, environ, "CUDA_VISIBLE_DEVICES")
    if nvidia := driver_files.nvidia_devices():
        return _chosen(Devices(visible=nvidia), environ, "CUDA_VISIBLE_DEVICES")
    variable = next((name for name in _CHOICES if name in environ), _CHOICES[-1])
    return _chosen(Devices(visible=driver_files.amd_devices()), environ, variable)


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
