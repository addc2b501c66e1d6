"""How far the tables of a replica go, and what decides who may append the next entry."""

import os
import sqlite3
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.project_home import ProjectHome
from sgpu_decl.model.state import LockHolder
from sgpu_decl.model.times import from_text, to_text
from sgpu_decl.storing.journal.entry import NO_ENTRY
from sgpu_decl.storing.sqlite import queries
from sgpu_decl.storing.sqlite.database import transaction
from sgpu_decl.storing.sqlite.rows import ATTEMPT_COLUMNS, INTENT_COLUMNS

if TYPE_CHECKING:
    from sgpu_decl.storing.sqlite.liveness import ProcessMark


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The last entry that the tables hold. `at` is the time of the store when it was appended."""

    number: int
    digest: str
    at: datetime | None


COLUMNS = " ".join((*ATTEMPT_COLUMNS, *INTENT_COLUMNS))
"""The columns that this sgpu fills from entries. Another version may have fewer."""

NOTHING = Position(number=0, digest=NO_ENTRY, at=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """One moment of a replica. `seconds` is the lease of the lock."""

    position: Position = NOTHING
    lineage: str | None = None
    serial: int = 0
    lock: "tuple[LockHolder, ProcessMark] | None" = None
    seconds: float = 0.0


_HOME = (
    "CREATE TABLE IF NOT EXISTS home (one INTEGER PRIMARY KEY CHECK (one = 1), "
    "repository TEXT NOT NULL, folder TEXT NOT NULL)"
)


def make_table(connection: sqlite3.Connection) -> None:
    connection.execute(_HOME)
    connection.execute(
        "CREATE TABLE IF NOT EXISTS journal (one INTEGER PRIMARY KEY CHECK (one = 1), "
        "number INTEGER NOT NULL, digest TEXT NOT NULL, at TEXT, seconds REAL NOT NULL, "
        "columns TEXT NOT NULL)"
    )
    if is_whole(connection) is None:
        # Another process may be making the table at this moment, and be faster.
        connection.execute(
            "INSERT INTO journal VALUES (1, 0, ?, NULL, 0, ?) ON CONFLICT DO NOTHING",
            (NO_ENTRY, COLUMNS),
        )


def is_whole(connection: sqlite3.Connection) -> bool | None:
    """Whether the tables keep what this sgpu keeps of the entries; None if they hold none yet."""
    names = [row[1] for row in connection.execute("PRAGMA table_info(journal)")]
    wanted = "columns" if "columns" in names else "NULL"
    row = connection.execute(f"SELECT {wanted} FROM journal").fetchone() if names else None  # noqa: S608
    return None if row is None else row[0] == COLUMNS


def empty(connection: sqlite3.Connection) -> None:
    """Delete all that was made of entries. The caller has begun a transaction."""
    named = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    for (name,) in named:
        if name not in ("meta", "journal") and not name.startswith("sqlite_"):
            connection.execute(f'DELETE FROM "{name}"')  # noqa: S608
    connection.execute("UPDATE meta SET serial = 0")
    connection.execute("DROP TABLE journal")
    make_table(connection)


def fill_from(connection: sqlite3.Connection, draft: Path, *, expected: Position) -> None:
    """Put the tables of a database into those of a connection, in one transaction, unless these go
    further than `expected` meanwhile. What an older sgpu has no column for is null."""
    connection.execute("ATTACH DATABASE ? AS draft", (os.fspath(draft),))
    try:
        with transaction(connection):
            if position_of(connection) == expected:
                empty(connection)
                _copy_tables(connection)
    finally:
        with suppress(sqlite3.Error):
            connection.execute("DETACH DATABASE draft")


def _copy_tables(connection: sqlite3.Connection) -> None:
    for table in ("meta", "journal"):
        connection.execute(f"DELETE FROM main.{table}")  # noqa: S608
    named = connection.execute("SELECT name FROM draft.sqlite_schema WHERE type = 'table'")
    for (table,) in named.fetchall():
        if table.startswith("sqlite_"):
            continue
        kept = _columns(connection, "main", table) & _columns(connection, "draft", table)
        if not kept:
            continue  # a newer sgpu has this table
        names = ", ".join(f'"{name}"' for name in sorted(kept))
        copy = f'INSERT INTO main."{table}" ({names}) SELECT {names} FROM draft."{table}"'  # noqa: S608
        connection.execute(copy)
    connection.execute("UPDATE main.journal SET columns = ?", (COLUMNS,))


def _columns(connection: sqlite3.Connection, schema: str, table: str) -> frozenset[str]:
    rows = connection.execute(f'PRAGMA {schema}.table_info("{table}")')
    return frozenset(str(row[1]) for row in rows)


def position_of(connection: sqlite3.Connection) -> Position:
    made = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'journal'").fetchone()
    row = connection.execute("SELECT number, digest, at FROM journal").fetchone() if made else None
    if row is None or row[0] == 0:
        return NOTHING
    return Position(number=row[0], digest=row[1], at=from_text(row[2]))


def home_of(connection: sqlite3.Connection) -> ProjectHome | None:
    """The repository and the folder that the state belongs to, if that was recorded."""
    made = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'home'").fetchone()
    row = connection.execute("SELECT repository, folder FROM home").fetchone() if made else None
    return None if row is None else ProjectHome(repository=row[0], folder=row[1])


def put_home(connection: sqlite3.Connection, home: ProjectHome) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO home VALUES (1, ?, ?)", (home.repository, home.folder)
    )


def head_of(connection: sqlite3.Connection) -> Head:
    position = position_of(connection)
    if position is NOTHING:
        return Head()
    lineage, serial = queries.serial_of(connection)
    (seconds,) = connection.execute("SELECT seconds FROM journal").fetchone()
    return Head(
        position=position,
        lineage=lineage,
        serial=serial,
        lock=queries.holder_of(connection),
        seconds=seconds,
    )


def put_position(connection: sqlite3.Connection, position: Position, *, tool_version: str) -> None:
    connection.execute(
        "UPDATE journal SET number = ?, digest = ?, at = ?",
        (position.number, position.digest, to_text(position.at)),
    )
    connection.execute("UPDATE meta SET tool_version = ?", (tool_version,))


def put_seconds(connection: sqlite3.Connection, seconds: float) -> None:
    connection.execute("UPDATE journal SET seconds = ?", (seconds,))
