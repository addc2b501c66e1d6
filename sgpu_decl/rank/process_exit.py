"""The last step of a rank that was forked for a call.

Python ends as ever: it joins threads, calls `atexit` functions, and deletes what the call has made.
What was imported before the fork stays as it is. A rank shares that memory with the process that
imported it, and the kernel copies each page on which something is taken apart. For torch, this
takes ten times as long as all else. So the rank leaves out

- the deletion of modules, and of what they hold, except that open files are flushed,
- the functions of `weakref.finalize`: what they delete, such as a temporary folder, other ranks use
  too. A folder that an import makes so is left behind,
- the destructors of C libraries.

Forked processes of `multiprocessing` leave out these and more: they end by `os._exit`, see
`Popen._launch` in https://github.com/python/cpython/blob/3.11/Lib/multiprocessing/popen_fork.py
"""

import atexit
import ctypes
import gc
import os
import sys
from _frozen_importlib import ModuleSpec
from _io import BufferedRandom, BufferedWriter, TextIOWrapper
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType
    from typing import Any

# `__main__` is the call's own, and Python needs the others until its end.
_NOT_HIDDEN = frozenset({"__main__", "builtins", "sys", "threading"})
_BUFFERED = (BufferedWriter, BufferedRandom, TextIOWrapper)
_imported: "dict[str, ModuleType]" = {}


def prepare_exit() -> None:
    """Call this before the imports. Python calls `atexit` functions in the reverse order of their
    registration, so ours comes after those of the imports, which need their modules."""
    atexit.register(_hide_imports)


def leave_imports_alone() -> None:
    """Have the end of this process leave all modules alone that are imported by now, and what they
    have registered. A preloaded library, such as a profiler or a sanitizer, may report at the very
    end: then the process ends as ever."""
    if "LD_PRELOAD" in os.environ:
        return
    loaded: dict[str, Any] = {**sys.modules}
    _imported.update({name: module for name, module in loaded.items() if module is not None})
    if "weakref" in loaded:
        for finalizer in list(loaded["weakref"].finalize._registry):
            finalizer.atexit = False
    _leave_destructors_out()


def _hide_imports() -> None:
    """Take the modules out of the table of those that Python deletes. A daemon thread may still
    need them, and may hold the lock of a file: beside one, Python deletes all."""
    if len(sys._current_frames()) > 1:
        _imported.clear()
    if not _imported:
        return
    _flush(getattr(sys, name, None) for name in ("stdout", "stderr"))
    # The call may have given a file to such a module. Those of the parent are frozen: not listed.
    _flush(item for item in gc.get_objects() if issubclass(type(item), _BUFFERED))
    sys.meta_path.insert(0, _HiddenModules())
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_imported))  # never given back: nothing is freed
    for name in _imported.keys() - _NOT_HIDDEN:
        if sys.modules.get(name) is _imported[name]:
            del sys.modules[name]


class _HiddenModules:
    """Finds a module again that something imports at the very end, and does not run it again."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        return ModuleSpec(name, self) if name in _imported else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> "ModuleType":
        return _imported[spec.name]

    def exec_module(self, module: "ModuleType") -> None:
        pass


def _flush(files: "Iterable[Any]") -> None:
    for file in files:
        with suppress(Exception):  # Python tries once more, and says what is wrong
            file.flush()


def _leave_destructors_out() -> None:
    """Have this process end before it comes to the destructors that are known by now.

    The functions of `exit(3)` are called in the reverse order of their registration: what C has
    buffered is written, and functions run that the call's own libraries have registered. Where C
    has no `on_exit(3)`, all destructors run.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):
        libc.on_exit(libc._exit, None)  # is given the exit status
        libc.__cxa_atexit(libc.fflush, None, None)
