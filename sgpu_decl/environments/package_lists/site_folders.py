"""The folders that an interpreter finds packages in, from its files alone: it is not run.

They are those that `site` of CPython puts on `sys.path`: of a virtual environment, of the user, and
of the installation, each followed by the folders that its `.pth` files name. What a line of such a
file imports is not followed.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path


def site_folders(
    executable: str, version: str, environ: Mapping[str, str], *, threaded: str = ""
) -> tuple[str, ...] | None:
    """Return the folders in the order of `sys.path`; None if the installation is of another form
    than CPython's.

    Args:
        version: of the interpreter, such as `3.11.7`.
        environ: the variables of its processes.
        threaded: `t` for a free-threaded interpreter.
    """
    minor = ".".join(version.split(".")[:2])
    library = f"python{minor}{threaded}"
    prefix = virtual_environment(executable)
    settings = _settings(os.path.join(prefix, "pyvenv.cfg")) if prefix else {}
    homes = [os.path.dirname(os.path.realpath(executable)), settings.get("home", "")]
    base = next(filter(None, (_installation(home, library) for home in homes)), None)
    if base is None:
        return None
    folders = _below(prefix, library) if prefix else []
    if not prefix or settings.get("include-system-site-packages", "").lower() == "true":
        if "PYTHONNOUSERSITE" not in environ:
            own = environ.get("PYTHONUSERBASE") or os.path.expanduser("~/.local")
            folders += _below(own, library)
        folders += _below(base, library)
        folders += _of_debian(base, library)
    outer = environ.get("PYTHONPATH", "").split(os.pathsep)
    every = [*filter(None, outer), *(one for folder in folders for one in _with_paths(folder))]
    distinct: dict[str, str] = {}  # `lib64` is often a link to `lib`
    for folder in every:
        distinct.setdefault(os.path.realpath(folder), folder)
    return tuple(distinct.values())


def virtual_environment(executable: str) -> str:
    """Return the folder of an interpreter's virtual environment, found as Python finds it; empty if
    it has none."""
    beside = os.path.dirname(os.path.abspath(executable))
    for folder in (beside, os.path.dirname(beside)):
        if os.path.isfile(os.path.join(folder, "pyvenv.cfg")):
            return folder
    return ""


def active_environments(environ: Mapping[str, str], folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the environments of a user that sgpu does not run in: the one that is active, and the
    one beside the code. Each with its interpreter as a file of `folder` names it.

    Args:
        folder: that of the run file.
    """
    homes = [Path(environ[name]) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environ.get(name)]
    for home in dict.fromkeys((*homes, folder / ".venv")):
        python = home / "bin/python"
        if os.access(python, os.X_OK) and not os.path.samefile(home, sys.prefix):
            below = python.is_relative_to(folder)
            yield os.fspath(python.relative_to(folder) if below else python), home


def has_module(home: Path, name: str) -> bool:
    """Whether an environment has a top-level package or module, by the names of its files."""
    return any(
        (site / name).is_dir() or (site / f"{name}.py").is_file() or any(site.glob(f"{name}.*.so"))
        for site in home.glob("lib*/python3*/site-packages")
    )


def _installation(home: str, library: str) -> str | None:
    """Return the folder above that of an interpreter, if the standard library lies below it."""
    base = os.path.dirname(home)
    libraries = (os.path.join(base, name, library) for name in ("lib", "lib64"))
    return base if any(os.path.isfile(os.path.join(one, "os.py")) for one in libraries) else None


def _settings(path: str) -> dict[str, str]:
    with open(path, encoding="utf-8", errors="replace") as file:
        pairs = [line.partition("=") for line in file]
    return {key.strip().lower(): value.strip() for key, equals, value in pairs if equals}


def _below(prefix: str, library: str) -> list[str]:
    return [os.path.join(prefix, name, library, "site-packages") for name in ("lib", "lib64")]


def _of_debian(base: str, library: str) -> list[str]:
    """Where Debian's own Python finds the packages of pip and of the system."""
    folders = [os.path.join("local", "lib", library), os.path.join("lib", "python3")]
    return [os.path.join(base, folder, "dist-packages") for folder in folders]


def _with_paths(folder: str) -> Iterator[str]:
    """Yield a folder, and those that its `.pth` files name."""
    yield folder
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".pth"))
    except OSError:
        return
    for name in names:
        try:
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                lines = file.read().splitlines()
        except OSError:
            continue
        for line in map(str.strip, lines):
            if line and not line.startswith(("#", "import ", "import\t")):
                yield os.path.join(folder, line)
