"""Wrappers of functions for pickle: each is taken apart, and built again where it is loaded.

A wrapper that is pickled by its name, as that of `functools.lru_cache` is, would be looked for in
the caller's script, which ranks do not have; others hold locks, weak references or caches, which
cannot be pickled. Those of modules that ranks import stay what they are: names.
"""

import functools
import operator
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from sgpu_decl.functions.captured_values import CachedFunction

_Reduced = tuple[Any, ...] | str
_DISPATCHING = functools.singledispatch(len).__code__  # type: ignore[attr-defined]  # that of all
_OWN = frozenset({"__wrapped__", "cache_parameters"})


def wrapper_reducers() -> dict[type, Callable[[Any], _Reduced]]:
    """For the dispatch table of a pickler, by the types of wrappers."""
    return {
        CachedFunction: _cached,
        functools.cached_property: _cached_property,
        typing.NewType: _new_type,
        typing.ParamSpec: _by_module_name,
        typing.TypeVarTuple: _by_module_name,
    }


def rewrapped(function: types.FunctionType) -> _Reduced | None:
    """The way to make a wrapper that is a function itself and cannot be pickled as one, None where
    it is another function."""
    if by_name(function):
        return None
    if function.__code__ is _DISPATCHING:
        kinds = tuple(function.registry.items())  # type: ignore[attr-defined]
        return _put_dispatch, (function.__wrapped__, kinds)  # type: ignore[attr-defined]
    if "_torchdynamo_orig_callable" in vars(function):
        from torch._dynamo.eval_frame import OptimizeContext  # torch's own pickles name it

        for cell in function.__closure__ or ():
            if isinstance(cell.cell_contents, OptimizeContext):
                return cell.cell_contents, (vars(function)["_torchdynamo_orig_callable"],)
    return None


def by_name(value: Any) -> bool:
    """Whether ranks find something by its name in a module that they import."""
    from cloudpickle import list_registry_pickle_by_value

    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not (isinstance(module, str) and isinstance(name, str)) or module == "__main__":
        return False
    if any(
        f"{module}.".startswith(f"{registered}.") for registered in list_registry_pickle_by_value()
    ):
        return False
    try:
        return operator.attrgetter(name)(sys.modules.get(module)) is value
    except AttributeError:
        return False


def _cached(function: Any) -> _Reduced:
    if by_name(function):
        return str(function.__qualname__)
    inner = function.__wrapped__
    # What `update_wrapper` copied it will copy again.
    own = {name: value for name, value in vars(function).items() if name not in _OWN}
    own = {name: value for name, value in own.items() if getattr(inner, name, None) is not value}
    return _put_cache, (inner, function.cache_parameters(), own)


def _cached_property(wrapper: "functools.cached_property[Any]") -> _Reduced:
    state = {
        name: value for name, value in vars(wrapper).items() if name != "lock"
    }  # until Python 3.11
    return functools.cached_property, (wrapper.func,), state


def _new_type(new_type: Any) -> _Reduced:
    if by_name(new_type):
        return str(new_type.__qualname__)
    return (
        typing.NewType,
        (new_type.__name__, new_type.__supertype__),
        {"__module__": new_type.__module__},
    )


def _by_module_name(parameter: Any) -> _Reduced:
    name = str(parameter.__name__)
    module = sys.modules.get(parameter.__module__)
    if parameter.__module__ != "__main__" and getattr(module, name, None) is parameter:
        return name
    return type(parameter), (name,)


# These two travel whole, as functions of a script do: ranks may have no sgpu.


def _put_cache(
    function: Callable[..., object], settings: Mapping[str, Any], own: Mapping[str, object]
) -> object:
    import functools

    cached = functools.lru_cache(**settings)(function)
    vars(cached).update(own)
    return cached


def _put_dispatch(
    function: Callable[..., object], kinds: tuple[tuple[type, Callable[..., object]], ...]
) -> object:
    import functools

    dispatcher = functools.singledispatch(function)
    for kind, one in kinds:
        dispatcher.register(kind, one)
    return dispatcher


for _one in (_put_cache, _put_dispatch):
    _one.__module__ = "__main__"
    _one.__annotations__ = {}
