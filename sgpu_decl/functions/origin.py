"""The origin of a function: its place in its file, its name as a run, and the calling program."""

import os
import re
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

from sgpu_decl.diagnostics.place import Place

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_PACKAGES = frozenset({"site-packages", "dist-packages"})
_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Attributes:
    name: the name of its run.
    place: that of its decorator, or of the function if it has none.
    entrypoint: module and function, as a run names them.
    """

    name: str
    place: Place
    entrypoint: str


def origin_of(function: Callable[..., object]) -> Origin:
    """Return the origin of a function. A callable object has that of its class."""
    called = getattr(function, "__name__", None) or type(function).__name__
    module = getattr(function, "__module__", None) or "__main__"
    code = getattr(function, "__code__", None)
    source, line = (
        (code.co_filename, code.co_firstlineno) if isinstance(code, CodeType) else ("", 1)
    )
    in_file = os.path.isfile(source) and not in_notebook(module)
    file = os.path.relpath(source) if in_file else program_file().name
    name = "".join(_NAME.findall(called.replace(".", "_")))[:100] or "function"
    plain = _MODULE.fullmatch(module) and called.isidentifier()
    return Origin(
        name=name,
        place=Place(file, line, 1),
        entrypoint=f"{module}:{called}" if plain else f"__main__:{name.replace('-', '_')}",
    )


def in_notebook(module: str = "__main__") -> bool:
    """Whether the cells of a notebook, or of an interactive session, are that module."""
    return module == "__main__" and not hasattr(sys.modules.get("__main__"), "__file__")


def program_file() -> Path:
    """The script or notebook that runs; a name in the current folder where that is none of the
    user's own, as with a test runner."""
    if in_notebook():
        return Path.cwd() / _notebook()
    path = Path(getattr(sys.modules.get("__main__"), "__file__", None) or "")
    if path.is_file() and not _installed(path):
        return path.absolute()
    return Path.cwd() / "python"


def _notebook() -> str:
    """The notebook's name, where whoever runs the kernel tells it."""
    main = sys.modules.get("__main__")
    path = (
        getattr(main, "__vsc_ipynb_file__", None)  # Visual Studio Code
        or getattr(main, "__session__", None)  # PyCharm
        or os.environ.get("JPY_SESSION_NAME")  # Jupyter Server 2
    )
    name = Path(str(path)).name if path else ""
    return name if name.endswith(".ipynb") else "notebook"


def _installed(path: Path) -> bool:
    """Whether a file is no project's: packages lie elsewhere too (a user's own, a distribution's, a
    parent of this virtual environment), always in a folder of that name."""
    if _PACKAGES.intersection(path.parts):
        return True
    return any(path.is_relative_to(folder) for folder in _own_folders())


def _own_folders() -> set[str]:
    """Where an interpreter keeps its library and its packages."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {sysconfig.get_path(name) for name in names}
    return {os.path.realpath(item) for item in folders if item} | {item for item in folders if item}


def local_paths() -> tuple[str, ...]:
    """The folders of `sys.path` that the interpreter does not have by itself, in their order, the
    working folder as such."""
    own = _own_folders()
    folders = []
    for entry in sys.path:
        folder = os.path.abspath(entry or os.getcwd())
        inside = any(folder == item or folder.startswith(item + os.sep) for item in own)
        if not inside and os.path.isdir(folder) and folder not in folders:
            folders.append(folder)
    return tuple(folders)
