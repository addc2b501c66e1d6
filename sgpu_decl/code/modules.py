"""Collects the user's own modules that a process has imported, for functions that are sent to
ranks."""

import os
import shutil
import sys
import sysconfig
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

from sgpu_decl.code.file_digests import digest_file
from sgpu_decl.code.snapshot import Snapshot, SnapshotEntry
from sgpu_decl.scratch_folders import scratch_folder

_PACKAGES = frozenset({"site-packages", "dist-packages"})
_OURS = frozenset({"__main__", "sgpu_decl"})


def own_modules(
    path: Sequence[str], modules: Mapping[str, ModuleType] | None = None
) -> dict[str, Path]:
    """Return the files of modules that were imported from certain folders, by their paths below the
    folder. All Python files of a package count: it may import more of them later.

    Args:
        path: folders of `sys.path`; installed packages in them do not count.
        modules: `sys.modules` unless given.
    """
    loaded = dict(sys.modules if modules is None else modules)
    sources: dict[str, Path] = {}
    for top in sorted({name.partition(".")[0] for name in loaded} - _OURS):
        module = loaded.get(top)
        for folder in path:
            for file in _files(module, Path(folder)):
                sources.setdefault(file.relative_to(folder).as_posix(), file)
    return sources


class ModuleFolder:
    """A temporary folder that is deleted with this object."""

    def __init__(self) -> None:
        scratch = ExitStack()
        self.folder = scratch.enter_context(scratch_folder("modules"))
        weakref.finalize(self, scratch.close)


def snapshot_of(files: Mapping[str, Path], scratch: Path) -> Snapshot:
    """Copy files to an empty folder under these relative paths, and return them as code.

    Raises:
        OSError: one cannot be read.
    """
    entries = []
    for relative, file in sorted(files.items()):
        copy = scratch / relative
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
        size = copy.stat().st_size
        entries.append(SnapshotEntry(path=relative, digest=digest_file(os.fspath(copy)), size=size))
    return Snapshot.of(scratch, entries, ())


def _files(module: ModuleType | None, folder: Path) -> Iterator[Path]:
    """The Python files of a top-level module or package that lies right below a folder."""
    own = getattr(module, "__file__", None)
    if own is not None and not own.endswith("__init__.py"):
        file = Path(own)
        if file.suffix == ".py" and file.parent == folder and not _installed(file):
            yield file
        return
    for place in getattr(module, "__path__", ()):  # more than one of a namespace
        package = Path(place)
        if package.parent == folder and not _installed(package):
            yield from (path for path in sorted(package.rglob("*.py")) if path.is_file())


def _installed(path: Path) -> bool:
    if _PACKAGES.intersection(path.parts):
        return True
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return any(path.is_relative_to(item) for name in names if (item := sysconfig.get_path(name)))
