"""The types of GPU: the one table of their names, other names and memory."""

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache, lru_cache
from itertools import product, takewhile
from typing import Self

__all__ = ["GPUType", "series", "type_of_device", "type_of_name"]


class GPUType(StrEnum):
    """A type of GPU. Made from any of its names, in any case: `GPUType("h100")` and
    `GPUType("H100_80GB")` are `GPUType.H100`, `GPUType("rtx 4090")` is `GPUType.RTX_4090`.

    Attributes:
        memory: the GB that one GPU has, as its vendor counts them: several where the model comes
            in several sizes, none for `GPU` and `CPU`.

    Raises:
        ValueError: no type has that name.
    """

    memory: tuple[int, ...]

    def __new__(cls, value: str, *memory: int) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.memory = memory
        return member

    GPU = "gpu"  # whatever the backend has
    CPU = "cpu"  # ranks without a GPU

    # NVIDIA, for data centres. A name with a size is a type of its own where the model comes in
    # several sizes.
    K80 = "k80", 12
    P4 = "p4", 8
    P40 = "p40", 24
    P100 = "p100", 12, 16
    P100_12GB = "p100_12gb", 12
    P100_16GB = "p100_16gb", 16
    V100 = "v100", 16, 32
    V100_16GB = "v100_16gb", 16
    V100_32GB = "v100_32gb", 32
    T4 = "t4", 16
    A2 = "a2", 16
    A10 = "a10", 24
    A16 = "a16", 16
    A30 = "a30", 24
    A40 = "a40", 48
    A100 = "a100", 40, 80
    A100_40GB = "a100_40gb", 40
    A100_80GB = "a100_80gb", 80
    A800 = "a800", 40, 80
    A800_40GB = "a800_40gb", 40
    A800_80GB = "a800_80gb", 80
    L4 = "l4", 24
    L20 = "l20", 48
    L40 = "l40", 48
    L40S = "l40s", 48
    H20 = "h20", 96, 141
    H20_96GB = "h20_96gb", 96
    H20_141GB = "h20_141gb", 141
    H100 = "h100_80gb", 80
    H100_NVL = "h100_nvl", 94
    H200 = "h200", 141
    H800 = "h800", 80
    GH200 = "gh200", 96, 144
    GH200_96GB = "gh200_96gb", 96
    GH200_144GB = "gh200_144gb", 144
    B100 = "b100", 192
    B200 = "b200", 180, 192
    B300 = "b300", 270, 288
    GB10 = "gb10", 128
    GB200 = "gb200", 186, 192
    GB300 = "gb300", 279, 288

    # NVIDIA, for workstations.
    TITAN_V = "titan_v", 12
    TITAN_RTX = "titan_rtx", 24
    QUADRO_RTX_5000 = "quadro_rtx_5000", 16
    QUADRO_RTX_6000 = "quadro_rtx_6000", 24
    QUADRO_RTX_8000 = "quadro_rtx_8000", 48
    RTX_A2000 = "rtx_a2000", 6, 12
    RTX_A4000 = "rtx_a4000", 16
    RTX_A4500 = "rtx_a4500", 20
    RTX_A5000 = "rtx_a5000", 24
    RTX_A5500 = "rtx_a5500", 24
    RTX_A6000 = "rtx_a6000", 48
    RTX_2000_ADA = "rtx_2000_ada", 16
    RTX_4000_ADA = "rtx_4000_ada", 20
    RTX_4500_ADA = "rtx_4500_ada", 24
    RTX_5000_ADA = "rtx_5000_ada", 32
    RTX_6000_ADA = "rtx_6000_ada", 48
    RTX_PRO_4000 = "rtx_pro_4000", 24
    RTX_PRO_4500 = "rtx_pro_4500", 32
    RTX_PRO_5000 = "rtx_pro_5000", 48, 72
    RTX_PRO_6000 = "rtx_pro_6000", 96

    # NVIDIA, for games.
    GTX_1080 = "gtx_1080", 8
    GTX_1080_TI = "gtx_1080_ti", 11
    RTX_2070 = "rtx_2070", 8
    RTX_2080 = "rtx_2080", 8
    RTX_2080_TI = "rtx_2080_ti", 11
    RTX_3060 = "rtx_3060", 8, 12
    RTX_3060_TI = "rtx_3060_ti", 8
    RTX_3070 = "rtx_3070", 8
    RTX_3070_TI = "rtx_3070_ti", 8
    RTX_3080 = "rtx_3080", 10, 12
    RTX_3080_TI = "rtx_3080_ti", 12
    RTX_3090 = "rtx_3090", 24
    RTX_3090_TI = "rtx_3090_ti", 24
    RTX_4060 = "rtx_4060", 8
    RTX_4060_TI = "rtx_4060_ti", 8, 16
    RTX_4070 = "rtx_4070", 12
    RTX_4070_SUPER = "rtx_4070_super", 12
    RTX_4070_TI = "rtx_4070_ti", 12
    RTX_4070_TI_SUPER = "rtx_4070_ti_super", 16
    RTX_4080 = "rtx_4080", 16
    RTX_4080_SUPER = "rtx_4080_super", 16
    RTX_4090 = "rtx_4090", 24
    RTX_4090_D = "rtx_4090_d", 24
    RTX_5060 = "rtx_5060", 8
    RTX_5060_TI = "rtx_5060_ti", 8, 16
    RTX_5070 = "rtx_5070", 12
    RTX_5070_TI = "rtx_5070_ti", 16
    RTX_5080 = "rtx_5080", 16
    RTX_5090 = "rtx_5090", 32
    RTX_5090_D = "rtx_5090_d", 32

    # AMD.
    MI50 = "mi50", 16, 32
    MI60 = "mi60", 32
    MI100 = "mi100", 32
    MI210 = "mi210", 64
    MI250 = "mi250", 128
    MI250X = "mi250x", 128
    MI300A = "mi300a", 128
    MI300X = "mi300x", 192
    MI308X = "mi308x", 192
    MI325X = "mi325x", 256
    MI350X = "mi350x", 288
    MI355X = "mi355x", 288

    # Other names of these.
    A10G = A10
    A6000 = RTX_A6000
    H100_80GB = H100
    L40_S = L40S
    T4G = T4

    def covers(self, other: "GPUType") -> bool:
        """Whether a device of the other type is one of this type: every H100 NVL is an H100, but no
        A100 of 40 GB is an `A100_80GB`."""
        if self in (other, GPUType.GPU):
            return other is not GPUType.CPU
        return other.family is self

    @property
    def family(self) -> "GPUType | None":
        """The type of any size that this one is a size of: `A100` of `A100_80GB`."""
        name = _VARIANT.sub("", self.name)
        return None if name == self.name else GPUType[name]

    @classmethod
    def _missing_(cls, value: object) -> "GPUType | None":
        return type_of_name(value) if isinstance(value, str) else None


