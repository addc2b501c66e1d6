"""Which PostgreSQL server keeps a state, and how it is connected to. psycopg is imported here, and
only once a state names such a server."""

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, LiteralString

from sgpu_decl.errors import SgpuError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.server_url import ENCRYPTED, hosts, is_near, sslmode

if TYPE_CHECKING:
    import psycopg
    from psycopg.sql import Composed

__all__ = ["Server", "ServerConnection", "require_psycopg"]

OLDEST = 13
_CONNECT_SECONDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """`url` is libpq's, without a password. `password` is a reference, `env:NAME`; None leaves it
    to libpq: PGPASSWORD, `~/.pgpass`, or a service file."""

    url: str
    schema: str
    password: str | None = None

    @property
    def shown(self) -> str:
        """For messages."""
        return f"{self.url} (schema {self.schema})"


def require_psycopg() -> None:
    """Raises SgpuError where it is not installed."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise SgpuError(
            "a state in PostgreSQL needs the package `psycopg`, which is not installed",
            hint="install it with `pip install 'sgpu[postgres]'`",
            code="sdk_missing",
        ) from error


class ServerConnection:
    """One connection, opened when it is needed. Threads may share it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._open: psycopg.Connection[Any] | None = None
        self._guard = threading.RLock()

    def execute(self, statement: LiteralString, values: Sequence[object]) -> "psycopg.Cursor[Any]":
        """Run a statement, whose `{schema}` is that of the state.

        Raises:
            psycopg.Error: it cannot be run.
            SgpuError: the server cannot be used.
        """
        from psycopg import OperationalError, sql

        query = sql.SQL(statement).format(schema=sql.Identifier(self.server.schema))
        with self._guard:
            kept = self._open is not None and not self._open.closed
            try:
                return self._execute(query, values)
            except OperationalError:
                # A server or a pooler closes connections that wait: a run is followed for hours.
                if not (kept and statement.startswith("SELECT")):
                    raise
                self.close()
                return self._execute(query, values)

    def close(self) -> None:
        with self._guard:
            connection, self._open = self._open, None
            if connection is not None:
                connection.close()

    def _execute(self, query: "Composed", values: Sequence[object]) -> "psycopg.Cursor[Any]":
        if self._open is None or self._open.closed:
            self._open = _connect(self.server)
        # Binary: the text of a time depends on settings of the server.
        return self._open.execute(query, values, binary=True)


def _connect(server: Server) -> "psycopg.Connection[Any]":
    """A connection whose statements are transactions of their own.

    Raises:
        psycopg.OperationalError: the server does not answer, or refuses.
        SgpuError: the server is too old, or a password is missing.
    """
    import psycopg

    connection = psycopg.connect(
        server.url,
        autocommit=True,
        prepare_threshold=None,
        connect_timeout=_CONNECT_SECONDS,
        application_name="sgpu",
        # A server that is gone is noticed within half a minute, not after hours.
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
        tcp_user_timeout=20_000,  # milliseconds
        password=_password(server),
        sslmode=_sslmode(server),
    )
    # Where libpq found the host by itself, in a service file for instance.
    near = is_near(connection.info.hostaddr or connection.info.host)
    if not near and not connection.pgconn.ssl_in_use:
        connection.close()
        raise SgpuError(
            f"the connection to `{server.shown}` is without TLS, to another machine",
            hint="write `sslmode=verify-full` or `sslmode=require` where the host is named",
            code="state_unreachable",
        )
    version = connection.info.server_version // 10_000
    if version < OLDEST:
        connection.close()
        raise SgpuError(
            f"the server of `{server.shown}` is PostgreSQL {version}: a state needs {OLDEST} or "
            "newer",
            hint="name another server with `state.url`",
            code="state_unreachable",
        )
    return connection


def _sslmode(server: Server) -> str | None:
    """TLS, unless what is sent stays on this machine."""
    named = sslmode(server.url)
    system = os.environ.get("PGSSLMODE")
    where = hosts(server.url) or tuple(filter(None, os.environ.get("PGHOST", "").split(",")))
    if named is not None or all(map(is_near, where)):
        return named
    return system if system in ENCRYPTED else "require"


def _password(server: Server) -> str | None:
    """The password that the state names; None leaves it to libpq."""
    if server.password is None:
        return None
    name = server.password.removeprefix("env:")
    value = os.environ.get(name)
    if not value:
        raise SgpuError(
            f"the password of `{server.shown}` is not set: there is no variable `{name}`",
            hint=f"set `{name}`; or remove `state.password`, and libpq looks for one",
            code="state_unreachable",
        )
    return value
