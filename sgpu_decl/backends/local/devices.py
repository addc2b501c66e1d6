"""The NVIDIA GPUs of this machine, from the kernel driver's own files."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Device", "visible_devices"]

_NODE = re.compile(r"nvidia(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """`index` is what CUDA_VISIBLE_DEVICES takes; `model` the driver's name, empty if unknown."""

    index: str
    model: str


def visible_devices(
    environ: Mapping[str, str] = os.environ,
    dev: Path = Path("/dev"),
    driver: Path = Path("/proc/driver/nvidia/gpus"),
) -> tuple[Device, ...]:
    """Return the devices that this process may use, CUDA_VISIBLE_DEVICES honoured.

    No NVIDIA library is loaded. A MIG or UUID entry in CUDA_VISIBLE_DEVICES counts as one device
    and is passed on as it is.
    """
    minors = sorted(
        int(match[1]) for entry in _names(dev) if (match := _NODE.fullmatch(entry)) is not None
    )
    models = _models(driver)
    chosen = environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return tuple(Device(index=str(n), model=models.get(n, "")) for n in minors)
    listed = [part.strip() for part in chosen.split(",")]
    devices = []
    for part in listed:
        if part.isdigit() and int(part) in minors:
            devices.append(Device(index=part, model=models.get(int(part), "")))
        elif minors and part.startswith(("GPU-", "MIG-")):
            devices.append(Device(index=part, model=""))
        else:
            break  # CUDA itself ignores everything from the first invalid entry on
    return tuple(devices)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _models(driver: Path) -> dict[int, str]:
    models: dict[int, str] = {}
    for bus in _names(driver):
        try:
            text = (driver / bus / "information").read_text()
        except OSError:
            continue
        facts = {
            key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in text.splitlines())
        }
        if facts.get("Device Minor", "").isdigit():
            models[int(facts["Device Minor"])] = facts.get("Model", "")
    return models
