"""Entries and proposals as rows of a PostgreSQL database. Proposals have a table of their own: a
role that may only plan adds rows there, and none to the state.

Each call is one statement of its own, and no statement is prepared, so that a pooler which gives
out connections by transaction is no problem. Rows are only ever added, but by `state compact`: once
the tables are there, who writes needs SELECT and INSERT alone.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import LiteralString

from sgpu_decl.storing.journal.port import Compacted, JournalGap, Stored
from sgpu_decl.storing.postgres.server import CONTENT_SECONDS
from sgpu_decl.storing.postgres.tables import PostgresTables
from sgpu_decl.storing.proposals import KEPT, StoredProposal

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
    "WHERE (fresh.number = 1 OR EXISTS (SELECT 1 FROM {schema}.entries AS last "
    "WHERE last.project = fresh.project AND last.target = fresh.target "
    "AND last.number = fresh.number - 1 AND (fresh.prev IS NULL "
    "OR encode(sha256(convert_to(last.entry, 'UTF8')), 'hex') = fresh.prev))) "
    # The number after the first one may be free again, once the state was compacted.
    "AND NOT EXISTS (SELECT 1 FROM {schema}.entries AS later "
    "WHERE later.project = fresh.project AND later.target = fresh.target "
    "AND later.number > fresh.number) "
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
_OLDEST_CHECKPOINT: LiteralString = (
    "SELECT number, content FROM {schema}.checkpoints "
    "WHERE project = %s AND target = %s ORDER BY number LIMIT 1"
)
_LAST: LiteralString = (
    "SELECT coalesce(max(number), 0) FROM {schema}.entries WHERE project = %s AND target = %s"
)
_BETWEEN: LiteralString = (
    "SELECT 1 FROM {schema}.entries "
    "WHERE project = %s AND target = %s AND number > 1 AND number < %s LIMIT 1"
)
_DROP_CHECKPOINTS: LiteralString = (
    "DELETE FROM {schema}.checkpoints WHERE project = %s AND target = %s AND number < %s"
)
_DROP_ENTRIES: LiteralString = (
    "DELETE FROM {schema}.entries WHERE project = %s AND target = %s AND number > 1 AND number < %s"
)
_PUT_CHECKPOINT: LiteralString = (
    "INSERT INTO {schema}.checkpoints VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
)
_TARGETS: LiteralString = (
    "SELECT DISTINCT target FROM {schema}.entries WHERE project = %s ORDER BY target"
)


class PostgresJournal(PostgresTables):
    """The entries of one project and target, in the tables of a schema."""

    tables = TABLES

    def append(self, number: int, text: str, *, prev: str | None = None) -> datetime | None:
        values = (self._project, self._target, number, text, prev)
        if number == 1:
            rows = self._adding(lambda: self._server.execute(_APPEND, values).fetchall())
        else:  # tables that are missing now are not made: they held the entry before
            rows = self._reading(_APPEND, values)
        if rows:
            at: datetime = rows[0][0]
            return at.astimezone(UTC)
        last = self._reading(_LAST, (self._project, self._target))
        if last and last[0][0] >= number:
            return None
        raise JournalGap(f"entry {number - 1} is missing, or is another one")

    def after(self, number: int, *, most: int | None = None) -> Sequence[Stored]:
        limit = CONTENT_SECONDS if most is None or most > 2 else None
        rows = self._reading(_AFTER, (self._project, self._target, number, most), seconds=limit)
        for expected, row in enumerate(rows, start=number + 1):
            if row[0] != expected:
                raise self._missing(expected, row[0])
        return [Stored(number=row[0], text=row[1], at=row[2].astimezone(UTC)) for row in rows]

    def checkpoint(self) -> tuple[int, bytes] | None:
        return self._checkpoint(_CHECKPOINT)

    def oldest_checkpoint(self) -> tuple[int, bytes] | None:
        return self._checkpoint(_OLDEST_CHECKPOINT)

    def put_checkpoint(self, number: int, data: bytes) -> bool:
        values = (self._project, self._target, number, data)

        def put() -> int:
            return self._server.execute(_PUT_CHECKPOINT, values, seconds=CONTENT_SECONDS).rowcount

        return self._adding(put) == 1

    def drop_before(self, number: int) -> None:
        for statement in (_DROP_CHECKPOINTS, _DROP_ENTRIES):
            self._dropping(statement, (self._project, self._target, number))

    def now(self) -> datetime:
        with self._explained():
            row = self._row("SELECT clock_timestamp()", ())
        assert row is not None  # noqa: S101  a SELECT without FROM has one row
        moment: datetime = row[0]
        return moment.astimezone(UTC)

    def _checkpoint(self, statement: LiteralString) -> tuple[int, bytes] | None:
        where = (self._project, self._target)
        rows = self._reading(statement, where, seconds=CONTENT_SECONDS)
        return (rows[0][0], bytes(rows[0][1])) if rows else None

    def _missing(self, number: int, next_one: int) -> JournalGap:
        """The error for an entry that is not there, where `next_one` is."""
        if self._reading(_BETWEEN, (self._project, self._target, number)):
            return JournalGap(f"entry {number} is missing")
        return Compacted(self.name, next_one)

    def targets(self) -> tuple[str, ...]:
        return tuple(row[0] for row in self._reading(_TARGETS, (self._project,)))

    def of_target(self, target: str) -> "PostgresJournal":
        return PostgresJournal(self._server, project=self._project, target=target)


PROPOSALS: LiteralString = (
    "CREATE TABLE IF NOT EXISTS {schema}.proposals (project text, target text, id text, "
    "content bytea NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp(), "
    "PRIMARY KEY (project, target, id))"
)
_PROPOSE: LiteralString = (
    "INSERT INTO {schema}.proposals (project, target, id, content) VALUES (%s, %s, %s, %s) "
    "ON CONFLICT DO NOTHING"
)
_NEWEST: LiteralString = (
    "SELECT id, at FROM {schema}.proposals "
    "WHERE project = %s AND target = %s AND at > clock_timestamp() - %s ORDER BY at DESC"
)
_CONTENT: LiteralString = (
    "SELECT content FROM {schema}.proposals WHERE project = %s AND target = %s AND id = %s"
)


_DROP_EXPIRED: LiteralString = (
    "DELETE FROM {schema}.proposals "
    "WHERE project = %s AND target = %s AND at <= clock_timestamp() - %s"
)


class PostgresProposals(PostgresTables):
    tables = (*TABLES, PROPOSALS)

    def propose(self, id: str, content: bytes) -> None:  # noqa: A002
        values = (self._project, self._target, id, content)
        self._adding(lambda: self._server.execute(_PROPOSE, values))

    def proposals(self) -> Iterator[StoredProposal]:
        for name, at in self._reading(_NEWEST, (self._project, self._target, KEPT)):
            for row in self._reading(_CONTENT, (self._project, self._target, name)):
                yield StoredProposal(id=name, content=bytes(row[0]), at=at.astimezone(UTC))

    def drop_expired(self) -> int:
        return self._dropping(_DROP_EXPIRED, (self._project, self._target, KEPT))
