"""Entries as files of a folder that machines share, over NFS for instance.

    <path>/<project>/<target>/entries/000000000001.json
    <path>/<project>/<target>/checkpoints/000000000256.db.gz
    <path>/<project>/<target>/compacted

A file is written under a name of its own, `.new-*`, and then linked to its number. `link` is atomic
on local file systems and on NFS (RFC 1813, section 3.3.15), and fails where the name is taken.
Times are those that the file system gives to files, so they are the file server's.

`compacted` holds the number up to which entries may have been deleted. It is written before they
are, so that none of these numbers is given again.
"""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from sgpu_decl.atomic_files import LEFT_AFTER, sync_folder
from sgpu_decl.errors import SgpuError
from sgpu_decl.storing.folder.shared_folder import SharedFolder
from sgpu_decl.storing.journal.entry import digest
from sgpu_decl.storing.journal.numbered_files import (
    checkpoint_name,
    checkpoint_number,
    entry_name,
    entry_number,
    entry_text,
    found_checkpoint,
)
from sgpu_decl.storing.journal.port import Compacted, JournalGap, Stored, StoreDown
from sgpu_decl.system_errors import advice, error_text

__all__ = ["FolderJournal"]

_DRAFT = re.compile(r"\.(new|now)-[0-9a-f]{12}")
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_PASSING = {
    errno.EAGAIN,
    errno.EBUSY,
    errno.EINTR,
    errno.EIO,
    errno.EROFS,  # after errors of the disk
    errno.ESTALE,
    errno.ETIMEDOUT,
}


