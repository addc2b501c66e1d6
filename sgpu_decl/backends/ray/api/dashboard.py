"""The HTTP API of Ray's dashboard, with the standard library, over one connection.

The token is sent once the dashboard has refused a request without one. So a dashboard that asks for
none never gets it, and `requires_token` is known. A request that changes something is never
repeated here: `OutcomeUnknown` says that its answer was lost.
"""

import http.client
import json
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlencode

from sgpu_decl import __version__
from sgpu_decl.backends.ray.api.allowance import Allowance, is_counted
from sgpu_decl.backends.ray.api.credentials import TOKEN_PLACES, Credentials
from sgpu_decl.backends.ray.api.dashboard_address import DEFAULT_ADDRESS, DashboardAddress
from sgpu_decl.backends.ray.api.proxy import Proxy, proxy_of
from sgpu_decl.backends.remote.files import RemoteMissing
from sgpu_decl.errors import BackendError, OutcomeUnknown
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.ray_size import OLDEST_RAY

__all__ = ["Dashboard", "Refused"]

_SILENCE = 60.0  # seconds without a byte
_CONNECT = 10.0  # seconds until a connection is made
_PAUSE = 10.0  # seconds for which a dashboard that was silent is not asked again
_PIECE = 1 << 20
_SHOWN = 300  # characters of an answer in a message
_REFUSALS = (401, 403)
_BUSY = (429, 502, 503, 504)  # of proxies in front of it, too
_T = TypeVar("_T")


class Refused(BackendError):
    """The dashboard answers, and does not do what it was asked to. `status` is that of HTTP. Ray
    answers 500 to requests that are wrong, too."""

    code = "remote_refused"
    asked_wrong = True

    def __init__(self, message: str, *, hint: str | None, status: int) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class _Lost(Exception):
    """A connection that broke or was silent. `sent`: the request may have arrived."""

    def __init__(self, reason: str, *, sent: bool, silent: bool) -> None:
        super().__init__(reason)
        self.sent = sent
        self.silent = silent


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes
    location: str | None

    @property
    def text(self) -> str:
        """The beginning of the answer, in one line."""
        return _line(self.body[: 4 * _SHOWN].decode(errors="replace"))


