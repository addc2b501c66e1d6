"""A call's arguments against the function's signature, before anything is prepared for it."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import get_args

from sgpu_decl.errors import InvalidInput
from sgpu_decl.model.call import Filled

__all__ = ["ArgumentMismatch", "Bound", "bind"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """`named` has every argument under the name of its parameter, for those who read; `fill` are
    required parameters that the call leaves out and ranks fill in."""

    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    named: Mapping[str, object]
    fill: tuple[Filled, ...]


def bind(
    function: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> Bound:
    """Bind a call's arguments.

    Raises:
        ArgumentMismatch: they do not fit the function's parameters. It is a `TypeError` too.
    """
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # a builtin that does not tell
        return Bound(args=args, kwargs=kwargs, named=dict(kwargs), fill=())
    name = getattr(function, "__name__", type(function).__name__)
    try:
        bound = signature.bind_partial(*args, **kwargs)
    except TypeError as error:
        raise _mismatch(name, signature, str(error)) from None
    missing = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and parameter.name not in bound.arguments
    ]
    filled: tuple[Filled, ...] = get_args(Filled)
    fill = tuple(item for item in filled if item in missing and _by_name(signature, item))
    lacking = [f"`{item}`" for item in missing if item not in fill]
    if lacking:
        raise _mismatch(name, signature, f"missing {' and '.join(lacking)}")
    return Bound(args=args, kwargs=kwargs, named=_named(signature, bound), fill=fill)


def _by_name(signature: inspect.Signature, name: str) -> bool:
    parameter = signature.parameters[name]
    return parameter.kind is not parameter.POSITIONAL_ONLY


def _named(signature: inspect.Signature, bound: inspect.BoundArguments) -> dict[str, object]:
    named: dict[str, object] = {}
    for name, value in bound.arguments.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        else:
            named[name] = value
    return named


class ArgumentMismatch(InvalidInput, TypeError):
    code = "arguments_differ"


def _mismatch(name: str, signature: inspect.Signature, why: str) -> ArgumentMismatch:
    return ArgumentMismatch(
        f"`{name}` cannot be called like this: {why}",
        hint=f"its parameters are `{name}{signature}`; nothing was started",
    )
