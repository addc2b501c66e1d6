"""The kinds of GPU nodes that the emulated platform knows."""

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["ACCELERATORS"]

ACCELERATORS: Mapping[str, int] = MappingProxyType(
    {"GPU_1xA10": 1, "GPU_1xH100": 1, "GPU_8xH100": 8, "GPU_8xB300": 8}
)
"""How many GPUs a node of each kind has."""