class FolderJournal:
    """`path` is the folder of all projects, a `SharedFolder`."""

    def __init__(self, path: Path, *, project: str, target: str) -> None:
        self._path = path
        self._shared = SharedFolder(path)
        self._project = project
        self._home = path / project / target
        self._entries = self._home / "entries"
        self._checkpoints = self._home / "checkpoints"
        self._compacted = self._home / "compacted"

    @property
    def name(self) -> str:
        return os.fspath(self._path)

    def append(self, number: int, text: str, *, prev: str | None = None) -> datetime | None:
        if number > 1 and not self._is_next(number, prev):
            return None
        at = self._create(self._entries, entry_name(number), text.encode("ascii"))
        if at is None or number == 1:  # the first one is never deleted
            return at
        with self._explained():
            if number > self._dropped():
                return at
            # The number was taken meanwhile, and its entry deleted.
            self._file(number).unlink(missing_ok=True)
        return None

    def after(self, number: int, *, most: int | None = None) -> Sequence[Stored]:
        with self._explained():
            last = max(self._numbers(self._entries, entry_number), default=0)
            if most is not None:
                last = min(last, number + most)
            # By name: a list that is made while files are added may lack some.
            return [self._read(item) for item in range(number + 1, last + 1)]

    def checkpoint(self) -> tuple[int, bytes] | None:
        return self._checkpoint(max)

    def oldest_checkpoint(self) -> tuple[int, bytes] | None:
        return self._checkpoint(min)

    def put_checkpoint(self, number: int, data: bytes) -> bool:
        self._drop_old_drafts()
        return self._create(self._checkpoints, checkpoint_name(number), data) is not None

    def drop_before(self, number: int) -> None:
        self._drop_old_drafts()
        with self._explained():
            older = self._numbers(self._checkpoints, checkpoint_number)
            for item in sorted(item for item in older if item < number):
                self._checkpoint_file(item).unlink(missing_ok=True)
            draft = self._home / f".new-{os.urandom(6).hex()}"
            try:
                self._write(draft, str(max(number - 1, self._dropped())).encode("ascii"))
                draft.replace(self._compacted)
            finally:
                draft.unlink(missing_ok=True)
            sync_folder(self._home)
            entries = self._numbers(self._entries, entry_number)
            # In their order: whoever misses one finds none before it, and knows why.
            for item in sorted(item for item in entries if 1 < item < number):
                self._file(item).unlink(missing_ok=True)

    def now(self) -> datetime:
        """Asked with a new file. That also makes an NFS client look at the folder again, which
        otherwise knows its files for up to a minute."""
        with self._explained():
            self._shared.make(self._entries)
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

    def _drop_old_drafts(self) -> None:
        """Delete what killed processes have left half-written. Only the clock of the store says how
        old a file is."""
        oldest = (self.now() - LEFT_AFTER).timestamp()
        with self._explained():
            inside = (self._entries, self._checkpoints, self._home / "proposals")
            for folder in (*self._home.parents[:2], self._home, *inside):
                with suppress(FileNotFoundError), os.scandir(folder) as found:
                    for item in found:
                        with suppress(FileNotFoundError, PermissionError):  # of another user
                            if _DRAFT.fullmatch(item.name) and item.stat().st_mtime < oldest:
                                (shutil.rmtree if item.is_dir() else os.unlink)(item.path)

    def targets(self) -> tuple[str, ...]:
        with self._explained():
            homes = (self._path / self._project).glob("*/entries")
            found = (home.parent.name for home in homes if self._numbers(home, entry_number))
            return tuple(sorted(found))

    def of_target(self, target: str) -> "FolderJournal":
        return FolderJournal(self._path, project=self._project, target=target)

    def close(self) -> None:
        """There is no connection."""

    def _numbers(self, folder: Path, number_of: Callable[[str], int | None]) -> list[int]:
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            return []
        return [number for name in names if (number := number_of(name)) is not None]

    def _file(self, number: int) -> Path:
        return self._entries / entry_name(number)

    def _checkpoint_file(self, number: int) -> Path:
        return self._checkpoints / checkpoint_name(number)

    def _checkpoint(self, choose: Callable[[Iterable[int]], int]) -> tuple[int, bytes] | None:
        def read(number: int) -> bytes | None:
            with suppress(FileNotFoundError):
                return self._checkpoint_file(number).read_bytes()
            return None

        with self._explained():
            numbers = self._numbers(self._checkpoints, checkpoint_number)
            return found_checkpoint(numbers, choose, read)

    def _dropped(self) -> int:
        """The number up to which entries may have been deleted."""
        try:
            return int(self._compacted.read_bytes())
        except FileNotFoundError:
            return 0
        except ValueError as error:
            raise SgpuError(
                f"`{self._compacted}` holds no number",
                hint="nothing was changed; restore the store from its backup",
                code="state_unusable",
            ) from error

    def _missing(self, number: int) -> JournalGap:
        """The error for an entry that is not there."""
        there = self._numbers(self._entries, entry_number)
        later = min((item for item in there if item > number), default=None)
        if later is None or any(1 < item < number for item in there):
            return JournalGap(f"entry {number} is missing")
        return Compacted(self.name, later)

    def _read(self, number: int) -> Stored:
        try:
            file = self._file(number).open("rb")
        except FileNotFoundError as error:
            raise self._missing(number) from error
        with file:
            text = entry_text(file.read())
            return Stored(number=number, text=text, at=_time_of(os.fstat(file.fileno())))

    def _is_next(self, number: int, prev: str | None) -> bool:
        """Whether an entry may be added; false if its number was taken before. Entries that are
        missing now are lost: a file system that was unmounted, for instance."""
        with self._explained():
            try:
                before = self._read(number - 1).text
            except JournalGap:
                before = None
            if before is not None and prev in (None, digest(before)):
                return True
            if max(self._numbers(self._entries, entry_number), default=0) >= number:
                return False
            raise JournalGap(f"entry {number - 1} is missing, or is another one")

    def _create(self, folder: Path, name: str, data: bytes) -> datetime | None:
        """Add a file whole; None if one of that name is there."""
        with self._explained():
            self._shared.make(folder)
            draft = folder / f".new-{os.urandom(6).hex()}"
            try:
                at = self._write(draft, data)
                try:
                    os.link(draft, folder / name)
                except FileExistsError:
                    return None
                sync_folder(folder)
                return at
            finally:
                with suppress(OSError):
                    draft.unlink()

    def _write(self, draft: Path, data: bytes) -> datetime:
        """Write a new file whole; returns its time."""
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o660)
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            self._shared.share_file(handle)
            os.fsync(handle)
            return _time_of(os.fstat(handle))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            self._shared.require()
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
