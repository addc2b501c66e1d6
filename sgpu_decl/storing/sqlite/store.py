"""The default state store: one SQLite database per project and target."""

import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sgpu_decl.errors import Locked, NotFound, SgpuError, StateError
from sgpu_decl.model.address import Address
from sgpu_decl.model.state import Attempt, LockHolder, State
from sgpu_decl.model.times import to_text
from sgpu_decl.storing.sqlite import queries
from sgpu_decl.storing.sqlite.database import (
    backup_path,
    complete_attempts,
    connect_reading,
    connect_writing,
    explained,
    is_ours,
    prepare,
    unusable,
)
from sgpu_decl.storing.state_store import AT_ONCE, Patience
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
            serial = self._reading(queries.serial_of)
        except SgpuError:
            return Presence.UNKNOWN
        if serial is None or serial[0] != lineage:
            return Presence.MISSING
        return Presence.PRESENT

    def read(self) -> State | None:
        return self._reading(queries.state_of)

    def read_all(self) -> tuple[State, tuple[Attempt, ...]] | None:
        return self._reading(lambda item: (queries.state_of(item), queries.all_attempts(item)))

    def history(self, address: Address) -> tuple[Attempt, ...]:
        return self._reading(lambda item: queries.history_of(item, address)) or ()

    def check(self) -> None:
        answer = self._reading(lambda item: item.execute("PRAGMA quick_check(1)").fetchone())
        if answer is not None and answer != ("ok",):
            raise unusable(self.path, f"is corrupt: {answer[0]}")

    def abandoned_lock(self) -> LockHolder | None:
        from sgpu_decl.storing.sqlite.liveness import provably_dead

        lock = self._reading(queries.holder_of)
        return lock[0] if lock is not None and provably_dead(lock[1]) else None

    def holder(self) -> LockHolder | None:
        lock = self._reading(queries.holder_of)
        return lock[0] if lock else None

    @contextmanager
    def lock(
        self, operation: str, *, lineage: str, patience: Patience = AT_ONCE
    ) -> "Iterator[SqliteWriter]":
        from sgpu_decl.storing.sqlite.writer import SqliteWriter

        connection, lock_id = self._locked(operation, lineage, patience)
        with closing(connection):
            try:
                yield SqliteWriter(
                    connection,
                    path=self.path,
                    lock_id=lock_id,
                    before_first_write=lambda: _back_up(connection, self.path),
                )
            finally:
                self._release(connection, lock_id)

    def close(self) -> None:
        """Each call opens a connection of its own and closes it."""

    def _release(self, connection: sqlite3.Connection, lock_id: str) -> None:
        """Release a lock. If the disk refuses that, the next `lock` of this store does it, or
        another process that sees that this one has ended. All that was written under the lock is
        kept."""
        try:
            with explained(self.path):
                connection.execute("DELETE FROM lock WHERE id = ?", (lock_id,))
        except SgpuError:
            self._unreleased = lock_id

    def _locked(
        self, operation: str, lineage: str, patience: Patience
    ) -> tuple[sqlite3.Connection, str]:
        """A connection, and the id of the lock that it holds."""
        deadline: float | None = None  # a slow first look takes nothing from the patience
        while True:
            try:
                with ExitStack() as opened, explained(self.path):
                    connection = opened.enter_context(closing(connect_writing(self.path)))
                    prepare(connection, self.path, lineage=lineage)
                    lock_id = _take(connection, operation, unreleased=self._unreleased)
                    opened.pop_all()
                    return connection, lock_id
            except Locked as refused:
                now = time.monotonic()
                deadline = now + patience.seconds if deadline is None else deadline
                if now >= deadline:
                    raise
                patience.on_wait(refused)
                time.sleep(min(deadline - now, _LOOK_AGAIN))

    def unlock(self, lock_id: str) -> None:
        holder = self.holder()
        if holder is None or holder.id != lock_id:
            instead = f"; the lock that is held is `{holder.id}`" if holder else ""
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
            complete_attempts(connection)
            return ask(connection)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def _take(connection: sqlite3.Connection, operation: str, *, unreleased: str | None) -> str:
    """Take the lock row and return its id, if it is free, held by a dead process, or the lock
    `unreleased`, which this store could not release."""
    from sgpu_decl.storing.sqlite.liveness import mark_of_this_process, provably_dead

    mark = mark_of_this_process()
    lock_id = uuid.uuid4().hex[:12]
    connection.execute("BEGIN IMMEDIATE")
    try:
        lock = queries.holder_of(connection)
        if lock is not None and lock[0].id != unreleased and not provably_dead(lock[1]):
            raise _refused(lock[0])
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


def _refused(holder: LockHolder) -> Locked:
    seconds = max(0, round((datetime.now(UTC) - holder.since).total_seconds()))
    age = f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
    return Locked(
        f"the state is locked by `{holder.operation}` of {holder.who} on {holder.host} "
        f"(process {holder.pid}, since {age})",
        hint="wait longer with `--lock-timeout`, or if that process is certainly gone: "
        f"`sgpu state unlock {holder.id}`",
        lock=holder.id,
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
    _, serial = queries.serial_of(connection)
    if serial == 0:
        return
    draft = path.with_name(f"{path.name}.backup.{os.getpid()}")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with path_in_errors(draft):
            os.fchmod(handle, 0o600)
        with closing(sqlite3.connect(draft, isolation_level=None)) as copy:
            connection.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a -wal beside it
            copy.execute("PRAGMA synchronous = OFF")  # synced below, at once
            copy.execute("DELETE FROM lock")
        with path_in_errors(draft):
            os.fsync(handle)
        draft.replace(backup_path(path))
    finally:
        os.close(handle)
        draft.unlink(missing_ok=True)