_SIZED = re.compile(r"(.+?)_?([0-9]{1,4})GB")
_VARIANT = re.compile(r"_([0-9]+GB|NVL)$")
_LETTERS = re.compile(r"[A-Z]+")
_BRANDS = frozenset({"NVIDIA", "TESLA", "GEFORCE", "AMD", "INSTINCT"})
# Words in the name of a driver that do not change the model: form factor, memory, market.
_SAYS_NOTHING = re.compile(
    r"SXM[0-9]?|PCIE|OAM|HF|HBM[0-9]E?|[0-9]+GB?|NVL|AC|ADA|BLACKWELL|GENERATION|SERVER|"
    r"WORKSTATION|EDITION|ACCELERATOR"
).fullmatch
_SIZE = re.compile(r"([0-9]+)GB?").fullmatch


@lru_cache(maxsize=256)
def type_of_name(name: str) -> GPUType | None:
    """Return the type of that name, in any case; `-`, `_` and a space are one, and may be left out
    where a name has them. A size that goes without saying may be said: `T4_16GB`."""
    key = _key(name)
    gpu = _names().get(key)
    if gpu is None and (sized := _SIZED.fullmatch(key)):
        gpu = _names().get(sized[1])
        if gpu is not None and int(sized[2]) not in gpu.memory:
            return None
    return gpu


def type_of_device(name: str, memory: int | None = None) -> GPUType | None:
    """Return the type of a device, or `None` where the table has none such.

    Args:
        name: what its driver calls it, or Ray: `NVIDIA A100-SXM4-80GB`, `Tesla T4`, `A100-80G`.
        memory: its bytes, where they are known.
    """
    words = [word for word in re.split(r"[\s_-]+", name.upper()) if word not in _BRANDS]
    if words == ["MI250X", "MI250"]:  # of Ray, for an MI250
        del words[0]
    for count in range(len(words), 0, -1):
        gpu = type_of_name("_".join(words[:count]))
        if gpu is not None:
            rest = words[count:]
            return _in_size(gpu, rest, memory) if all(map(_SAYS_NOTHING, rest)) else None
    return None


def _in_size(kind: GPUType, words: list[str], memory: int | None) -> GPUType:
    """A type in the size that a device has, where sizes are types."""
    sizes = [int(size[1]) for size in map(_SIZE, words) if size]
    if not sizes and memory is not None and kind.memory:
        sizes = [min(kind.memory, key=lambda size: abs(size - memory / 1e9))]
    return (type_of_name(f"{kind.name}_{sizes[0]}GB") or kind) if sizes else kind


def series(name: str) -> tuple[GPUType, ...]:
    """The types whose names begin with the same letters, those that begin most alike first."""
    key = _key(name).replace("_", "")
    start = _LETTERS.match(key)
    if start is None:
        return ()
    alike = {
        kind: _in_common(key, kind.name.replace("_", ""))
        for kind in GPUType
        if kind.memory and not _VARIANT.search(kind.name)
    }
    kinds = [kind for kind, length in alike.items() if length >= len(start[0])]
    return tuple(sorted(kinds, key=lambda kind: -alike[kind]))


def _in_common(one: str, other: str) -> int:
    """How many characters two names begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _key(name: str) -> str:
    return re.sub(r"[\s-]", "_", name.strip().upper())


@cache
def _names() -> Mapping[str, GPUType]:
    """Every name of a type, with and without what stands between its parts."""
    known: dict[str, GPUType] = {}
    for name, kind in GPUType.__members__.items():
        first, *others = name.split("_")
        for between in product(("_", ""), repeat=len(others)):
            key = first + "".join(gap + part for gap, part in zip(between, others, strict=True))
            known.setdefault(key, kind)
    return known
