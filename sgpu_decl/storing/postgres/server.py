"""Which PostgreSQL server keeps a state, and how it is connected to. psycopg is imported here, and
only once a state names such a server."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, LiteralString

from sgpu_decl.distribution import extra_command
from sgpu_decl.errors import SgpuError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.server_url import ENCRYPTED, is_near
from sgpu_decl.storing.journal.port import StoreDown

if TYPE_CHECKING:
    import psycopg
    from psycopg.sql import Composed

OLDEST = 13
CONTENT_SECONDS = 300.0
"""How long a statement may take whose answer is large."""
_STATEMENT_SECONDS = 30.0
_CONNECT_SECONDS = 10
_SLOW_SECONDS = 3.0  # what fails sooner is tried again at once
_SILENT_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """`url` is libpq's, without a password. `password` is a reference, `env:NAME`; None leaves it
    to libpq: PGPASSWORD, `~/.pgpass`, or a service file. `token` is asked for the password of each
    new connection, since it does not live long."""

    url: str
    schema: str
    password: str | None = None
    token: Callable[[], str] | None = None

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
            hint=f"install it with `{extra_command('postgres')}`",
            code="sdk_missing",
        ) from error


class ServerConnection:
    """One connection, opened when it is needed. Threads may share it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._open: psycopg.Connection[Any] | None = None
        self._guard = threading.RLock()
        self._silent_until = 0.0

    def execute(
        self,
        statement: LiteralString,
        values: Sequence[object],
        *,
        seconds: float | None = None,
    ) -> "psycopg.Cursor[Any]":
        """Run a statement, whose `{schema}` is that of the state. It may take so many seconds, half
        a minute unless given. A server that has just let somebody wait is not asked again for some
        seconds: many calls that follow each other would wait as long.

        Raises:
            psycopg.Error: it cannot be run. It may have happened.
            SgpuError: the server cannot be used.
        """
        from psycopg import OperationalError, sql

        query = sql.SQL(statement).format(schema=sql.Identifier(self.server.schema))
        limit = _STATEMENT_SECONDS if seconds is None else seconds
        with self._guard:
            if self._is_silent():
                raise OperationalError("it did not answer a moment ago, and is not asked yet")
            kept = self._open is not None and not self._open.closed
            try:
                return self._timed(query, values, limit)
            except OperationalError:
                # A server or a pooler closes connections that wait: a run is followed for hours.
                if self._is_silent() or not (kept and statement.startswith("SELECT")):
                    raise
                self.close()
                return self._timed(query, values, limit)

    def close(self) -> None:
        with self._guard:
            connection, self._open = self._open, None
            if connection is not None:
                connection.close()

    def _is_silent(self) -> bool:
        return time.monotonic() < self._silent_until

    def _timed(
        self, query: "Composed", values: Sequence[object], limit: float
    ) -> "psycopg.Cursor[Any]":
        """Run a statement, and remember if that failed after a while."""
        from psycopg import OperationalError

        began = time.monotonic()
        try:
            if self._open is None or self._open.closed:
                self._open = _connect(self.server)
            with _cut_after(limit, self._open):
                # Binary: the text of a time depends on settings of the server.
                return self._open.execute(query, values, binary=True)
        except OperationalError:
            if time.monotonic() - began > _SLOW_SECONDS:
                self.close()
                self._silent_until = time.monotonic() + _SILENT_SECONDS
            raise


@contextmanager
def _cut_after(seconds: float, connection: "psycopg.Connection[Any]") -> Iterator[None]:
    """Cut the connection if the block takes longer: a server that waits for a lock, or for another
    server, answers nobody. A request to cancel needs a connection of its own, and an answer
    (https://www.postgresql.org/docs/current/libpq-cancel.html). The statement may happen later.

    Raises:
        psycopg.OperationalError: it did.
    """
    from psycopg import OperationalError

    cut = threading.Event()
    with socket.socket(fileno=os.dup(connection.fileno())) as held:

        def end() -> None:
            cut.set()
            with suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except OperationalError as error:
            if cut.is_set():
                raise OperationalError(f"it did not answer within {seconds:g} s") from error
            raise
        finally:
            timer.cancel()


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
    """TLS, unless what is sent stays on this machine: decided before anything is sent, since a
    server may ask for the password at once."""
    used = _parameters(server.url)
    where = [item for name in ("host", "hostaddr") for item in used.get(name, "").split(",")]
    if used.get("sslmode") in ENCRYPTED or all(map(is_near, filter(None, where))):
        return None  # what libpq uses anyway
    return "require"


def _parameters(url: str) -> dict[str, str]:
    """What libpq uses for a URL: it looks into a service file and into variables such as PGHOST,
    too. It says so of a connection that it refuses to make, as it has a value that is none."""
    from psycopg import conninfo, pq

    refused = conninfo.make_conninfo(url, target_session_attrs="none")
    connection = pq.PGconn.connect_start(refused.encode())
    try:
        return {
            option.keyword.decode(): option.val.decode()
            for option in connection.info
            if option.val is not None
        }
    finally:
        connection.finish()


def _password(server: Server) -> str | None:
    """The password that the state names; None leaves it to libpq."""
    if server.token is not None:
        try:
            return server.token()
        except SgpuError as error:
            kind = StoreDown if error.retryable else SgpuError
            raise kind(
                f"there is no token for `{server.shown}`: {error.message}",
                hint=error.hint,
                code="state_unreachable",
            ) from error
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
