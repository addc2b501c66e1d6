"""Kinds of GPU, by every name that users and platforms have for them."""

import re
from dataclasses import field
from typing import Any, ClassVar

from sgpu_decl.config.text_types import Textual, problem
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.gpu import GPUType, series, type_of_device, type_of_name

_NODE = re.compile(r"GPU_([1-9][0-9]{0,3})X(.+)")
_COUNTED = re.compile(r"([1-9]\d*)\s*[xX*]\s*([A-Za-z].*)|([A-Za-z].*?)\s*[:x*]\s*([1-9]\d*)")
_WHATEVER = "`GPU` is any GPU that the backend has"
_MOST = 12  # names in a hint
_LOOK_ALIKE = str.maketrans("OIL", "011")


def _pattern() -> str:
    """Every name in any case, for editors."""
    models = [kind for kind in GPUType if kind.memory]
    plain = [_any_case(name) for name in ("GPU", "CPU")]
    names = [_model(name, kind) for name, kind in GPUType.__members__.items() if kind in models]
    return rf"^({'|'.join(plain)}|([Gg][Pp][Uu]_[1-9][0-9]{{0,3}}[Xx])?({'|'.join(names)}))$|\$\{{"


def _model(name: str, kind: GPUType) -> str:
    written = "[-_ ]?".join(map(_any_case, name.split("_")))
    sizes = "|".join(str(size) for size in kind.memory)
    return written if name.endswith("GB") else f"{written}([-_ ]?({sizes})[Gg][Bb])?"


def _any_case(name: str) -> str:
    return "".join(
        f"[{letter.upper()}{letter.lower()}]" if letter.isalpha() else letter for letter in name
    )


@dataclass(frozen=True, slots=True)
class GpuType(Textual):
    """`name` is that of a `GPUType`. `node` is how many GPUs a node has where an accelerator name
    said so; it is checked against the count and then forgotten, so that `GPU_8xH100` and `H100`
    are one type."""

    name: str
    node: int | None = field(default=None, compare=False)
    published: ClassVar[dict[str, Any]] = {
        "type": "string",
        "pattern": _pattern(),
        "examples": ["A10", "A100", "H100", "RTX_4090", "MI300X", "GPU", "CPU", "GPU_8xH100"],
    }

    def __str__(self) -> str:
        return self.name

    @property
    def kind(self) -> GPUType:
        return GPUType[self.name]

    @property
    def accelerator(self) -> str | None:
        """The accelerator name that was written, `GPU_8xH100`."""
        return None if self.node is None else f"GPU_{self.node}x{self.name}"

    @classmethod
    def read(cls, value: object) -> "GpuType":
        """Validate a name in any case.

        Raises:
            PydanticCustomError: no such type.
        """
        if isinstance(value, GpuType):
            return value
        if not isinstance(value, str):
            raise problem("wrong_type", "{path} must be text", unknown_type_hint(""))
        gpu_type = cls.find(value)
        if gpu_type is None:
            summary = "{path} must be a type of GPU, not {given}"
            raise problem("unknown_gpu_type", summary, unknown_type_hint(value))
        return gpu_type

    @classmethod
    def find(cls, name: str) -> "GpuType | None":
        """Return the type of that name, in any case; `None` where there is none."""
        if node := _NODE.fullmatch(name.strip().upper()):
            kind = type_of_name(node[2])
            return cls(kind.name, int(node[1])) if kind is not None and kind.memory else None
        kind = type_of_name(name)
        return cls(kind.name) if kind is not None else None

    def refuse(self, gpus: int) -> tuple[str, str] | None:
        """Why this name does not go with that number, with the way out, or `None`."""
        if self.node is None or gpus % self.node == 0:
            return None
        above = -(-gpus // self.node) * self.node
        return (
            f"`{self.accelerator}` is a node of {self.node} GPUs, and {gpus} is no multiple",
            f"use `type: {self.name}`, or `gpus: {above}`",
        )


def unknown_type_hint(name: str) -> str:
    """Return the hint for an unknown name. Another model is never offered as its right spelling."""
    text = name.strip()
    if (both := count_and_type(text)) is not None:
        return both
    if node := _NODE.fullmatch(text.upper()):
        return _of_model(node[2], f"GPU_{node[1]}x")
    return _of_model(text, "")


def count_and_type(text: str) -> str | None:
    """The hint for a type and a count in one, as other tools write them: `H100:8`, `8xH100`."""
    match = _COUNTED.fullmatch(text.strip())
    if match is None:
        return None
    count, name = (match[1], match[2]) if match[1] else (match[4], match[3])
    kind = GpuType.find(name)
    return f"write `type: {kind}` and `gpus: {count}`" if kind is not None else None


def _of_model(name: str, before: str) -> str:
    if sizes := _other_sizes(name):
        return f"it comes as {_listed(sizes, before)}"
    device = type_of_device(name)
    if device is not None and device.memory:
        return f"write `{before}{device.name}`"
    near = _spelling(name)
    if near is not None and not before:
        return f"did you mean `{near}`?"
    if near is not None and GPUType[near].memory:
        return f"did you mean `{before}{near}`?"
    if beside := series(name):
        return f"known in that series: {_listed(beside, before)}; {_WHATEVER}"
    return (
        f"name a GPU, such as `A100`, `H100`, `L4`, `RTX_4090` or `MI300X`; {_WHATEVER}, "
        "`CPU` is ranks without one"
    )


def _listed(kinds: tuple[GPUType, ...], before: str) -> str:
    return ", ".join(f"`{before}{kind.name}`" for kind in kinds[:_MOST])


def _spelling(name: str) -> str | None:
    """The known name with the same characters in another order, doubled, or with letters instead of
    digits. A name without digits is compared with `GPU` and `CPU`."""
    if not re.search(r"[0-9]", name):
        return nearest(name, ("GPU", "CPU"))
    characters = _characters(name)
    return next((name for name in GPUType.__members__ if _characters(name) == characters), None)


def _characters(name: str) -> tuple[str, frozenset[str]]:
    """The digits in their order, and the letters in none."""
    plain = name.upper().translate(_LOOK_ALIKE)
    return "".join(re.findall(r"[0-9]", plain)), frozenset(re.findall(r"[A-Z]", plain))


def _other_sizes(name: str) -> tuple[GPUType, ...]:
    """The sizes of a model that was named with a size which it does not have."""
    sized = re.fullmatch(r"(.+?)[-_ ]?[0-9]+GB", name.upper())
    kind = type_of_name(sized[1]) if sized else None
    if kind is None:
        return ()
    return tuple(
        sized for sized in GPUType if sized is kind or sized.name.startswith(f"{kind.name}_")
    )
