"""cloudpickle's pickler, with reducers for objects that ranks could not load.

- Modules of any type go by their name. cloudpickle knows modules by their exact type, so that it
  refuses `torch.backends.cudnn`, `torch.ops`, `torch.classes`, which it takes for used by any
  function that has `torch` and an attribute of that name, as in `dataset.classes`.
- Wrappers of functions of the caller's script go whole: see `wrappers`.
- Code keeps the name of its file, which tracebacks show with the line. cloudpickle 3.1.3 and newer
  write `<dynamic-code>` in its place.
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

_FILENAME = 10  # its place in the arguments of `types.CodeType`, see `Objects/codeobject.c`

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
        {types.CodeType: _with_file},
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


def _with_file(code: types.CodeType) -> tuple[Any, ...]:
    make, arguments = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    # As a string of its own: pickle would write an interned one as a reference or not, by chance.
    file = "".join(code.co_filename)
    return make, (*arguments[:_FILENAME], file, *arguments[_FILENAME + 1 :])


def _by_name(module: types.ModuleType) -> tuple[Any, ...] | str:
    if sys.modules.get(module.__name__) is module:
        return import_module, (module.__name__,)
    return module.__reduce_ex__(4)
