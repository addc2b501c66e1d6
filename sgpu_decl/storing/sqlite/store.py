"""The default state store: one SQLite database per project and target."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sgpu_decl.errors import SgpuError
from sgpu_decl.model.address import Address
from sgpu_decl.model.state import Attempt, LockHolder, State
from sgpu_decl.storing.sqlite import queries
from sgpu_decl.storing.sqlite.database import (
    backup_path,
    complete_attempts,
    connect_reading,
    connect_writing,
    emptied,
    explained,
    is_ours,
    prepare,
    refuse_migrated,
    unusable,
)
from sgpu_decl.storing.state_store import AT_ONCE, Patience, until_free
from sgpu_decl.system_errors import path_in_errors

if TYPE_CHECKING:
    from sgpu_decl.model.owner import Presence
    from sgpu_decl.storing.sqlite.writer import SqliteWriter

SCHEME = "sqlite"

_T = TypeVar("_T")
_TRIES = 5
_LOOK_AGAIN = 0.05  # seconds between two looks at a lock that is held


class SqliteStore:
    """`path` is the database, `.sgpu/<target>/state.db`; nothing is made before the first lock.
    `StateStore` says what each call promises."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unreleased: str | None = None

    @property
    def url(self) -> str:
        return f"{SCHEME}:{self.path.absolute()}"

    @property
    def file(self) -> Path | None:
        return self.path.absolute()

    def targets(self) -> tuple[str, ...]:
        files = self.path.parent.parent.glob(f"*/{self.path.name}")
        return tuple(sorted(item.parent.name for item in files))

    def of_target(self, target: str) -> "SqliteStore":
        return SqliteStore(self.path.parent.with_name(target) / self.path.name)

    def presence(self, lineage: str) -> "Presence":
        from sgpu_decl.model.owner import Presence

        try:
            serial = self.reading(queries.serial_of)
        except SgpuError:
            return Presence.UNKNOWN
        if serial is None or serial[0] != lineage:
            return Presence.MISSING
        return Presence.PRESENT

    def last_read(self) -> None:
        return None

    def read(self) -> State | None:
        return self.reading(queries.state_of)

    def read_all(self) -> tuple[State, tuple[Attempt, ...]] | None:
        return self.reading(queries.everything_of)

    def history(self, address: Address) -> tuple[Attempt, ...]:
        return self.reading(lambda item: queries.history_of(item, address)) or ()

    def log(self, most: int) -> None:  # noqa: ARG002  the protocol's
        return None

    def applied_plans(self) -> tuple[str, ...]:
        """The ids of all plans that were applied."""
        return self.reading(queries.applied_plans_of) or ()

    def read_past(self, number: int) -> None:  # noqa: ARG002  the protocol's
        return None

    def check(self) -> None:
        answer = self.reading(lambda item: item.execute("PRAGMA quick_check(1)").fetchone())
        if answer is not None and answer != ("ok",):
            raise unusable(self.path, f"is corrupt: {answer[0]}")

    def abandoned_lock(self) -> LockHolder | None:
        from sgpu_decl.storing.sqlite.liveness import provably_dead

        lock = self.reading(queries.holder_of)
        return lock[0] if lock is not None and provably_dead(lock[1]) else None

    def holder(self) -> LockHolder | None:
        lock = self.reading(queries.holder_of)
        return lock[0] if lock else None

    @contextmanager
    def lock(
        self, operation: str, *, lineage: str, patience: Patience = AT_ONCE
    ) -> "Iterator[SqliteWriter]":
        from sgpu_decl.storing.sqlite.lock_row import check_lock
        from sgpu_decl.storing.sqlite.writer import SqliteWriter

        connection, lock_id = self._locked(operation, lineage, patience)
        with closing(connection):
            try:
                yield SqliteWriter(
                    connection,
                    path=self.path,
                    check=lambda: check_lock(connection, lock_id),
                    before_first_write=lambda: _back_up(connection, self.path),
                )
            finally:
                self._release(connection, lock_id)

    def move_to(self, path: Path) -> None:
        """Give the database another name, while its lock is held by the caller. A crash in between
        loses nothing: all that was written is in the database before."""
        with explained(self.path):
            with closing(connect_writing(self.path)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            for end in ("", "-wal", "-shm"):
                with suppress(FileNotFoundError):
                    Path(f"{self.path}{end}").rename(f"{path}{end}")

    def close(self) -> None:
        """Each call opens a connection of its own and closes it."""

    def _release(self, connection: sqlite3.Connection, lock_id: str) -> None:
        """Release a lock. If the disk refuses that, the next `lock` of this store does it, or
        another process that sees that this one has ended. All that was written under the lock is
        kept."""
        from sgpu_decl.storing.sqlite.lock_row import delete_lock

        try:
            with explained(self.path):
                delete_lock(connection, lock_id)
        except SgpuError:
            self._unreleased = lock_id

    def _locked(
        self, operation: str, lineage: str, patience: Patience
    ) -> tuple[sqlite3.Connection, str]:
        """A connection, and the id of the lock that it holds."""
        from sgpu_decl.storing.sqlite.lock_row import take

        def attempt() -> tuple[sqlite3.Connection, str]:
            refuse_migrated(self.path)
            with ExitStack() as opened, explained(self.path):
                connection = opened.enter_context(closing(connect_writing(self.path)))
                prepare(connection, self.path, lineage=lineage)
                lock_id = take(connection, operation, unreleased=self._unreleased)
                refuse_migrated(self.path)  # once more: maybe it was, before its lock was free
                opened.pop_all()
                return connection, lock_id

        return until_free(attempt, patience, pause=_LOOK_AGAIN)

    def unlock(self, lock_id: str) -> None:
        from sgpu_decl.storing.sqlite.lock_row import delete_lock, no_such_lock

        holder = self.holder()
        if holder is None or holder.id != lock_id:
            raise no_such_lock(lock_id, holder)
        with explained(self.path), closing(connect_writing(self.path)) as connection:
            delete_lock(connection, lock_id)

    def reading(self, ask: Callable[[sqlite3.Connection], _T]) -> _T | None:
        """What `ask` reads from the database, as of one moment; None where there is none."""
        with explained(self.path):
            for _ in range(_TRIES):
                before = _stamp(self.path)
                if before is None:
                    return None
                if before[0] == 0 and backup_path(self.path).exists():
                    raise emptied(self.path)
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
            complete_attempts(connection)
            return ask(connection)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def _back_up(connection: sqlite3.Connection, path: Path) -> None:
    """Copy the database as it was before this session's first write, in one file, replaced at
    once. A state without any record is not worth it."""
    _, serial = queries.serial_of(connection)
    if serial == 0:
        return
    for left in path.parent.glob(f"{path.name}.backup.*"):  # by sessions that were killed
        left.unlink(missing_ok=True)
    draft = path.with_name(f"{path.name}.backup.{os.getpid()}")
    handle = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with path_in_errors(draft):
            os.fchmod(handle, 0o600)
        with closing(sqlite3.connect(draft, isolation_level=None)) as copy:
            copy.execute("PRAGMA synchronous = OFF")  # synced below, at once
            connection.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a -wal beside it
            copy.execute("DELETE FROM lock")
        with path_in_errors(draft):
            os.fsync(handle)
        draft.replace(backup_path(path))
    finally:
        os.close(handle)
        draft.unlink(missing_ok=True)
