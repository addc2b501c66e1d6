"""Kinds of GPU, by every name that users and platforms have for them."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from sgpu_decl.config.block import problem
from sgpu_decl.config.textual import Textual
from sgpu_decl.diagnostics.suggesting import nearest

__all__ = ["NAMES", "GpuType"]

NAMES = ("A10", "H100", "B300", "CPU")
_ACCELERATORS = {
    "GPU_1XA10": ("A10", 1),
    "GPU_1XH100": ("H100", 1),
    "GPU_8XH100": ("H100", 8),
    "GPU_8XB300": ("B300", 8),
}
_SPELLED = ("GPU_1xA10", "GPU_1xH100", "GPU_8xH100", "GPU_8xB300")
_ALIASES = {"A10G": "A10", "H100_80GB": "H100"}


def _any_name(names: tuple[str, ...]) -> str:
    """A pattern for these names in any case."""
    return "|".join("".join(map(_any_case, name)) for name in names)


def _any_case(char: str) -> str:
    return f"[{char.upper()}{char.lower()}]" if char.isalpha() else char


@dataclass(frozen=True, slots=True)
class GpuType(Textual):
    """`name` is one of A10, H100, B300, CPU. `node` is how many GPUs a node has where an
    accelerator name said so; it is checked against the count and then forgotten, so that
    `GPU_8xH100` and `H100` are one type."""

    name: str
    node: int | None = field(default=None, compare=False)
    published: ClassVar[dict[str, Any]] = {
        "type": "string",
        "pattern": rf"^({_any_name((*NAMES, *_ALIASES, *_SPELLED))})$|\$\{{",
        "examples": list(NAMES),
    }

    def __str__(self) -> str:
        return self.name

    @classmethod
    def read(cls, value: object) -> "GpuType":
        """Validate a name in any case.

        Raises:
            PydanticCustomError: no such type.
        """
        if isinstance(value, GpuType):
            return value
        if not isinstance(value, str):
            raise problem("wrong_type", "{path} must be text", f"one of {', '.join(NAMES)}")
        upper = value.strip().upper()
        name = _ALIASES.get(upper, upper)
        if name in NAMES:
            return cls(name)
        if upper in _ACCELERATORS:
            return cls(*_ACCELERATORS[upper])
        near = nearest(value, (*NAMES, *_SPELLED))
        known = ", ".join(f"`{known}`" for known in NAMES)
        raise problem(
            "unknown_gpu_type",
            "{path} must be a type of GPU, not {given}",
            f"did you mean `{near}`? known: {known}" if near else f"known: {known}",
        )

    def refuse(self, gpus: int) -> tuple[str, str] | None:
        """Why this type does not come in that number, with the way out, or `None`."""
        if self.name == "H100" and gpus != 1 and gpus % 8:
            return f"H100 GPUs come as 1 or in multiples of 8, not {gpus}", _steps(gpus)
        if self.name == "B300" and gpus % 8:
            return f"B300 GPUs come in multiples of 8, not {gpus}", _steps(gpus)
        if self.name == "H100" and self.node == 8 and gpus % 8:
            return (
                f"GPU_8xH100 comes in multiples of 8, not {gpus}",
                "use `type: H100`, or `gpus: 8`",
            )
        if self.name == "H100" and self.node == 1 and gpus != 1:
            return f"GPU_1xH100 is one GPU, not {gpus}", "use `type: H100`, or `gpus: 1`"
        return None


def _steps(gpus: int) -> str:
    below, above = gpus // 8 * 8, -(-gpus // 8) * 8
    return f"use `gpus: {below}` or `gpus: {above}`" if below else f"use `gpus: {above}`"
