"""Who refers to what a store holds, and who may sweep it.

roots/<hex>.json   what one owner refers to: a state, or a saved plan
lock               shared by those who put, for the one alone who sweeps

A state is known by its lineage, and its own store says whether it is still there. The time of a
record is when its owner was last seen. A record goes when its owner has been missing for
`MISSING_SECONDS`: a project that was moved refers again, from where it is now. An owner that
cannot be looked for here keeps what it needs: its disk may not be mounted, it may be another
machine's, or of a newer sgpu.

An older sgpu takes `owner` for a path, and drops the record if nothing is there.
"""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.owner import Owner, Presence
from sgpu_decl.system_errors import path_in_errors

__all__ = ["MISSING_SECONDS", "Reference", "References"]

MISSING_SECONDS = 30 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One record. `folders` are those that held the owner's file, from the file up to the root of
    its mount, each with what tells it from another one at the same path."""

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
        """Say what `owner` refers to; replaces what it said before."""
        roots = self._root / "roots"
        roots.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = owner.path if owner.lineage is None else f"{owner.lineage} {owner.store}"
        path = roots / f"{hashlib.sha256(os.fsencode(name or '')).hexdigest()}.json"
        record: dict[str, Json] = {"owner": owner.path or os.fspath(path), "digests": [*digests]}
        if owner.lineage is not None:
            record |= {"lineage": owner.lineage, "store": owner.store}
        if owner.path is not None:
            record["folders"] = [list(folder) for folder in _folders(Path(owner.path))]
        write_atomic(path, canonical(record).encode())

    def referred(self) -> set[str]:
        """What any owner refers to."""
        return {digest for item in self._all() for digest in item.digests}

    def forget_gone(self, ask: Callable[[Owner], Presence], *, now: float) -> None:
        """Delete the records of owners that have been missing for long.

        Args:
            ask: asks the store of a state whether that is there.
            now: seconds since the epoch.
        """
        for reference, presence in self._presences(ask):
            if presence is Presence.PRESENT:
                with contextlib.suppress(FileNotFoundError):
                    os.utime(reference.record)
            elif presence is Presence.MISSING and now - reference.last_seen > MISSING_SECONDS:
                reference.record.unlink(missing_ok=True)

    def absent_owners(self, ask: Callable[[Owner], Presence]) -> list[tuple[Reference, Presence]]:
        """The records whose owner is missing, or cannot be looked for; those that matter."""
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
            SgpuError: one cannot be read, so that what it keeps is not known.
        """
        references = []
        for path in sorted((self._root / "roots").glob("*.json")):
            try:
                references.append(_reference(path, path.read_bytes(), path.stat().st_mtime))
            except FileNotFoundError:
                continue
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise SgpuError(
                    f"`{path}` cannot be read: which project needs what of the store is not known",
                    hint="nothing was deleted; delete this file, then `sgpu gc` in each project "
                    "writes its own again",
                    code="store_record_damaged",
                ) from error
        return references

    def many(self) -> contextlib.AbstractContextManager[None]:
        """Many may put at once; nobody puts while objects are swept."""
        return self._held(fcntl.LOCK_SH)

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Sweep while nobody puts."""
        return self._held(fcntl.LOCK_EX)

    @contextlib.contextmanager
    def _held(self, how: int) -> Iterator[None]:
        path = self._root / "lock"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with path_in_errors(path):
                fcntl.flock(handle, how)
            yield
        finally:
            os.close(handle)


def _reference(record: Path, data: bytes, last_seen: float) -> Reference:
    """A record; one of an older sgpu has only a path."""
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
        return Presence.MISSING  # an older sgpu's record of a state that has a newer one
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
    """Whether one of the folders that held a file is seen here, so that the file would be."""
    if not reference.folders:  # of an older sgpu: a plan can be made again, a state cannot
        return os.path.basename(reference.owner.path or "") != "state.db"
    for number, (folder, mark) in enumerate(reference.folders, 1):
        with contextlib.suppress(OSError):
            if _mark(folder, is_root=number == len(reference.folders)) == mark:
                return True
    return False


def _folders(path: Path) -> Iterator[tuple[str, str]]:
    """The folders above a file as far as its mount goes."""
    above = [os.fspath(parent) for parent in path.absolute().parents]
    device = os.stat(above[0]).st_dev
    inside = [item for item in above if os.stat(item).st_dev == device]
    for folder in inside:
        yield folder, _mark(folder, is_root=folder == inside[-1])


def _mark(folder: str, *, is_root: bool) -> str:
    """Inode numbers differ between file systems, but for those of their roots."""
    inode = str(os.stat(folder).st_ino)
    if not is_root:
        return inode
    return f"{inode} {os.statvfs(folder).f_fsid} {os.uname().nodename}"
