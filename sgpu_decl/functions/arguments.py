"""The arguments of a call as JSON: values that JSON lacks are described by type and size."""

import math
from collections.abc import Mapping

from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.model.jsonable import Json, canonical

_LONGEST = 2_000  # characters of one argument; the pickle has it whole
_DEPTH = 6
_LARGEST_BITS = 3_000


def readable_arguments(arguments: Mapping[str, object]) -> dict[str, Json]:
    """The arguments by name, for the state and the plan, which compare calls. Values that look like
    tokens are masked."""
    return {name: _bounded(value) for name, value in arguments.items()}


def _bounded(value: object) -> Json:
    readable = _readable(value, _DEPTH)
    if isinstance(readable, str | bool | int | float) or readable is None:
        return readable
    text = canonical(readable)
    return readable if len(text) <= _LONGEST else _words(value)


def _readable(value: object, depth: int) -> Json:
    if value is None or isinstance(value, bool):
        return value
    if type(value) is int:  # Python writes no integer of more than 4,300 digits, unless in hex
        return value if value.bit_length() <= _LARGEST_BITS else hex(value)[:_LONGEST]
    if type(value) is float:
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return mask(str(value))[:_LONGEST]
    if depth and isinstance(value, list | tuple) and len(value) <= _LONGEST:
        return [_readable(item, depth - 1) for item in value]
    if depth and isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _readable(item, depth - 1) for key, item in value.items()}
    return _words(value)


def _words(value: object) -> str:
    """The type, with its shape or length if it has one: `<numpy.ndarray (1000, 3)>`."""
    kind = type(value)
    name = (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"<{name} {tuple(shape)}>"
    if isinstance(value, list | tuple | dict | set | frozenset | bytes | bytearray | str):
        return f"<{name} of {len(value)}>"
    return f"<{name}>"