class Dashboard:
    """The dashboard of one cluster. Calls may come from several threads, and take turns. After it
    was silent to a GET, calls fail at once for ten seconds.

    Paths begin with a slash and are relative to the address. Each call raises BackendError if the
    dashboard does not answer (`host_unreachable`), does not accept the token (`unauthenticated`),
    or refuses (`Refused`; RemoteMissing for 404).
    """

    def __init__(
        self,
        address: DashboardAddress,
        credentials: Credentials,
        allowance: Allowance | None = None,
    ) -> None:
        """Nothing is asked yet. Requests that do not count in an allowance have no limit but 60 s
        without a byte."""
        self.address = address
        self.credentials = credentials
        self.allowance = allowance
        self._lock = threading.RLock()
        self._connection: http.client.HTTPConnection | None = None
        self._proxy: Proxy | None = None
        self._requires_token: bool | None = None
        self._deadline: float | None = None
        self._silence: tuple[float, str] | None = None

    @property
    def requires_token(self) -> bool | None:
        """Whether it refuses requests without a token; None before the first answer."""
        return self._requires_token

    @property
    def has_token(self) -> bool:
        return self.credentials.token is not None

    def get(self, path: str, /, **query: str | int) -> Json:
        """The JSON that a path answers with."""
        return self._json(path, self._asked("GET", path, query=query))

    def find(self, path: str, /, **query: str | int) -> Json:
        """The same; None if its object does not exist."""
        try:
            return self.get(path, **query)
        except RemoteMissing:
            return None

    def read(self, path: str, /, **query: str | int) -> bytes:
        """The bytes that a path answers with."""
        return self._asked("GET", path, query=query).body

    def put(self, path: str, content: bytes, /) -> None:
        """Write a value. Raises OutcomeUnknown, too."""
        self._asked("PUT", path, content=content, kind="application/octet-stream")

    def post(self, path: str, body: Mapping[str, Json], /) -> Json:
        """Send JSON, and return the JSON of the answer. Raises OutcomeUnknown, too."""
        content = json.dumps(body).encode()
        answer = self._asked("POST", path, content=content, kind="application/json")
        return self._json(path, answer)

    def part(self, request: str, answer: Any, path: str, kind: type[_T]) -> _T:
        """The part of an answer at a dotted path. Raises BackendError (`not_ray_dashboard`) if it
        is not there, or is of another kind."""
        found = self.optional_part(request, answer, path, kind)
        if found is None:
            raise self.unknown_answer(request, f"no `{path}`")
        return found

    def optional_part(self, request: str, answer: Any, path: str, kind: type[_T]) -> _T | None:
        """The same; None if it is not there, or null."""
        for name in path.split("."):
            answer = answer.get(name) if isinstance(answer, Mapping) else None
        if answer is None or isinstance(answer, kind):
            return answer
        shown = _line(json.dumps(answer))
        raise self.unknown_answer(request, f"a `{path}` of another kind: {shown}")

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def __del__(self) -> None:
        self.close()  # of a survey, which nobody closes

    def _json(self, path: str, answer: _Answer) -> Json:
        try:
            value: Json = json.loads(answer.body)
        except ValueError:
            raise self.unknown_answer(path, f"no JSON: {answer.text}") from None
        return value

    def unknown_answer(self, request: str, what: str) -> BackendError:
        """The error about an answer that Ray does not give."""
        return BackendError(
            f"`{self.address.url}` does not answer as Ray's dashboard does: `{request}` gives "
            f"{what}",
            hint=f"see that {self._named} is the URL of the dashboard of Ray {OLDEST_RAY} or newer",
            code="not_ray_dashboard",
        )

    @property
    def _named(self) -> str:
        source, url = self.address.source, self.address.url
        if source:
            return f"`{source}`"
        where = "the default" if url == DEFAULT_ADDRESS else "where the run was submitted"
        return f"`{url}`, {where},"

    def _asked(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        content: bytes | None = None,
        kind: str | None = None,
    ) -> _Answer:
        target = f"{path}?{urlencode(query)}" if query else path
        with self._lock:
            started = time.monotonic()
            allowance = self.allowance if is_counted() else None
            self._deadline = None if allowance is None else started + allowance.left
            try:
                if method != "GET" and self.has_token and self._requires_token is None:
                    # A request that changes something is not sent twice to find that out.
                    self._exchange("GET", "/api/version", None, None)
                answer = self._exchange(method, target, content, kind)
            finally:
                if allowance is not None:
                    allowance.left -= time.monotonic() - started
        if answer.status == 200:
            return answer
        raise self._refusal(f"{method} {path}", answer)

    def _exchange(
        self, method: str, target: str, content: bytes | None, kind: str | None
    ) -> _Answer:
        """Send a request, with the token if it is needed. The caller holds the lock."""
        secured = self._requires_token
        answer = self._delivered(method, target, content, kind)
        if secured is None:
            self._requires_token = answer.status in _REFUSALS
            if self._requires_token and self.has_token:
                answer = self._delivered(method, target, content, kind)
        return answer

    def _delivered(
        self, method: str, target: str, content: bytes | None, kind: str | None
    ) -> _Answer:
        if self._silence is not None:
            until, reason = self._silence
            if time.monotonic() < until:
                raise self._unreachable(reason)
            self._silence = None
        reused = self._connection is not None
        try:
            try:
                return self._sent(method, target, content, kind)
            except _Lost as lost:
                self.close()
                if not (reused and lost.sent and method == "GET") or lost.silent:
                    raise
                return self._sent(method, target, content, kind)
        except _Lost as lost:
            self.close()
            # After a request whose answer was lost, the next one asks what became of it.
            if lost.silent and method == "GET":
                self._silence = (time.monotonic() + _PAUSE, str(lost))
            if lost.sent and method != "GET":
                raise OutcomeUnknown(
                    f"the answer of `{self.address.url}` to `{method} {target}` was lost: {lost}",
                    hint="apply again: sgpu finds what was started and does not start it twice",
                ) from lost
            raise self._unreachable(str(lost)) from lost

    def _sent(self, method: str, target: str, content: bytes | None, kind: str | None) -> _Answer:
        headers = {"User-Agent": f"sgpu/{__version__}", **self.credentials.headers}
        if kind is not None:
            headers["Content-Type"] = kind
        if self._requires_token:
            headers |= self.credentials.authorization
        body = None
        if content is not None:  # in pieces, each of which has the time that one wait may take
            headers["Content-Length"] = str(len(content))
            view = memoryview(content)
            body = (view[at : at + _PIECE] for at in range(0, len(view), _PIECE))
        connection = self._connected()
        start = self.address.parts.path
        if self._proxy is not None and not self.address.is_encrypted:
            start, headers = self.address.url, {**headers, **self._proxy.headers}
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
            return _Answer(response.status, b"".join(pieces), response.headers.get("Location"))
        except (OSError, http.client.HTTPException) as error:
            raise self._lost(error, sent=True) from error

    def _connected(self) -> http.client.HTTPConnection:
        """The open connection, or a new one. Raises _Lost."""
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
        parts, proxy = self.address.parts, proxy_of(self.address, os.environ)
        assert parts.hostname is not None  # noqa: S101  of a validated address
        self._proxy = proxy
        host, port = (parts.hostname, parts.port) if proxy is None else (proxy.host, proxy.port)
        if not self.address.is_encrypted:
            return http.client.HTTPConnection(host, port)
        connection = http.client.HTTPSConnection(host, port, context=ssl.create_default_context())
        if proxy is not None:
            connection.set_tunnel(parts.hostname, parts.port, dict(proxy.headers))
        return connection

    def _limit(self, connection: http.client.HTTPConnection, seconds: float) -> None:
        """Bound the next wait by these seconds. Raises TimeoutError if no time is left."""
        if self._deadline is not None:
            seconds = min(seconds, self._deadline - time.monotonic())
            if seconds <= 0:
                raise TimeoutError
        connection.timeout = seconds
        if connection.sock is not None:
            connection.sock.settimeout(seconds)

    def _unreachable(self, reason: str) -> BackendError:
        if self._proxy is not None:
            proxy = self._proxy
            reason += f" (by the proxy `{proxy.host}:{proxy.port}` of `{proxy.variable}`)"
        error = BackendError(
            f"`{self.address.url}` does not answer: {reason}",
            hint=f"see that {self._named} is right, that this network reaches it, and that the "
            "cluster has `ray[default]`: plain `ray` has no dashboard",
            code="host_unreachable",
        )
        error.retryable = True
        return error

    def _refusal(self, request: str, answer: _Answer) -> BackendError:
        url, status = self.address.url, answer.status
        if status in _REFUSALS:
            return self._unauthenticated(answer)
        if 300 <= status < 400:
            return BackendError(
                f"`{url}` sends requests on to `{answer.location or 'nowhere'}`",
                hint=f"set {self._named} to the address that answers; a page for logging in needs "
                "headers in `RAY_JOB_HEADERS`",
                code="not_ray_dashboard",
            )
        if status in _BUSY:
            error = BackendError(
                f"`{url}` is not available now: it answers {status} ({answer.text})",
                hint="try again in a minute",
                code="unavailable",
            )
            error.retryable = True
            return error
        message = f"`{url}` answers {status} to `{request}`: {answer.text}"
        if status == 404:
            return RemoteMissing(message, hint=f"see that {self._named} is Ray's dashboard")
        return Refused(message, hint="see the dashboard's log on the head node", status=status)

    def _unauthenticated(self, answer: _Answer) -> BackendError:
        source = self.credentials.source
        if source is None:
            message = f"`{self.address.url}` needs a token, and none was found"
            hint = f"it was looked for in {TOKEN_PLACES}"
        else:
            message = f"`{self.address.url}` does not accept the token of {source}"
            hint = f"the token is the first of {TOKEN_PLACES}; use that of the cluster"
        return BackendError(f"{message}: {answer.text}", hint=hint, code="unauthenticated")

    def _lost(self, error: Exception, *, sent: bool) -> _Lost:
        silent = isinstance(error, TimeoutError)
        return _Lost(self._reason(error, sent=sent), sent=sent, silent=silent)

    def _reason(self, error: Exception, *, sent: bool) -> str:
        if isinstance(error, TimeoutError):
            seconds = _SILENCE if sent else _CONNECT
            if self.allowance is not None and self._deadline is not None:
                seconds = self.allowance.seconds
            return f"no answer came in {seconds:g} s"
        if isinstance(error, UnicodeError):
            return "no host can have this name"
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({error.verify_message})"
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return text[:1].lower() + text[1:] or type(error).__name__


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


def _ended(sock: socket.socket) -> bool:
    """Whether the other side closed an idle connection."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
