"""References into a store: who needs which digests, and the lock of the store.

roots/<hex>.json   what one owner refers to: a state, or a saved plan
lock               shared by writers, exclusive for gc

A state is identified by its lineage, and its state store knows whether it still exists. The
modification time of a record is when its owner was last seen. A record is deleted when its owner
has been missing for `MISSING_SECONDS`: a project that was moved refers again, from its new place.
An owner that cannot be checked keeps its references: its disk may not be mounted, or it may belong
to another machine or a newer sgpu.

An older sgpu reads `owner` as a path, and deletes the record if nothing is there.
"""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sgpu_decl.agent.system.safe_files import private_folder
from sgpu_decl.atomic_files import wait_for_lock, write_atomic
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.owner import Owner, Presence
from sgpu_decl.model.step_progress import Progress
from sgpu_decl.system_errors import path_in_errors

MISSING_SECONDS = 30 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One record. `folders` are those above the owner's file, up to the root of its mount, each
    with a mark that tells it from another folder at the same path."""

    record: Path
    owner: Owner
    digests: frozenset[str]
    folders: tuple[tuple[str, str], ...]
    last_seen: float


class References:
    """The references into one store."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def refer(self, owner: Owner, digests: Collection[str]) -> None:
        """Record what `owner` refers to; replaces its earlier record."""
        roots = self._root / "roots"
        private_folder(roots)
        name = owner.path if owner.lineage is None else f"{owner.lineage} {owner.store}"
        path = roots / f"{hashlib.sha256(os.fsencode(name or '')).hexdigest()}.json"
        record: dict[str, Json] = {"owner": owner.path or os.fspath(path), "digests": [*digests]}
        if owner.lineage is not None:
            record |= {"lineage": owner.lineage, "store": owner.store}
        if owner.path is not None:
            record["folders"] = [list(folder) for folder in _folders(Path(owner.path))]
        write_atomic(path, canonical(record).encode())

    def referred(self, without: Collection[Path] = ()) -> set[str]:
        """The digests that any owner refers to, but for those of some records."""
        records = (item for item in self._all() if item.record not in without)
        return {digest for item in records for digest in item.digests}

    def gone(self, ask: Callable[[Owner], Presence], *, now: float) -> list[Path]:
        """The records of owners that have been missing for `MISSING_SECONDS`. Those of owners that
        are there are marked as seen.

        Args:
            ask: asks the store of a state whether that is there.
            now: seconds since the epoch.
        """
        gone = []
        for reference, presence in self._presences(ask):
            if presence is Presence.PRESENT:
                with contextlib.suppress(FileNotFoundError):
                    os.utime(reference.record)
            elif presence is Presence.MISSING and now - reference.last_seen > MISSING_SECONDS:
                gone.append(reference.record)
        return gone

    def absent_owners(self, ask: Callable[[Owner], Presence]) -> list[tuple[Reference, Presence]]:
        """The records with digests whose owner is missing or cannot be checked."""
        presences = self._presences(ask)
        return [
            (item, how) for item, how in presences if item.digests and how is not Presence.PRESENT
        ]

    def _presences(self, ask: Callable[[Owner], Presence]) -> list[tuple[Reference, Presence]]:
        references = self._all()
        renewed = {item.owner.path for item in references if item.owner.lineage is not None}
        return [(item, _presence(item, ask, renewed)) for item in references]

    def _all(self) -> list[Reference]:
        """Every record.

        Raises:
            SgpuError: one cannot be read, so its references are unknown.
            OSError: they cannot be listed.
        """
        references = []
        for path in sorted(json_files(self._root / "roots")):
            try:
                references.append(_reference(path, path.read_bytes(), path.stat().st_mtime))
            except FileNotFoundError:
                continue
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise SgpuError(
                    f"`{path}` cannot be read, so it is not known which objects a project needs",
                    hint="nothing was deleted; delete this file, then run `sgpu gc` in each "
                    "project to write it again",
                    code="store_record_damaged",
                ) from error
        return references

    def many(self, progress: Progress) -> contextlib.AbstractContextManager[None]:
        """Hold the lock for writing: many writers at once, and never beside gc. While one goes on,
        `progress` is told `collecting`, in seconds."""
        return self._lock(fcntl.LOCK_SH, progress)

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Hold the lock for gc: alone."""
        return self._lock(fcntl.LOCK_EX)

    @contextlib.contextmanager
    def _lock(self, how: int, progress: Progress | None = None) -> Iterator[None]:
        path = self._root / "lock"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with path_in_errors(path):
                if progress is None:
                    fcntl.flock(handle, how)
                else:
                    wait_for_lock(handle, how, partial(progress.advance, "collecting", total=0))
            yield
        finally:
            os.close(handle)


def json_files(folder: Path) -> list[Path]:
    """The records in a folder; none if it is missing. Raises OSError: it cannot be listed, which
    `Path.glob` takes for empty."""
    try:
        return [folder / name for name in os.listdir(folder) if name.endswith(".json")]
    except FileNotFoundError:
        return []


def _reference(record: Path, data: bytes, last_seen: float) -> Reference:
    """Parse a record; that of an older sgpu has only a path."""
    fields = json.loads(data)
    path, lineage = str(fields["owner"]), fields.get("lineage")
    if not isinstance(fields["digests"], list):
        raise TypeError("digests")
    return Reference(
        record=record,
        owner=Owner(
            path=None if path == os.fspath(record) else path,
            lineage=lineage,
            store=fields.get("store"),
        ),
        digests=frozenset(fields["digests"]),
        folders=tuple((folder, mark) for folder, mark in fields.get("folders", ())),
        last_seen=last_seen,
    )


def _presence(
    reference: Reference, ask: Callable[[Owner], Presence], renewed: Collection[str | None]
) -> Presence:
    owner = reference.owner
    if owner.lineage is not None:
        presence = ask(owner)
    elif reference.folders or owner.path not in renewed:
        presence = _file_presence(owner.path or "")
    else:
        return Presence.MISSING  # the state has a newer record beside that of an older sgpu
    if presence is Presence.MISSING and owner.path is not None and not _is_here(reference):
        return Presence.UNKNOWN
    return presence


def _file_presence(path: str) -> Presence:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return Presence.MISSING
    except OSError:
        return Presence.UNKNOWN
    return Presence.PRESENT


def _is_here(reference: Reference) -> bool:
    """Whether one of the folders above the file exists here, so that the file would be seen."""
    if not reference.folders:  # by an older sgpu: a plan can be made again, a state cannot
        return os.path.basename(reference.owner.path or "") != "state.db"
    for number, (folder, mark) in enumerate(reference.folders, 1):
        with contextlib.suppress(OSError):
            if _mark(folder, is_root=number == len(reference.folders)) == mark:
                return True
    return False


def _folders(path: Path) -> Iterator[tuple[str, str]]:
    """The folders above a file, up to the root of its mount."""
    above = [os.fspath(parent) for parent in path.absolute().parents]
    device = os.stat(above[0]).st_dev
    inside = [item for item in above if os.stat(item).st_dev == device]
    for folder in inside:
        yield folder, _mark(folder, is_root=folder == inside[-1])


def _mark(folder: str, *, is_root: bool) -> str:
    """An inode number; roots have the same one in all file systems, so they get more."""
    inode = str(os.stat(folder).st_ino)
    if not is_root:
        return inode
    return f"{inode} {os.statvfs(folder).f_fsid} {os.uname().nodename}"
