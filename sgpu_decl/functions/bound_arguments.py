"""A call's arguments against the function's signature, before anything is prepared for it."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import get_args

from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.errors import InvalidInput
from sgpu_decl.model.call import Filled


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
