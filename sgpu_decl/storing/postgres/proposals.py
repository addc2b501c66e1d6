"""Proposals as rows of a PostgreSQL database, in a table of their own: a role that may only plan
adds rows here, and none to the state."""

from collections.abc import Iterator
from datetime import UTC
from typing import LiteralString

from sgpu_decl.storing.postgres.journal import TABLES
from sgpu_decl.storing.postgres.tables import PostgresTables
from sgpu_decl.storing.proposals import KEPT, StoredProposal

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
