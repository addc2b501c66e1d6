"""Entries as rows of a PostgreSQL database.

Each call is one statement of its own, and no statement is prepared, so that a pooler which gives
out connections by transaction is no problem. Rows are only ever added: once the tables are there,
who writes needs SELECT and INSERT alone.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, LiteralString, TypeVar

from sgpu_decl.errors import SgpuError
from sgpu_decl.storing.journal.port import JournalGap, Stored, StoreDown
from sgpu_decl.storing.postgres.server import ServerConnection, require_psycopg

__all__ = ["TABLES", "PostgresJournal"]

_T = TypeVar("_T")
_SCHEMA: LiteralString = "CREATE SCHEMA IF NOT EXISTS {schema}"
_ENTRIES: LiteralString = (
    "CREATE TABLE IF NOT EXISTS {schema}.entries (project text, target text, number bigint, "
    "entry text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp(), "
    "PRIMARY KEY (project, target, number))"
)
_CHECKPOINTS: LiteralString = (
    "CREATE TABLE IF NOT EXISTS {schema}.checkpoints (project text, target text, number bigint, "
    "content bytea NOT NULL, PRIMARY KEY (project, target, number))"
)
TABLES = (_SCHEMA, _ENTRIES, _CHECKPOINTS)
_APPEND: LiteralString = (
    "INSERT INTO {schema}.entries (project, target, number, entry) "
    "SELECT fresh.project, fresh.target, fresh.number, fresh.entry "
    "FROM (VALUES (%s::text, %s::text, %s::bigint, %s::text, %s::text)) "
    "AS fresh (project, target, number, entry, prev) "
    "WHERE fresh.number = 1 OR EXISTS (SELECT 1 FROM {schema}.entries AS last "
    "WHERE last.project = fresh.project AND last.target = fresh.target "
    "AND last.number = fresh.number - 1 AND (fresh.prev IS NULL "
    "OR encode(sha256(convert_to(last.entry, 'UTF8')), 'hex') = fresh.prev)) "
    "ON CONFLICT DO NOTHING RETURNING at"
)
_AFTER: LiteralString = (
    "SELECT number, entry, at FROM {schema}.entries "
    "WHERE project = %s AND target = %s AND number > %s ORDER BY number LIMIT %s"
)
_CHECKPOINT: LiteralString = (
    "SELECT number, content FROM {schema}.checkpoints "
    "WHERE project = %s AND target = %s ORDER BY number DESC LIMIT 1"
)
_PUT_CHECKPOINT: LiteralString = (
    "INSERT INTO {schema}.checkpoints VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
)
_TARGETS: LiteralString = (
    "SELECT DISTINCT target FROM {schema}.entries WHERE project = %s ORDER BY target"
)


class PostgresJournal:
    """The entries of one project and target, in the tables of a schema."""

    def __init__(self, server: ServerConnection, *, project: str, target: str) -> None:
        self._server = server
        self._project = project
        self._target = target

    @property
    def name(self) -> str:
        return self._server.server.shown

    def append(self, number: int, text: str, *, prev: str | None = None) -> datetime | None:
        values = (self._project, self._target, number, text, prev)
        if number == 1:
            rows = self._adding(lambda: self._server.execute(_APPEND, values).fetchall())
        else:  # tables that are missing now are not made: they held the entry before
            rows = self._reading(_APPEND, values)
        if rows:
            at: datetime = rows[0][0]
            return at.astimezone(UTC)
        if self.after(number - 1, most=1):
            return None
        raise JournalGap(f"entry {number - 1} is missing, or is another one")

    def after(self, number: int, *, most: int | None = None) -> Sequence[Stored]:
        rows = self._reading(_AFTER, (self._project, self._target, number, most))
        for expected, row in enumerate(rows, start=number + 1):
            if row[0] != expected:
                raise JournalGap(f"entry {expected} is missing")
        return [Stored(number=row[0], text=row[1], at=row[2].astimezone(UTC)) for row in rows]

    def checkpoint(self) -> tuple[int, bytes] | None:
        rows = self._reading(_CHECKPOINT, (self._project, self._target))
        return (rows[0][0], bytes(rows[0][1])) if rows else None

    def put_checkpoint(self, number: int, data: bytes) -> None:
        values = (self._project, self._target, number, data)
        self._adding(lambda: self._server.execute(_PUT_CHECKPOINT, values))

    def now(self) -> datetime:
        with self._explained():
            row = self._row("SELECT clock_timestamp()", ())
        assert row is not None  # noqa: S101  a SELECT without FROM has one row
        moment: datetime = row[0]
        return moment.astimezone(UTC)

    def targets(self) -> tuple[str, ...]:
        return tuple(row[0] for row in self._reading(_TARGETS, (self._project,)))

    def of_target(self, target: str) -> "PostgresJournal":
        return PostgresJournal(self._server, project=self._project, target=target)

    def close(self) -> None:
        """Close the connection, which the journals of all targets share."""
        self._server.close()

    def _reading(self, statement: LiteralString, values: Sequence[object]) -> list[Any]:
        """The rows of a statement; none where there are no tables yet."""
        with self._explained():
            from psycopg.errors import InvalidSchemaName, UndefinedTable

            try:
                return self._server.execute(statement, values).fetchall()
            except (UndefinedTable, InvalidSchemaName):
                return []

    def _adding(self, add: Callable[[], _T]) -> _T:
        """What `add` returns; the tables are made where they are missing."""
        with self._explained():
            from psycopg.errors import InvalidSchemaName, UndefinedTable

            try:
                return add()
            except (UndefinedTable, InvalidSchemaName):
                self._make_tables()
                return add()

    def _make_tables(self) -> None:
        from psycopg.errors import DuplicateSchema, DuplicateTable, UniqueViolation

        for statement in TABLES:
            # Two first applies at once: the other one has made it.
            with suppress(DuplicateSchema, DuplicateTable, UniqueViolation):
                self._server.execute(statement, ())

    def _row(self, statement: LiteralString, values: Sequence[object]) -> Any:
        return self._server.execute(statement, values).fetchone()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        require_psycopg()
        import psycopg
        from psycopg.errors import InsufficientPrivilege

        schema = self._server.server.schema
        try:
            yield
        except InsufficientPrivilege as error:
            raise SgpuError(
                f"the shared state in `{self.name}` refuses this: {_first_line(error)}",
                hint="who owns the database runs: "
                f"`GRANT USAGE ON SCHEMA {schema} TO ROLE; GRANT SELECT, INSERT ON ALL TABLES IN "
                f"SCHEMA {schema} TO ROLE` (a role that only plans needs SELECT alone); before "
                "the first apply, `CREATE` on the database too",
                code="state_unreachable",
            ) from error
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            self.close()
            raise StoreDown(
                f"the shared state in `{self.name}` cannot be reached: {_first_line(error)}",
                hint="is the server up, does the database exist, and may this user connect from "
                "here? what was recorded still stands",
            ) from error
        except psycopg.Error as error:
            raise SgpuError(
                f"the shared state in `{self.name}` cannot be used: {_first_line(error)}",
                hint="was the schema made by sgpu? name another one with `state.schema`",
                code="state_unreachable",
            ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
