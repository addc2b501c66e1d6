"""Kinds of GPU, by every name that users and platforms have for them."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from sgpu_decl.config.block import problem
from sgpu_decl.config.textual import Textual
from sgpu_decl.diagnostics.suggesting import nearest
from sgpu_decl.model.gpu import ACCELERATORS, GPUType

__all__ = ["NAMES", "GpuType", "meant"]

NAMES = tuple(kind.name for kind in GPUType)
_ALIASES = tuple(name for name in GPUType.__members__ if name not in NAMES)
_NODES = {name.upper(): known for name, known in ACCELERATORS.items()}


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
        "pattern": rf"^({_any_name((*NAMES, *_ALIASES, *ACCELERATORS))})$|\$\{{",
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
        found = cls.find(value)
        if found is None:
            summary = "{path} must be a type of GPU, not {given}"
            raise problem("unknown_gpu_type", summary, meant(value))
        return found

    @classmethod
    def find(cls, name: str) -> "GpuType | None":
        """Return the type of that name, in any case; `None` where there is none."""
        upper = name.strip().upper()
        if upper in _NODES:
            kind, node = _NODES[upper]
            return cls(kind.name, node)
        return cls(GPUType[upper].name) if upper in GPUType.__members__ else None

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


def meant(name: str) -> str:
    """Return the hint for an unknown name."""
    near = nearest(name, (*GPUType.__members__, *ACCELERATORS))
    known = ", ".join(f"`{known}`" for known in NAMES)
    return f"did you mean `{near}`? known: {known}" if near else f"known: {known}"


def _steps(gpus: int) -> str:
    below, above = gpus // 8 * 8, -(-gpus // 8) * 8
    return f"use `gpus: {below}` or `gpus: {above}`" if below else f"use `gpus: {above}`"
