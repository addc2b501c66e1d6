"""The last step of a rank that was forked for a call.

Python ends as ever: it joins threads, calls `atexit` functions, and deletes what the call has made.
What was imported before the fork stays as it is. A rank shares that memory with the process that
imported it, and the kernel copies each page on which something is taken apart. For torch, this
takes ten times as long as all else. So the rank leaves out

- the deletion of modules,
- the functions of `weakref.finalize`: they belong to the process that imported, such as one that
  deletes a temporary folder which other ranks use too,
- the destructors of C libraries.

Forked processes of `multiprocessing` leave out these and more: they end by `os._exit`, see
`Popen._launch` in https://github.com/python/cpython/blob/3.11/Lib/multiprocessing/popen_fork.py
"""

import atexit
import ctypes
import gc
import os
import sys
from _io import BufferedRandom, BufferedWriter, TextIOWrapper
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType
    from typing import Any

__all__ = ["leave_imports_alone", "prepare_exit"]

_TAKEN_APART = ("__main__", "builtins", "sys")  # Python needs the last two until its end
_BUFFERED = (BufferedWriter, BufferedRandom, TextIOWrapper)
_imported: "dict[str, ModuleType]" = {}


def prepare_exit() -> None:
    """Call this before the imports: Python calls `atexit` functions in the reverse order of their
    registration, and those of modules need these modules."""
    atexit.register(_hide_imports)


def leave_imports_alone() -> None:
    """Have the end of this process leave all modules alone that are imported by now, and what they
    have registered."""
    _imported.update(sys.modules)
    weakref: Any = sys.modules.get("weakref")
    if weakref is not None:
        for finalizer in list(weakref.finalize._registry):
            finalizer.atexit = False
    _leave_destructors_out()


def _hide_imports() -> None:
    """Take the modules out of the table of those that Python deletes."""
    if not _imported:
        return
    _flush((sys.stdout, sys.stderr))  # while the modules are there that these may need
    # A file that the call has opened may be held by such a module. The parent's are frozen.
    _flush(item for item in gc.get_objects() if type(item) in _BUFFERED)
    # A reference that is never given back.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_imported))
    for name in _imported.keys() - _TAKEN_APART:
        sys.modules.pop(name, None)


def _flush(files: "Iterable[Any]") -> None:
    for file in files:
        with suppress(Exception):  # Python tries once more, and says what is wrong
            file.flush()


def _leave_destructors_out() -> None:
    """Have this process end before it comes to the destructors that are known by now.

    The functions of `exit(3)` are called in the reverse order of their registration: what C has
    buffered is written, and functions run that the call's own libraries have registered. A
    preloaded library, such as a profiler or a sanitizer, may report in its destructor: then they
    all run. So they do where C has no `on_exit(3)`.
    """
    libc = ctypes.CDLL(None)
    if "LD_PRELOAD" in os.environ or not hasattr(libc, "on_exit"):
        return
    libc.on_exit(libc._exit, None)  # is given the exit status
    libc.__cxa_atexit(libc.fflush, None, None)
