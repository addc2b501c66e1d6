"""The HTTP connection to a dashboard, with the standard library: made when it is needed, through a
proxy where there is one, and once more if the other side has ended it. A `TimeBudget` bounds the
seconds that all answers to one command take, whoever of it asks."""

import base64
import http.client
import ipaddress
import os
import select
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import field
from urllib.parse import unquote, urlsplit

from sgpu_decl.backends.ray.api.dashboard_address import DashboardAddress
from sgpu_decl.errors import BackendError
from sgpu_decl.frozen_dataclass import dataclass

_SILENCE = 60.0  # seconds without a byte
_CONNECT = 10.0  # seconds until a connection is made
_PIECE = 1 << 20
_budgeted: ContextVar[bool] = ContextVar("budgeted", default=False)
_PORT = 80


class TimeBudget:
    """The `seconds` that requests to one dashboard may take together. Only requests count that are
    made where `is_budgeted`: uploads, and what is brought here, may take longer."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.left = seconds

    def renew(self) -> None:
        self.left = self.seconds


@contextmanager
def budgeted(*, on: bool = True) -> Iterator[None]:
    """Have requests that are made in this block count, or not."""
    before = _budgeted.set(on)
    try:
        yield
    finally:
        _budgeted.reset(before)


def is_budgeted() -> bool:
    return _budgeted.get()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`location` is where the dashboard sends the request on to."""

    status: int
    body: bytes
    location: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """`at` is a time of `time.monotonic`. `seconds` is the limit in words about it."""

    at: float
    seconds: float


class ConnectionLost(Exception):
    """The connection broke, was silent, or could not be made. `sent`: the request may have
    arrived."""

    def __init__(self, reason: str, *, sent: bool, silent: bool) -> None:
        super().__init__(reason)
        self.sent = sent
        self.silent = silent


class DashboardConnection:
    """Requests take turns: the caller sees to that. `proxy` is that of the last connection."""

    def __init__(self, address: DashboardAddress) -> None:
        """Nothing is connected yet."""
        self._address = address
        self._connection: http.client.HTTPConnection | None = None
        self._deadline: Deadline | None = None
        self.proxy: Proxy | None = None

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        content: bytes | None,
        deadline: Deadline | None,
    ) -> Answer:
        """Send a request, and return the answer. A GET whose connection broke is sent twice: it
        changes nothing.

        Args:
            target: relative to the address.
            deadline: for this request; None for no limit but 60 s without a byte.

        Raises:
            ConnectionLost: there is no answer. A later request makes another connection.
            BackendError: a variable names a proxy that cannot be used.
        """
        self._deadline = deadline
        try:
            try:
                return self._exchange(method, target, headers, content)
            except ConnectionLost as lost:
                self.close()
                if not (lost.sent and method == "GET") or lost.silent:
                    raise
                return self._exchange(method, target, headers, content)
        except ConnectionLost:
            self.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(
        self, method: str, target: str, headers: Mapping[str, str], content: bytes | None
    ) -> Answer:
        body = None
        if content is not None:  # in pieces, each of which has the time that one wait may take
            headers = {**headers, "Content-Length": str(len(content))}
            view = memoryview(content)
            body = (view[at : at + _PIECE] for at in range(0, len(view), _PIECE))
        connection = self._open_connection()
        start = self._address.parts.path
        if self.proxy is not None and not self._address.is_encrypted:
            start, headers = self._address.url, {**headers, **self.proxy.headers}
        try:
            # An answer may come before the whole body was read, as to one that is too large.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, start + target, body, headers)
            response = connection.getresponse()
            pieces = []
            while piece := response.read1(_PIECE):
                pieces.append(piece)
                self._limit(connection, _SILENCE)
            response.close()
        except (OSError, http.client.HTTPException) as error:
            raise self._lost(error, sent=True) from error
        location = response.headers.get("Location")
        return Answer(status=response.status, body=b"".join(pieces), location=location)

    def _open_connection(self) -> http.client.HTTPConnection:
        """The open connection, or a new one. Raises ConnectionLost."""
        connection = self._connection
        if connection is not None and connection.sock is not None and not _ended(connection.sock):
            try:
                self._limit(connection, _SILENCE)
            except TimeoutError as error:
                raise self._lost(error, sent=False) from error
            return connection
        self.close()
        connection = self._new_connection()
        try:
            self._limit(connection, _CONNECT)
            connection.connect()
            self._limit(connection, _SILENCE)
        except (OSError, UnicodeError) as error:  # the latter of a name that no host can have
            raise self._lost(error, sent=False) from error
        self._connection = connection
        return connection

    def _new_connection(self) -> http.client.HTTPConnection:
        """A connection that is not open yet, to the dashboard or to the proxy before it."""
        parts, proxy = self._address.parts, proxy_of(self._address, os.environ)
        assert parts.hostname is not None  # noqa: S101  of a validated address
        self.proxy = proxy
        host, port = (parts.hostname, parts.port) if proxy is None else (proxy.host, proxy.port)
        if not self._address.is_encrypted:
            return http.client.HTTPConnection(host, port)
        connection = http.client.HTTPSConnection(host, port, context=ssl.create_default_context())
        if proxy is not None:
            connection.set_tunnel(parts.hostname, parts.port, dict(proxy.headers))
        return connection

    def _limit(self, connection: http.client.HTTPConnection, seconds: float) -> None:
        """Bound the next wait by these seconds. Raises TimeoutError if no time is left."""
        if self._deadline is not None:
            seconds = min(seconds, self._deadline.at - time.monotonic())
            if seconds <= 0:
                raise TimeoutError
        connection.timeout = seconds
        if connection.sock is not None:
            connection.sock.settimeout(seconds)

    def _lost(self, error: Exception, *, sent: bool) -> ConnectionLost:
        silent = isinstance(error, TimeoutError)
        return ConnectionLost(self._reason(error, sent=sent), sent=sent, silent=silent)

    def _reason(self, error: Exception, *, sent: bool) -> str:
        if isinstance(error, TimeoutError):
            seconds = _SILENCE if sent else _CONNECT
            if self._deadline is not None:
                seconds = self._deadline.seconds
            return f"no answer came in {seconds:g} s"
        if isinstance(error, UnicodeError):
            return "no host can have this name"
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({error.verify_message})"
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return text[:1].lower() + text[1:] or type(error).__name__


