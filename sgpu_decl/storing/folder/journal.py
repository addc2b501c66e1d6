"""Entries as files of a folder that machines share, over NFS for instance.

    <path>/<project>/<target>/entries/000000000001.json
    <path>/<project>/<target>/checkpoints/000000000256.db.gz

A file is written under a name of its own, and then linked to its number. `link` is atomic on local
file systems and on NFS (RFC 1813, section 3.3.15), and fails where the name is taken. Times are
those that the file system gives to files, so they are the file server's.
"""

import errno
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from sgpu_decl.errors import SgpuError
from sgpu_decl.storing.folder.group_rights import make_shared_folder, share
from sgpu_decl.storing.journal.entry import digest
from sgpu_decl.storing.journal.port import JournalGap, Stored, StoreDown
from sgpu_decl.system_errors import advice, error_text

__all__ = ["MARKER", "FolderJournal"]

MARKER = ".sgpu-state"
_ENTRY = re.compile(r"([0-9]{12})\.json")
_CHECKPOINT = re.compile(r"([0-9]{12})\.db\.gz")
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_PASSING = {errno.EIO, errno.ETIMEDOUT, errno.ESTALE, errno.EAGAIN, errno.EINTR, errno.EBUSY}


class FolderJournal:
    """`path` is the folder of all projects. The file `MARKER` has to be in it, made by hand: where
    its file system is not mounted, a new state would begin in the mount point."""

    def __init__(self, path: Path, *, project: str, target: str) -> None:
        self._path = path
        self._project = project
        self._home = path / project / target
        self._entries = self._home / "entries"
        self._checkpoints = self._home / "checkpoints"

    @property
    def name(self) -> str:
        return os.fspath(self._path)

    def append(self, number: int, text: str, *, prev: str | None = None) -> datetime | None:
        if number > 1:
            self._require(number - 1, prev)
        return self._create(self._entries, f"{number:012}.json", text.encode("ascii"))

    def after(self, number: int, *, most: int | None = None) -> Sequence[Stored]:
        with self._explained():
            last = max(self._numbers(self._entries, _ENTRY), default=0)
            if most is not None:
                last = min(last, number + most)
            # By name: a list that is made while files are added may lack some.
            return [self._read(item) for item in range(number + 1, last + 1)]

    def checkpoint(self) -> tuple[int, bytes] | None:
        with self._explained():
            newest = max(self._numbers(self._checkpoints, _CHECKPOINT), default=None)
            if newest is None:
                return None
            return newest, (self._checkpoints / f"{newest:012}.db.gz").read_bytes()

    def put_checkpoint(self, number: int, data: bytes) -> None:
        self._create(self._checkpoints, f"{number:012}.db.gz", data)

    def now(self) -> datetime:
        """Asked with a new file. That also makes an NFS client look at the folder again, which
        otherwise knows its files for up to a minute."""
        with self._explained():
            make_shared_folder(self._entries, root=self._path)
            probe = self._entries / f".now-{os.urandom(6).hex()}"
            try:
                handle = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o660)
                try:
                    os.write(handle, b"\n")
                    os.fsync(handle)
                    return _time_of(os.fstat(handle))
                finally:
                    os.close(handle)
            finally:
                probe.unlink(missing_ok=True)

    def targets(self) -> tuple[str, ...]:
        with self._explained():
            homes = (self._path / self._project).glob("*/entries")
            found = (home.parent.name for home in homes if self._numbers(home, _ENTRY))
            return tuple(sorted(found))

    def of_target(self, target: str) -> "FolderJournal":
        return FolderJournal(self._path, project=self._project, target=target)

    def close(self) -> None:
        """There is no connection."""

    def _numbers(self, folder: Path, pattern: "re.Pattern[str]") -> list[int]:
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            return []
        return [int(match[1]) for name in names if (match := pattern.fullmatch(name))]

    def _read(self, number: int) -> Stored:
        try:
            file = (self._entries / f"{number:012}.json").open("rb")
        except FileNotFoundError as error:
            raise JournalGap(f"entry {number} is missing") from error
        with file:
            text = file.read().decode("ascii", "backslashreplace")
            return Stored(number=number, text=text, at=_time_of(os.fstat(file.fileno())))

    def _require(self, number: int, prev: str | None) -> None:
        """Entries that are missing now are lost: a file system that was unmounted, for instance."""
        with self._explained():
            try:
                found = self._read(number).text
            except JournalGap:
                found = None
            if found is not None and prev in (None, digest(found)):
                return
            if not (self._entries / f"{number + 1:012}.json").exists():
                raise JournalGap(f"entry {number} is missing, or is another one")

    def _create(self, folder: Path, name: str, data: bytes) -> datetime | None:
        """Add a file whole; None if one of that name is there."""
        with self._explained():
            make_shared_folder(folder, root=self._path)
            draft = folder / f".new-{os.urandom(6).hex()}"
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o660)
            try:
                with open(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    share(handle, 0o660, root=self._path)
                    os.fsync(handle)
                    at = _time_of(os.fstat(handle))
                try:
                    os.link(draft, folder / name)
                except FileExistsError:
                    return None
                _sync(folder)
                return at
            finally:
                with suppress(OSError):
                    draft.unlink()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            marker = self._path / MARKER
            if not marker.exists():
                folder, named = shlex.quote(os.fspath(self._path)), shlex.quote(os.fspath(marker))
                raise SgpuError(
                    f"`{self._path}` holds no shared state: `{marker}` is not there",
                    hint="is its file system mounted? For a first state: "
                    f"`mkdir -p {folder} && touch {named}`",
                    code="state_unreachable",
                )
            yield
        except OSError as error:
            raise self._error(error) from error

    def _error(self, error: OSError) -> SgpuError:
        what = f"the shared state in `{self._path}` cannot be used: {error_text(error)}"
        if error.errno in _PASSING:
            return StoreDown(what, hint="is the file server up? what was recorded still stands")
        if error.errno in _NO_LINKS and error.filename2 is not None:
            return SgpuError(
                f"the file system of `{self._path}` makes no hard links: a shared state needs them",
                hint="use a folder on NFS or on a local disk",
                code="state_unreachable",
            )
        return SgpuError(what, hint=advice(error), code="state_unreachable")


def _time_of(status: os.stat_result) -> datetime:
    return datetime.fromtimestamp(status.st_mtime, UTC)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
