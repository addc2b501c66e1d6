"""cloudpickle's pickler, with reducers for objects that ranks could not load.

- Modules of any type go by their name. cloudpickle knows modules by their exact type, so that it
  refuses `torch.backends.cudnn`, `torch.ops`, `torch.classes`, which it takes for used by any
  function that has `torch` and an attribute of that name, as in `dataset.classes`.
- Wrappers of functions of the caller's script go whole: see `wrappers`.
- What else is pickled by a name in that script is refused: ranks have no such script.
"""

import pickle
import sys
import types
from collections import ChainMap
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, ClassVar

import cloudpickle

from sgpu_decl.functions.wrappers import by_name, rewrapped, wrapper_reducers

__all__ = ["pickler_class"]

Reducers = Mapping[type, Callable[[Any], "tuple[Any, ...] | str"]]


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
        wrapper_reducers(),
        dict.fromkeys(modules, _by_name),
        cloudpickle.Pickler.dispatch_table,
    )

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
        dispatch_table: ClassVar[Any] = table

        def reducer_override(self, value: Any) -> Any:
            reduced = rewrapped(value) if isinstance(value, types.FunctionType) else None
            if reduced is None:
                reduced = super().reducer_override(value)
            if reduced is not NotImplemented or type(value) in table:
                return reduced
            if getattr(value, "__module__", None) != "__main__":
                return NotImplemented
            reduced = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
            if isinstance(reduced, str) and not by_name(value):
                raise pickle.PicklingError(
                    f"pickle sends it by its name, `{reduced}`, and ranks do not have the script "
                    "that has it"
                )
            return reduced

    return Pickler


def _by_name(module: types.ModuleType) -> tuple[Any, ...] | str:
    if sys.modules.get(module.__name__) is module:
        return import_module, (module.__name__,)
    return module.__reduce_ex__(4)
