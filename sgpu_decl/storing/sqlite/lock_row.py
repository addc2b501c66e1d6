"""The row that says who holds the lock of a state."""

import sqlite3
import uuid
from datetime import UTC, datetime

from sgpu_decl.errors import Locked, NotFound
from sgpu_decl.model.state import LockHolder
from sgpu_decl.model.times import to_text
from sgpu_decl.storing.sqlite import queries
from sgpu_decl.storing.sqlite.database import transaction
from sgpu_decl.storing.sqlite.liveness import mark_of_this_process, provably_dead
from sgpu_decl.storing.sqlite.rows import Cell
from sgpu_decl.storing.state_store import user_name

LOCK_COLUMNS = ("id", "who", "host", "pid", "boot", "started", "operation", "since")


def new_lock(operation: str) -> dict[str, Cell]:
    """The cells, by `LOCK_COLUMNS`, of a lock that this process takes now."""
    mark = mark_of_this_process()
    return {
        "id": uuid.uuid4().hex[:12],
        "who": user_name(),
        "host": mark.host,
        "pid": mark.pid,
        "boot": mark.boot,
        "started": mark.started,
        "operation": operation,
        "since": to_text(datetime.now(UTC)),
    }


def put_lock(connection: sqlite3.Connection, lock: dict[str, Cell]) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO lock VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?)",
        tuple(lock[name] for name in LOCK_COLUMNS),
    )


def delete_lock(connection: sqlite3.Connection, lock_id: str) -> None:
    connection.execute("DELETE FROM lock WHERE id = ?", (lock_id,))


def take(connection: sqlite3.Connection, operation: str, *, unreleased: str | None) -> str:
    """Take the lock row and return its id, if it is free, held by a dead process, or the lock
    `unreleased`, which this store could not release."""
    mine = new_lock(operation)
    with transaction(connection):
        lock = queries.holder_of(connection)
        if lock is not None and lock[0].id != unreleased and not provably_dead(lock[1]):
            raise _refused(lock[0])
        put_lock(connection, mine)
    return str(mine["id"])


def check_lock(connection: sqlite3.Connection, lock_id: str) -> None:
    """Check that the lock is held still, by that id.

    Raises:
        Locked: it is not (`lock_lost`).
    """
    lock = queries.holder_of(connection)
    if lock is not None and lock[0].id == lock_id:
        return
    holder = lock[0] if lock else None
    now = f"`{holder.operation}` of {holder.who} holds it" if holder else "it was unlocked by hand"
    raise Locked(
        f"this process lost the state lock: {now}",
        hint="nothing more was recorded; run `sgpu plan` again",
        code="lock_lost",
    )


def _refused(holder: LockHolder) -> Locked:
    seconds = max(0, round((datetime.now(UTC) - holder.since).total_seconds()))
    age = f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
    return held_error(holder, f"since {age}")


def held_error(holder: LockHolder, since: str) -> Locked:
    """The error for a lock that another process holds, with how long it has held it."""
    return Locked(
        f"the state is locked by `{holder.operation}` of {holder.who} on {holder.host} "
        f"(process {holder.pid}, {since})",
        hint="wait longer with `--lock-timeout`, or if that process is certainly gone: "
        f"`sgpu state unlock {holder.id}`",
        lock=holder.id,
    )


def no_such_lock(lock_id: str, holder: LockHolder | None) -> NotFound:
    """The error for an id that is not that of `holder`."""
    instead = f"; the lock that is held is `{holder.id}`" if holder else ""
    return NotFound(
        f"no lock `{lock_id}` is held{instead}", hint="a command that is refused names it"
    )
