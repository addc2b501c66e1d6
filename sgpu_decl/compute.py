"""The types of GPUs, for decorators."""

from typing import TYPE_CHECKING

from sgpu_decl.model.gpu import GPUType

if TYPE_CHECKING:
    from sgpu_decl.config.gpu_type import GpuType

__all__ = ["GPUType", "read_gpu_type"]


def read_gpu_type(gpu_type: object, *, parameter: str = "gpu_type") -> "GpuType":
    """Return the type that a run's config holds.

    Args:
        gpu_type: a member of `GPUType`; or as text, in any case, a name of one (`H100`, `a10g`,
            `h100_80gb`) or of a node with several (`GPU_8xH100`).
        parameter: how the caller calls it; messages say so.

    Raises:
        InvalidInput: no type has that name.
    """
    from sgpu_decl.config.gpu_type import (  # pydantic, which ranks never need
        GpuType,
        unknown_type_hint,
    )
    from sgpu_decl.errors import InvalidInput

    kind = GpuType.find(gpu_type) if isinstance(gpu_type, str) else None
    if kind is None:
        text = gpu_type if isinstance(gpu_type, str) else type(gpu_type).__name__
        raise InvalidInput(
            f"`{parameter}` must be a type of GPU, not `{text}`",
            hint=unknown_type_hint(str(text)),
            code="unknown_gpu_type",
        )
    return kind
