"""gc in a staging folder: launch folders, and shared objects that no launch needs."""

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sgpu_decl.agent.attempt.attempt_files import STATUS
from sgpu_decl.agent.system.safe_files import private_folder
from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.backends.remote.staging.lease import StaleLock, gc_lock, has_lease, is_locked
from sgpu_decl.backends.remote.staging.remote_layout import (
    BACK,
    LOGS,
    MARKER,
    Uses,
    uses_in,
    without_uses,
)
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from sgpu_decl.content.packs import BadPack, Index, index_name
from sgpu_decl.model.jsonable import Json
from sgpu_decl.places.file_place import FilePlace, PlaceMissing, folder_size
from sgpu_decl.system_errors import FULL

_LOOKS = 8  # at once
_LEFT = frozenset({BACK, LOGS, STATUS})  # what nodes and the program that starts them wrote
Key = Mapping[str, Json]


def unstage_launch(area: StagingArea, folder: str) -> None:
    """Delete what was staged in a launch folder; does nothing if it is gone. What the launch
    left stays, and can be read on all machines.

    Raises:
        BackendError: the storage refuses it.
    """
    _free_commands(area, folder)
    names = {item.name for item in area.files.list(folder)}
    if not names & _LEFT:
        area.files.delete(folder)
        return
    for name in sorted(names - _LEFT - {MARKER}):
        area.files.delete(f"{folder}/{name}")
    # Last: until then the launch counts as one that needs its objects.
    _clear_uses(area, f"{folder}/{MARKER}")


def _clear_uses(area: StagingArea, path: str) -> None:
    """Take the shared objects out of a marker. The rest stays: other machines know the launch by
    it."""
    try:
        marker = area.files.get(path)
    except PlaceMissing:
        marker = b""
    area.files.put(path, without_uses(marker))


def free_launch(area: StagingArea, folder: str) -> None:
    """Delete a launch folder with all that is in it. Raises BackendError."""
    _free_commands(area, folder)
    area.files.delete(folder)


def _free_commands(area: StagingArea, folder: str) -> None:
    """Delete the folder of the command where it is another one."""
    commands = area.layout.commands(folder)
    if commands != folder:
        area.command_files.delete(commands)


def collect(area: StagingArea) -> int | None:
    """Delete the shared objects that no launch folder needs, and launch folders that nobody
    submitted for a day; returns the bytes that were freed, or `None` where not all was looked at: a
    launch has a lease or is under way, or this process was frozen.

    Raises:
        BackendError: the storage does not answer, or refuses it.
    """
    try:
        with gc_lock(area) as refresh:
            return _delete_unused(area, refresh)
    except PlaceMissing:
        return 0  # nothing was ever shared
    except StaleLock:
        return None


def _delete_unused(area: StagingArea, refresh: Callable[[], None]) -> int | None:
    files, layout = area.files, area.layout
    folders: set[str] = set()
    uses: list[Uses] = []
    drafts: list[str] = []
    for launch in _launches(files, layout.runs, area.files.now()):
        refresh()
        if launch.draft:
            drafts.append(launch.folder)
            continue
        if launch.uses is None:
            return None
        folders.add(launch.folder)
        uses.append(launch.uses)
    environments = {item.environment for item in uses if item.environment is not None}
    needed = {
        layout.codes: {layout.code(item.code) for item in uses if item.code},
        layout.agents: {layout.agent(item.agent) for item in uses if item.agent},
    }
    packs = [_packs(files, layout.packs, environment) for environment in sorted(environments)]
    if None not in packs:  # else it is not known which packs are needed, and all stay
        needed[layout.packs] = {f"{layout.packs}/{name}" for names in packs for name in names or ()}
    # Asked last: a launch may have looked for its objects before this gc had its lock.
    if area.has_unseen_launch(folders):
        return None
    size = 0
    for folder in drafts:
        refresh()
        size += folder_size(files, folder)
        free_launch(area, folder)
    for folder, paths in needed.items():
        for item in files.list(folder):
            path = f"{folder}/{item.name}"
            if path not in paths and not item.folder and not is_locked(item, files.now):
                refresh()
                files.delete(path)
                size += item.size
    refresh()
    size += area.delete_copies()
    area.clear_cache()
    return size


@dataclass(frozen=True, slots=True)
class _Launch:
    """`uses` is None while it has a lease, or where another version wrote its marker. A draft was
    left by an apply that was killed before it submitted the launch."""

    folder: str
    uses: Uses | None = None
    draft: bool = False


def _launches(files: FilePlace, root: str, now: float) -> Iterator[_Launch]:
    """All launch folders that count: three levels below the root. `now` is by the clock of the
    files."""
    folders = [root]
    with ThreadPoolExecutor(_LOOKS, thread_name_prefix="look") as pool:
        for _ in range(3):
            listed = pool.map(files.list, folders)
            folders = [
                f"{folder}/{item.name}"
                for folder, entries in zip(folders, listed, strict=True)
                for item in entries
                if item.folder
            ]
        for folder, entries in zip(folders, pool.map(files.list, folders), strict=True):
            names = {item.name for item in entries}
            if has_lease(entries, now):
                yield _Launch(folder)
            elif MARKER in names:
                with suppress(PlaceMissing):  # somebody else freed it meanwhile
                    yield _Launch(folder, uses_in(files.get(f"{folder}/{MARKER}")))
            elif not names & _LEFT and any(not item.folder for item in entries):
                yield _Launch(folder, draft=True)


def _packs(files: FilePlace, folder: str, environment: str) -> list[str] | None:
    """The files that make an environment; None where its index does not say it."""
    try:
        data = files.get(f"{folder}/{index_name(environment)}")
        return Index.unchecked(data, environment).files
    except (PlaceMissing, BadPack):
        return None


class PendingGc:
    """Staging folders in which gc is due: while a launch has a lease nothing is deleted, and the
    next command tries again. It is a file in the folder of the state. A staging folder has a key by
    which its backend finds it again."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._unwritten: list[Key] = []  # by this process, on a disk that is full

    def add(self, key: Key) -> None:
        """Something is about to be deleted there."""
        try:
            with self._locked():
                pending = self._read()
                if key not in pending:
                    self._write((*pending, key))
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._unwritten.append(key)  # what is about to be deleted makes the room

    def all(self) -> tuple[Key, ...]:
        """Those where gc is due."""
        pending = self._read()
        return (*pending, *(key for key in self._unwritten if key not in pending))

    def remove(self, key: Key) -> None:
        """gc has run there."""
        self._unwritten = [item for item in self._unwritten if item != key]
        try:
            with self._locked():
                pending = self._read()
                if key in pending:
                    self._write(item for item in pending if item != key)
        except OSError as error:
            if error.errno not in FULL:  # else the next gc looks there in vain
                raise

    def _read(self) -> tuple[Key, ...]:
        """A power cut may have cut short what was written, and something else may have written."""
        try:
            pending = json.loads(self._file.read_bytes())
        except (FileNotFoundError, ValueError, RecursionError):
            return ()
        listed = pending if isinstance(pending, list) else ()
        return tuple(item for item in listed if isinstance(item, dict))

    def _write(self, keys: Iterable[Key]) -> None:
        pending = [dict(key) for key in keys]
        if not pending:
            self._file.unlink(missing_ok=True)
            return
        write_atomic(self._file, json.dumps(pending).encode())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from writing between a look and a write."""
        private_folder(self._file.parent)
        handle = os.open(self._file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)
