"""The default state store: one SQLite database per project and target."""

import os
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from sgpu_decl.errors import Locked, NotFound, StateError
from sgpu_decl.model.address import Address
from sgpu_decl.model.state import Attempt, LockHolder, State
from sgpu_decl.storing import querying
from sgpu_decl.storing.connecting import (
    backup_path,
    connect_reading,
    connect_writing,
    explained,
    is_ours,
    prepare,
)
from sgpu_decl.storing.liveness import mark_of_this_process, provably_dead
from sgpu_decl.storing.times import to_text
from sgpu_decl.storing.writing import SqliteWriter

__all__ = ["SqliteStore"]

_T = TypeVar("_T")
_TRIES = 5


class SqliteStore:
    """`path` is the database, `.sgpu/<target>/state.db`; nothing is made before the first lock.

    Every method may raise `StateError` (corrupt, foreign or newer), or `SgpuError` when the file
    cannot be reached.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> State | None:
        """The state as of one moment; `None` when nothing was ever applied."""
        return self._reading(querying.state_of)

    def read_all(self) -> tuple[State, tuple[Attempt, ...]] | None:
        """The state and every attempt in its history, as of one moment."""
        return self._reading(lambda it: (querying.state_of(it), querying.all_attempts(it)))

    def history(self, address: Address) -> tuple[Attempt, ...]:
        """Every attempt of a run, oldest first."""
        return self._reading(lambda it: querying.history_of(it, address)) or ()

    def holder(self) -> LockHolder | None:
        """Who holds the lock, a dead process included: the next `lock` finds that out."""
        found = self._reading(querying.holder_of)
        return found[0] if found else None

    @contextmanager
    def lock(self, operation: str, *, lineage: str) -> Iterator[SqliteWriter]:
        """Hold the state for writing; a database that is not there is made with `lineage`.

        Raises:
            Locked: a process that may be alive holds it.
        """
        with explained(self.path):
            connection = connect_writing(self.path)
        with closing(connection):
            with explained(self.path):
                prepare(connection, self.path, lineage=lineage)
                lock_id = _take(connection, operation)
            try:
                yield SqliteWriter(
                    connection,
                    path=self.path,
                    lock_id=lock_id,
                    before_first_write=lambda: _back_up(connection, self.path),
                )
            finally:
                with explained(self.path):
                    connection.execute("DELETE FROM lock WHERE id = ?", (lock_id,))

    def unlock(self, lock_id: str) -> None:
        """Break a lock by its id: its holder's next write fails.

        Raises:
            NotFound: that lock is not held.
        """
        held = self.holder()
        if held is None or held.id != lock_id:
            instead = f"; the lock that is held is `{held.id}`" if held else ""
            raise NotFound(
                f"no lock `{lock_id}` is held{instead}", hint="a command that is refused names it"
            )
        with explained(self.path), closing(connect_writing(self.path)) as connection:
            connection.execute("DELETE FROM lock WHERE id = ?", (lock_id,))

    def _reading(self, ask: Callable[[sqlite3.Connection], _T]) -> _T | None:
        with explained(self.path):
            for _ in range(_TRIES):
                before = _stamp(self.path)
                if before is None:
                    return None
                if before[0] == 0 and backup_path(self.path).exists():
                    raise StateError(
                        f"the state `{self.path}` is empty, and it was not before",
                        hint=f"copy `{backup_path(self.path)}` over it",
                    )
                try:
                    value = self._ask(ask)
                except (sqlite3.DatabaseError, ValueError):
                    # Not read in one piece because somebody wrote meanwhile? Then once more.
                    if _stamp(self.path) == before:
                        raise
                    continue
                if _stamp(self.path) == before:
                    return value
            return self._ask(ask)

    def _ask(self, ask: Callable[[sqlite3.Connection], _T]) -> _T | None:
        with closing(connect_reading(self.path)) as connection:
            connection.execute("BEGIN")
            if not is_ours(connection, self.path):
                return None
            return ask(connection)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


def _take(connection: sqlite3.Connection, operation: str) -> str:
    """Take the lock row, from a dead process too, and return its id."""
    mark = mark_of_this_process()
    lock_id = uuid.uuid4().hex[:12]
    connection.execute("BEGIN IMMEDIATE")
    try:
        held = querying.holder_of(connection)
        if held is not None and not provably_dead(held[1]):
            raise _locked(held[0])
        row = (
            1,
            lock_id,
            _who(),
            mark.host,
            mark.pid,
            mark.boot,
            mark.started,
            operation,
            to_text(datetime.now(UTC)),
        )
        connection.execute("INSERT OR REPLACE INTO lock VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    return lock_id


def _locked(holder: LockHolder) -> Locked:
    seconds = max(0, round((datetime.now(UTC) - holder.since).total_seconds()))
    age = f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
    return Locked(
        f"the state is locked by `{holder.operation}` of {holder.who} on {holder.host} "
        f"(process {holder.pid}, since {age})",
        hint=f"wait for it, or if that process is certainly gone: `sgpu state unlock {holder.id}`",
    )


def _who() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user in this container
        return f"uid {os.getuid()}"


def _back_up(connection: sqlite3.Connection, path: Path) -> None:
    """Copy the database as it was before this session's first write, in one file, replaced at
    once. A state without any record is not worth it."""
    _, serial = querying.serial_of(connection)
    if serial == 0:
        return
    draft = path.with_name(f"{path.name}.backup.{os.getpid()}")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(handle, 0o600)
        with closing(sqlite3.connect(draft, isolation_level=None)) as copy:
            connection.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a -wal beside it
            copy.execute("PRAGMA synchronous = OFF")  # synced below, at once
            copy.execute("DELETE FROM lock")
        os.fsync(handle)
        draft.replace(backup_path(path))
    finally:
        os.close(handle)
        draft.unlink(missing_ok=True)
