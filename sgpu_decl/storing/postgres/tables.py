"""The tables of a state in PostgreSQL: they are made where they are missing, and errors of the
server become errors of sgpu."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, LiteralString, TypeVar

from sgpu_decl.errors import SgpuError
from sgpu_decl.storing.journal.port import StoreDown
from sgpu_decl.storing.postgres.server import (
    CONTENT_SECONDS,
    ServerConnection,
    require_psycopg,
)

_T = TypeVar("_T")


class PostgresTables:
    """The rows of one project and target, in tables of a schema. `tables` are the statements that
    make these."""

    tables: ClassVar[Sequence[LiteralString]]

    def __init__(self, server: ServerConnection, *, project: str, target: str) -> None:
        self._server = server
        self._project = project
        self._target = target

    @property
    def name(self) -> str:
        return self._server.server.shown

    def close(self) -> None:
        """Close the connection, which the tables of all targets share."""
        self._server.close()

    def _reading(
        self,
        statement: LiteralString,
        values: Sequence[object],
        *,
        seconds: float | None = None,
    ) -> list[Any]:
        """The rows of a statement; none where there are no tables yet. `seconds` as in `execute` of
        the connection."""
        with self._explained():
            from psycopg.errors import InvalidSchemaName, UndefinedTable

            try:
                return self._server.execute(statement, values, seconds=seconds).fetchall()
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

    def _dropping(self, statement: LiteralString, values: Sequence[object]) -> int:
        """Delete rows; returns how many. There may be no table of them.

        Raises:
            SgpuError: the role may add rows, and not delete any.
        """
        with self._explained():
            from psycopg.errors import InsufficientPrivilege, InvalidSchemaName, UndefinedTable

            try:
                return self._server.execute(statement, values, seconds=CONTENT_SECONDS).rowcount
            except (UndefinedTable, InvalidSchemaName):
                return 0
            except InsufficientPrivilege as error:
                schema = self._server.server.schema
                raise SgpuError(
                    f"the role that uses the state in `{self.name}` may not delete anything",
                    hint="who owns the tables may, or a role that got the right by "
                    f"`GRANT DELETE ON ALL TABLES IN SCHEMA {schema} TO ROLE`",
                    code="compact_refused",
                ) from error

    def _make_tables(self) -> None:
        from psycopg.errors import (
            DuplicateObject,
            DuplicateSchema,
            DuplicateTable,
            UniqueViolation,
        )

        for statement in self.tables:
            # Two first applies at once: the other one has made it.
            with suppress(DuplicateObject, DuplicateSchema, DuplicateTable, UniqueViolation):
                self._server.execute(statement, ())

    def _row(self, statement: LiteralString, values: Sequence[object]) -> Any:
        return self._server.execute(statement, values).fetchone()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        require_psycopg()
        import psycopg
        from psycopg.errors import InsufficientPrivilege, ReadOnlySqlTransaction

        schema = self._server.server.schema
        try:
            yield
        except InsufficientPrivilege as error:
            raise SgpuError(
                f"the shared state in `{self.name}` refuses this: {_first_line(error)}",
                hint="let the owner of the database run the SQL of `Rights in PostgreSQL` in "
                "`docs/state.md`: it makes missing tables, and gives a role that plans and one "
                f"that applies their rights, such as `GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA "
                f"{schema}` to the one that applies",
                code="state_unreachable",
            ) from error
        except (
            psycopg.OperationalError,
            psycopg.InterfaceError,
            ReadOnlySqlTransaction,  # it was the primary, and is not any more
        ) as error:
            self.close()
            raise StoreDown(
                f"the shared state in `{self.name}` cannot be reached: {_first_line(error)}",
                hint="is the server up, does the database exist, and may this user connect from "
                "here? earlier records are intact",
            ) from error
        except psycopg.Error as error:
            raise SgpuError(
                f"the shared state in `{self.name}` cannot be used: {_first_line(error)}",
                hint="was the schema made by sgpu? name another one with `state.schema`",
                code="state_unreachable",
            ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
