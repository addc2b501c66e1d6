"""cloudpickle's pickler, with reducers for objects that ranks could not load.

- Modules of any type go by their name. cloudpickle knows modules by their exact type, so that it
  refuses `torch.backends.cudnn`, `torch.ops`, `torch.classes`, which it takes for used by any
  function that has `torch` and an attribute of that name, as in `dataset.classes`.
- Wrappers of functions are taken apart, and built again where they are loaded. A wrapper that is
  pickled by its name, as that of `functools.lru_cache` is, would be looked for in the caller's
  script, which ranks do not have; others hold locks, weak references or caches, which cannot be
  pickled. Those of modules that ranks import stay what they are: names.
- Code keeps the name of its file, which tracebacks show with the line. cloudpickle 3.1.3 and newer
  write `<dynamic-code>` in its place.
- What else is pickled by a name in that script is refused: ranks have no such script.
"""

import functools
import operator
import pickle
import sys
import types
import typing
from collections import ChainMap
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, ClassVar

import cloudpickle

from sgpu_decl.functions.captured_values import CachedFunction

_FILENAME = 10  # its place in the arguments of `types.CodeType`, see `Objects/codeobject.c`

Reducers = Mapping[type, Callable[[Any], "tuple[Any, ...] | str"]]
_Reduced = tuple[Any, ...] | str
_DISPATCHING = functools.singledispatch(len).__code__  # type: ignore[attr-defined]  # that of all
_OWN = frozenset({"__wrapped__", "cache_parameters"})


def pickler_class(more: Reducers) -> Any:
    """Return a class to make picklers with, for the modules that are loaded now.

    Args:
        more: reducers by exact type, which come first.
    """
    kinds: set[type] = {
        type(module) for module in [*sys.modules.values()]
    }  # anything may stand there
    modules = {kind for kind in kinds if issubclass(kind, types.ModuleType)} - {types.ModuleType}
    table = ChainMap(
        dict(more),
        _wrapper_reducers(),
        dict.fromkeys(modules, _by_name),
        {types.CodeType: _with_file},
        cloudpickle.Pickler.dispatch_table,
    )

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
        dispatch_table: ClassVar[Any] = table

        def reducer_override(self, value: Any) -> Any:
            reduced = _rewrapped(value) if isinstance(value, types.FunctionType) else None
            if reduced is None:
                reduced = super().reducer_override(value)
            if reduced is not NotImplemented or type(value) in table:
                return reduced
            if getattr(value, "__module__", None) != "__main__":
                return NotImplemented
            reduced = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
            if isinstance(reduced, str) and not is_found_by_name(value):
                raise pickle.PicklingError(
                    f"pickle sends it by its name, `{reduced}`, and ranks do not have the script "
                    "that has it"
                )
            return reduced

    return Pickler


def _with_file(code: types.CodeType) -> tuple[Any, ...]:
    make, arguments = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    # As a string of its own: pickle would write an interned one as a reference or not, by chance.
    file = "".join(code.co_filename)
    return make, (*arguments[:_FILENAME], file, *arguments[_FILENAME + 1 :])


def _by_name(module: types.ModuleType) -> tuple[Any, ...] | str:
    if sys.modules.get(module.__name__) is module:
        return import_module, (module.__name__,)
    return module.__reduce_ex__(4)


def _wrapper_reducers() -> dict[type, Callable[[Any], _Reduced]]:
    """For the dispatch table of a pickler, by the types of wrappers."""
    return {
        CachedFunction: _cached,
        functools.cached_property: _cached_property,
        typing.NewType: _new_type,
        typing.ParamSpec: _by_module_name,
        typing.TypeVarTuple: _by_module_name,
    }


def _rewrapped(function: types.FunctionType) -> _Reduced | None:
    """The way to make a wrapper that is a function itself and cannot be pickled as one, None where
    it is another function."""
    if is_found_by_name(function):
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


def is_found_by_name(value: Any) -> bool:
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
    if is_found_by_name(function):
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
    if is_found_by_name(new_type):
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

    cached = functools.lru_cache(**settings)(function)
    vars(cached).update(own)
    return cached


def _put_dispatch(
    function: Callable[..., object], kinds: tuple[tuple[type, Callable[..., object]], ...]
) -> object:

    dispatcher = functools.singledispatch(function)
    for kind, one in kinds:
        dispatcher.register(kind, one)
    return dispatcher


for _one in (_put_cache, _put_dispatch):
    _one.__module__ = "__main__"
    _one.__annotations__ = {}
