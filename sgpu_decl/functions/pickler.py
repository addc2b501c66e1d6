"""cloudpickle's pickler, which here sends modules of any type by their name.

cloudpickle knows modules by their exact type, so that it refuses those of a type of their own:
`torch.backends.cudnn`, `torch.ops`, `torch.classes`. It takes these for used by any function that
has `torch` and an attribute of that name, as in `dataset.classes`.
"""

import sys
from collections import ChainMap
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar

import cloudpickle

__all__ = ["pickler_class"]


def pickler_class() -> Any:
    """Return a class to make picklers with, for the modules that are loaded now."""
    kinds: set[type] = {type(it) for it in [*sys.modules.values()]}  # anything may stand there
    modules = {it for it in kinds if issubclass(it, ModuleType)} - {ModuleType}

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
        dispatch_table: ClassVar[Any] = ChainMap(
            dict.fromkeys(modules, _by_name), cloudpickle.Pickler.dispatch_table
        )

    return Pickler


def _by_name(module: ModuleType) -> tuple[Any, ...] | str:
    if sys.modules.get(module.__name__) is module:
        return import_module, (module.__name__,)
    return module.__reduce_ex__(4)