def _ended(sock: socket.socket) -> bool:
    """Whether the other side closed an idle connection."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """`variable` names it. `headers` are for the proxy itself."""

    variable: str
    host: str
    port: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def proxy_of(address: DashboardAddress, environ: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for requests to a dashboard; None for requests that take none, as those to
    this machine. It is named by the variables that Ray's own client follows: it sends its requests
    with `requests` (`SubmissionClient._do_request` in `ray/dashboard/modules/dashboard_sdk.py`),
    which reads `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, in small letters first.

    Raises:
        BackendError: a variable names a proxy that cannot be used.
    """
    if address.is_loopback or _is_exempt(address, environ):
        return None
    for lower in (f"{address.parts.scheme}_proxy", "all_proxy"):
        for variable in (lower, lower.upper()):
            if text := environ.get(variable, "").strip():
                return _proxy(variable, text)
    return None


def _proxy(variable: str, text: str) -> Proxy:
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port or _PORT
    except ValueError:
        host, port = None, 0
    if host is None or parts.scheme != "http":
        raise BackendError(
            f"the environment variable `{variable}` names no proxy that can be used",
            hint="write it as in `http://proxy.example:3128`, or name the host of the dashboard in "
            "`NO_PROXY`",
            code="bad_proxy",
        )
    headers = {}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return Proxy(variable=variable, host=host, port=port, headers=headers)


def _is_exempt(address: DashboardAddress, environ: Mapping[str, str]) -> bool:
    host, port = address.parts.hostname or "", address.parts.port
    listed = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    for entry in listed.lower().replace(",", " ").split():
        name = entry.lstrip(".")
        if entry == "*" or name in (host, f"{host}:{port}"):
            return True
        if host.endswith(f".{name}") or f"{host}:{port}".endswith(f".{name}"):
            return True
        try:
            network = ipaddress.ip_network(entry.strip("[]"), strict=False)
            if ipaddress.ip_address(host) in network:
                return True
        except ValueError:
            continue  # one of them is a name
    return False
