"""The GPUs of this machine from the files of the kernel's drivers, where no library tells them."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from sgpu_decl.gpus.device import Device

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
