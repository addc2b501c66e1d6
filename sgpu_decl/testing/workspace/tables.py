"""Small durable tables of JSON documents: one SQLite file per tenant."""

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sgpu_decl.testing.workspace.routes import JsonObject

__all__ = ["Database", "Table"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS documents (
  room TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (room, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS numbers (room TEXT PRIMARY KEY, last INTEGER NOT NULL) WITHOUT ROWID;
"""
_FIRST_ID = 409_385_120_731_000  # ids of the platform have 15 digits or more


class Database:
    """All tables of one tenant. Every call is atomic; `transaction` makes one of several."""

    def __init__(self, file: Path) -> None:
        self.lock = threading.RLock()
        self._file = file
        self._depth = 0
        self._resting = False
        self._connection = self._opened()

    def table(self, room: str) -> "Table":
        """The table of that name."""
        return Table(self, room)

    def next_id(self) -> int:
        """A number that was never given before, larger than all of them."""
        row = self.execute(
            "INSERT INTO numbers VALUES ('ids', ?) "
            "ON CONFLICT (room) DO UPDATE SET last = last + 1 RETURNING last",
            (_FIRST_ID + 1,),
        )
        return int(row[0][0])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is written, or none of it; nobody else reads or writes meanwhile."""
        with self.lock:
            if self._depth == 0:
                self._awake().execute("BEGIN")
            self._depth += 1
            try:
                yield
            except BaseException:
                self._depth -= 1
                if self._depth == 0:
                    self._connection.execute("ROLLBACK")
                raise
            self._depth -= 1
            if self._depth == 0:
                self._connection.execute("COMMIT")

    def execute(self, sql: str, values: tuple[str | int, ...]) -> list[tuple[str | int, ...]]:
        """All rows of one statement."""
        with self.lock:
            return self._awake().execute(sql, values).fetchall()

    def copy_to(self, file: Path) -> None:
        """Write what it holds now to another file."""
        with self.lock:
            self._awake().execute("VACUUM INTO ?", (str(file),))

    def rest(self) -> None:
        """Close the file until the next call, unless somebody uses it now."""
        if self.lock.acquire(blocking=False):
            try:
                if self._depth == 0 and not self._resting:
                    self._connection.close()
                    self._resting = True
            finally:
                self.lock.release()

    def close(self) -> None:
        """Close the file for good."""
        with self.lock:
            self._resting = False
            self._connection.close()

    def _awake(self) -> sqlite3.Connection:
        if self._resting:
            self._connection = self._opened()
            self._resting = False
        return self._connection

    def _opened(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._file, check_same_thread=False, isolation_level=None)
        # What a power cut takes is no loss here; what a killed server wrote is there.
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=OFF")
        connection.executescript(_SCHEMA)
        return connection


class Table:
    """JSON objects by key, in the order of keys."""

    def __init__(self, database: Database, room: str) -> None:
        self._database = database
        self._room = room

    def get(self, key: str | int) -> JsonObject | None:
        """The document, a copy of its own."""
        rows = self._database.execute(
            "SELECT value FROM documents WHERE room = ? AND key = ?", (self._room, _key(key))
        )
        return json.loads(str(rows[0][0])) if rows else None

    def put(self, key: str | int, value: JsonObject) -> None:
        """Write the document, over the one that was there."""
        self._database.execute(
            "INSERT OR REPLACE INTO documents VALUES (?, ?, ?)",
            (self._room, _key(key), json.dumps(value)),
        )

    def delete(self, key: str | int) -> bool:
        """Delete the document; whether it was there."""
        rows = self._database.execute(
            "DELETE FROM documents WHERE room = ? AND key = ? RETURNING key",
            (self._room, _key(key)),
        )
        return bool(rows)

    def items(self, prefix: str = "") -> list[tuple[str, JsonObject]]:
        """The documents whose key begins with `prefix`."""
        rows = self._database.execute(
            "SELECT key, value FROM documents WHERE room = ? AND key >= ? AND key < ? ORDER BY key",
            (self._room, prefix, prefix + "\U0010ffff"),
        )
        return [(str(key), json.loads(str(value))) for key, value in rows]


def _key(key: str | int) -> str:
    """Numbers sort as numbers."""
    return f"{key:020d}" if isinstance(key, int) else key
