"""The names of the caller's `__main__`, for `pickle` in a rank and in processes that it starts.

A function of a script or of a notebook cell comes with all that it uses. But `pickle` looks for
functions and classes by their names, and `multiprocessing`, `concurrent.futures`, joblib and data
loaders use it: the module of these is `__main__`, which in a rank is `_air.py`. So while the
function runs, `__main__` has the names that came with it.

A process that is spawned, and not forked, runs `_air.py` as `__mp_main__`, which is its `__main__`
then. It loads what came with the function once a name is asked for.
"""

import pickle
import sys
from contextlib import contextmanager
from types import FunctionType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_MAIN = "__main__"
_MAKERS = frozenset({"_make_function", "_make_skeleton_class", "_make_skeleton_enum"})
_loaded: "list[Iterator[dict[str, Any]]]" = []


class MainUnpickler(pickle.Unpickler):
    """Notes the functions and classes that cloudpickle makes."""

    def __init__(self, file: "Any", *, buffers: "Iterator[memoryview]") -> None:
        super().__init__(file, buffers=buffers)
        self._made: list[Any] = []

    def find_class(self, module: str, name: str) -> "Any":
        found = super().find_class(module, name)
        if name not in _MAKERS or module.partition(".")[0] != "cloudpickle":
            return found

        def make(*arguments: object) -> object:
            self._made.append(found(*arguments))
            return self._made[-1]

        return make

    def names(self) -> "dict[str, Any]":
        """What the caller's `__main__` has of the values that were loaded until now, by name."""
        own = [value for value in self._made if value.__module__ == _MAIN]
        names: dict[str, Any] = {}
        for value in own:
            if isinstance(value, FunctionType) and value.__globals__.get("__name__") == _MAIN:
                names.update(value.__globals__)
        for value in own:
            if value.__qualname__.isidentifier():
                names.setdefault(value.__qualname__, value)
        return {name: value for name, value in names.items() if not _is_special(name)}


@contextmanager
def lend_names(names: "dict[str, Any]") -> "Iterator[None]":
    """Let `__main__` have names, and no longer: a result may need the room of what they hold."""
    main = vars(sys.modules[_MAIN])
    before = {name: main[name] for name in names if name in main}
    main.update(names)
    added = set(names)
    names.clear()
    try:
        yield
    finally:
        for name in added:
            main.pop(name, None)
        main.update(before)


def spawned_name(name: str, parts: "Callable[[], Iterator[dict[str, Any]]]") -> "Any":
    """Return what a name of the caller's `__main__` means in a spawned process.

    Args:
        parts: loads what came with the function, and then with its arguments: the names of each.

    Raises:
        AttributeError: the function came without it.
    """
    main = vars(sys.modules[_MAIN])
    if not _is_special(name):
        if not _loaded:
            _loaded.append(parts())
        try:
            while name not in main:
                main.update(next(_loaded[0]))
        except (StopIteration, ValueError):  # all is loaded; or what is being loaded asks
            pass
        else:
            return main[name]
    raise AttributeError(f"module `__main__` has no attribute `{name}`")


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
