"""The types of GPU, and the names that platforms have for machines with them."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

__all__ = ["ACCELERATORS", "GPUType"]


class GPUType(StrEnum):
    """A type of GPU, by what platforms call it. Made from any of its names, in any case:
    `GPUType("h100")` and `GPUType("H100_80GB")` are `GPUType.H100`.

    Raises:
        ValueError: no type has that name.
    """

    A10 = "a10"
    H100 = "h100_80gb"
    B300 = "b300"
    CPU = "cpu"  # ranks without a GPU

    # Other names of these.
    A10G = "a10"
    H100_80GB = "h100_80gb"

    @classmethod
    def _missing_(cls, value: object) -> "GPUType | None":
        return cls.__members__.get(value.strip().upper()) if isinstance(value, str) else None


ACCELERATORS: Mapping[str, tuple[GPUType, int]] = MappingProxyType(
    {
        "GPU_1xA10": (GPUType.A10, 1),
        "GPU_1xH100": (GPUType.H100, 1),
        "GPU_8xH100": (GPUType.H100, 8),
        "GPU_8xB300": (GPUType.B300, 8),
    }
)
"""Accelerator names, each with the type and how many GPUs a node has."""
