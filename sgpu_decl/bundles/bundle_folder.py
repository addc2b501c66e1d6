"""The folder `sgpu/` of a bundle, with the files that its jobs need at a launch.

    sgpu/.gitignore             git ignores all files but the rendered ones
    sgpu/jobs*.yml              what `sgpu bundle render` writes
    sgpu/index.json             which launches the folder has, and for which jobs
    sgpu/runs/, sgpu/objects/   launch folders and what they share: `backends/remote`

A deploy of the bundle deletes files from the workspace that are gone here. A launch that waits for
GPUs still needs its files then, so the files of the last calls stay.
"""

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.code.selection import RENDERED
from sgpu_decl.errors import SgpuError
from sgpu_decl.system_errors import error_text

FOLDER = "sgpu"
KEEP = 3
"""How many versions of the jobs keep their files, by default."""

_INDEX, _IGNORED = "index.json", ".gitignore"
_LAUNCHES, _OBJECTS = "runs", "objects"
_RENDERED = "jobs*.yml"
_IGNORE = f"# Written by sgpu.\n*\n!{_RENDERED}\n"
_SHOWN = 5


class BundleFolder:
    """The folder `sgpu` of one bundle. It need not exist."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def is_there(self) -> bool:
        return self._folder.exists()

    def refuse_foreign_files(self) -> None:
        """Refuse a folder in which somebody else keeps files.

        Raises:
            SgpuError: there are such files.
        """
        foreign = sorted(
            path.name
            for path in (self._folder.iterdir() if self._folder.is_dir() else ())
            if not self._is_ours(path)
        )
        if self._folder.exists() and not self._folder.is_dir():
            foreign = [self._folder.name]
        if foreign:
            names = ", ".join(f"`{name}`" for name in foreign[:_SHOWN])
            more = f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else ""
            raise SgpuError(
                f"sgpu keeps the files of the bundle's jobs in `{self._folder}`, and there are "
                f"files which sgpu did not write: {names}{more}",
                hint="move them to another folder",
                code="bundle_foreign_files",
            )

    def _is_ours(self, path: Path) -> bool:
        if path.match(_RENDERED):
            return path.is_file() and path.read_text(errors="replace").startswith(RENDERED)
        if path.name in (_LAUNCHES, _OBJECTS):
            return (self._folder / _INDEX).is_file()
        return path.name in (_INDEX, _IGNORED)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SgpuError(
                f"`{self._folder}` cannot be written: {error_text(error)}",
                hint="check who owns it, and whether the disk is full",
                code="unwritable",
            ) from error

    def make(self) -> None:
        """Have the folder there, as one of sgpu. Raises SgpuError: it cannot be written."""
        with self._explained():
            self._folder.mkdir(exist_ok=True)
            self._write(_IGNORED, _IGNORE)
            self._write_index(self._index())

    def keep(self, name: str, paths: Iterable[str], *, most: int) -> None:
        """Remember what was just staged, and delete what only older calls have staged.

        Args:
            name: for what: a target and its jobs.
            paths: launch folders and what they share, from this folder.
            most: so many different calls with that name count.

        Raises:
            SgpuError: the folder cannot be written.
        """
        kept: dict[str, list[list[str]]] = self._index()
        newest = sorted(set(paths))
        others = [one for one in kept.get(name, ()) if one != newest]
        kept[name] = [one for one in (newest, *others) if one][:most]
        with self._explained():
            self._write_index(kept)
            self._delete_but({path for calls in kept.values() for one in calls for path in one})

    def _index(self) -> dict[str, list[list[str]]]:
        try:
            index: dict[str, Any] = json.loads((self._folder / _INDEX).read_bytes())
            return dict(index["kept"])
        except (OSError, ValueError, KeyError, TypeError):
            return {}  # what is there is staged anew, or deleted

    def _write_index(self, kept: dict[str, list[list[str]]]) -> None:
        index = {"v": 1, "kept": {name: calls for name, calls in kept.items() if calls}}
        self._write(_INDEX, json.dumps(index, indent=1, sort_keys=True) + "\n")

    def _write(self, name: str, text: str) -> None:
        path = self._folder / name
        if not path.is_file() or path.read_text() != text:
            write_atomic(path, text.encode(), mode=0o666)

    def _delete_but(self, kept: set[str]) -> None:
        launches = self._folder / _LAUNCHES
        for launch in launches.glob("*/*/*"):
            if launch.relative_to(self._folder).as_posix() not in kept:
                shutil.rmtree(launch)
        for empty in (*launches.glob("*/*"), *launches.glob("*")):
            if not any(empty.iterdir()):
                empty.rmdir()
        for shared in (self._folder / _OBJECTS).glob("*/*"):
            if shared.relative_to(self._folder).as_posix() not in kept:
                shared.unlink()
