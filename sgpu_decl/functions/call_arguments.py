"""The arguments of a call: bound to the function's signature, and described as JSON."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import get_args

from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.errors import InvalidInput
from sgpu_decl.model.call import Filled
from sgpu_decl.model.jsonable import Json, canonical

_LONGEST = 2_000  # characters of one argument; the pickle has it whole
_DEPTH = 6
_LARGEST_BITS = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """`by_name` has every argument under the name of its parameter; `fill` are required parameters
    that the call leaves out and ranks fill in."""

    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    by_name: Mapping[str, object]
    fill: tuple[Filled, ...]


def bind(
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    *,
    fillable: tuple[Filled, ...] = get_args(Filled),
) -> Bound:
    """Bind a call's arguments.

    Args:
        fillable: the parameters that a rank can fill in; none in the driver of a Ray cluster.

    Raises:
        ArgumentMismatch: they do not fit the function's parameters. It is a `TypeError` too.
    """
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # a builtin without a signature
        return Bound(args=args, kwargs=kwargs, by_name=dict(kwargs), fill=())
    name = getattr(function, "__name__", type(function).__name__)
    try:
        bound = signature.bind_partial(*args, **kwargs)
    except TypeError as error:
        raise _mismatch(name, signature, str(error), _suggestion(signature, kwargs)) from None
    missing = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and parameter.name not in bound.arguments
    ]
    fill = tuple(item for item in fillable if item in missing and _takes_keyword(signature, item))
    missing_names = [f"`{item}`" for item in missing if item not in fill]
    if missing_names:
        raise _mismatch(name, signature, f"missing {' and '.join(missing_names)}")
    return Bound(args=args, kwargs=kwargs, by_name=_by_parameter(signature, bound), fill=fill)


def _takes_keyword(signature: inspect.Signature, name: str) -> bool:
    parameter = signature.parameters[name]
    return parameter.kind is not parameter.POSITIONAL_ONLY


def _by_parameter(signature: inspect.Signature, bound: inspect.BoundArguments) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, value in bound.arguments.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            values.update(value)
        else:
            values[name] = value
    return values


class ArgumentMismatch(InvalidInput, TypeError):
    code = "arguments_differ"


def _mismatch(
    name: str, signature: inspect.Signature, why: str, suggestion: str = ""
) -> ArgumentMismatch:
    return ArgumentMismatch(
        f"`{name}` cannot be called like this: {why}",
        hint=f"{suggestion}its parameters are `{name}{signature}`; nothing was started",
    )


def _suggestion(signature: inspect.Signature, kwargs: Mapping[str, object]) -> str:
    """The parameter that an unknown name probably means."""
    for name in kwargs:
        near = None if name in signature.parameters else nearest(name, signature.parameters)
        if near is not None:
            return f"did you mean `{near}`? "
    return ""


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
