"""The HTTP API of Ray's dashboard, over one connection, and its refusals in words.

The token is sent once the dashboard has refused a request without one. So a dashboard that asks for
none never gets it, and `requires_token` is known. A GET is sent once more if its answer was lost or
the dashboard was busy. A request that changes something is never repeated here: `OutcomeUnknown`
says that its answer was lost.
"""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import dropwhile
from typing import Any, TypeVar
from urllib.parse import urlencode

from sgpu_decl import __version__
from sgpu_decl.backends.ray.api.dashboard_address import DEFAULT_ADDRESS, DashboardAddress
from sgpu_decl.backends.ray.api.dashboard_connection import (
    Answer,
    ConnectionLost,
    DashboardConnection,
    Deadline,
    TimeBudget,
    is_budgeted,
)
from sgpu_decl.backends.ray.api.dashboard_credentials import TOKEN_PLACES, Credentials
from sgpu_decl.errors import BackendError, OutcomeUnknown
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.ray_size import OLDEST_RAY
from sgpu_decl.places.file_place import PlaceMissing

_AGAIN = 0.5  # seconds until a dashboard that was busy is asked again
_PAUSE = 10.0  # seconds for which a dashboard that was silent is not asked again
_SHOWN = 300  # characters of an answer in a message
_TRACEBACK = "Traceback (most recent call last):"
_REFUSALS = (401, 403)
_BUSY = (429, 502, 503, 504)  # of proxies in front of it, too
VERSION = "/api/version"
_T = TypeVar("_T")


class Refused(BackendError):
    """The dashboard answers, and does not do what it was asked to. `status` is that of HTTP. Ray
    answers 500 to requests that are wrong, too."""

    code = "remote_refused"
    asked_wrong = True

    def __init__(self, message: str, *, hint: str | None, status: int) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class Dashboard:
    """The dashboard of one cluster. Calls may come from several threads, and take turns. After it
    was silent to a GET, calls fail at once for ten seconds.

    Paths begin with a slash and are relative to the address. Each call raises BackendError if the
    dashboard does not answer (`host_unreachable`), does not accept the token (`unauthenticated`),
    or refuses (`Refused`; PlaceMissing for 404).
    """

    def __init__(
        self,
        address: DashboardAddress,
        credentials: Credentials,
        budget: TimeBudget | None = None,
    ) -> None:
        """Nothing is asked yet. Requests that do not count in a budget have no limit but 60 s
        without a byte."""
        self.address = address
        self.credentials = credentials
        self.budget = budget
        self._lock = threading.RLock()
        self._connection = DashboardConnection(address)
        self._requires_token: bool | None = None
        self._deadline: Deadline | None = None
        self._silence: tuple[float, str] | None = None

    @property
    def requires_token(self) -> bool | None:
        """Whether it refuses requests without a token; None before the first answer."""
        return self._requires_token

    @property
    def has_token(self) -> bool:
        return self.credentials.token is not None

    def get(self, path: str, /, **query: str | int) -> Json:
        """The JSON answer of a path that every dashboard has."""
        try:
            return self.parsed(path, self._request("GET", path, query=query).body)
        except PlaceMissing as error:
            raise self.unknown_answer(path, "404") from error

    def find(self, path: str, /, **query: str | int) -> Json:
        """The JSON that a path answers with; None if its object does not exist."""
        try:
            return self.parsed(path, self._request("GET", path, query=query).body)
        except PlaceMissing:
            return None

    def has(self, path: str, /) -> bool | None:
        """Whether the dashboard has a path. None if this request has shown that a token is
        required: it is not sent once more with the token."""
        with self._turn():
            learning = self._requires_token is None
            answer = self._deliver("GET", path, None, None)
        if learning and self._requires_token and self.has_token:
            return None
        if answer.status in (200, 404):
            return answer.status == 200
        raise self._refusal(f"GET {path}", answer)

    def read(self, path: str, /, **query: str | int) -> bytes:
        """The bytes that a path answers with."""
        return self._request("GET", path, query=query).body

    def put(self, path: str, content: bytes, /) -> None:
        """Write a value. Raises OutcomeUnknown, too."""
        self._request("PUT", path, content=content, kind="application/octet-stream")

    def post(self, path: str, body: Mapping[str, Json], /) -> Json:
        """Send JSON, and return the JSON of the answer. Raises OutcomeUnknown, too."""
        content = json.dumps(body).encode()
        answer = self._request("POST", path, content=content, kind="application/json")
        return self.parsed(path, answer.body)

    def apart(self) -> "Dashboard":
        """The same dashboard by a connection of its own, for a request that takes long."""
        other = Dashboard(self.address, self.credentials)
        other._requires_token = self._requires_token
        return other

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
        if kind is float and isinstance(answer, int):
            answer = float(answer)
        if answer is None or isinstance(answer, kind):
            return answer
        shown = _line(json.dumps(answer))
        raise self.unknown_answer(request, f"a `{path}` of another kind: {shown}")

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def __del__(self) -> None:
        self.close()  # of a survey, which nobody closes

    def parsed(self, request: str, content: bytes) -> Json:
        """The JSON of an answer. Raises BackendError (`not_ray_dashboard`) if it is none."""
        try:
            value: Json = json.loads(content)
        except ValueError:
            raise self.unknown_answer(request, f"no JSON: {_summary(content)}") from None
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
        where = "where the run was submitted"
        if url == DEFAULT_ADDRESS:
            where = "the default"
            if self.address.passed_over:
                where += f" (`{self.address.passed_over}` names no dashboard, and is not used)"
        return f"`{url}`, {where},"

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        content: bytes | None = None,
        kind: str | None = None,
    ) -> Answer:
        target = f"{path}?{urlencode(query)}" if query else path
        with self._turn():
            if method != "GET" and self.has_token and self._requires_token is None:
                # A request that changes something is not sent twice to find that out.
                self._deliver("GET", VERSION, None, None)
            learning = self._requires_token is None
            answer = self._deliver(method, target, content, kind)
            if learning and self._requires_token and self.has_token:
                answer = self._deliver(method, target, content, kind)
            if answer.status in _BUSY and method == "GET":
                time.sleep(_AGAIN)
                answer = self._deliver(method, target, content, kind)
        if answer.status == 200:
            return answer
        raise self._refusal(f"{method} {path}", answer)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the lock for one caller, and take the time of its requests off the budget."""
        with self._lock:
            started = time.monotonic()
            budget = self.budget if is_budgeted() else None
            self._deadline = None
            if budget is not None:
                self._deadline = Deadline(at=started + budget.left, seconds=budget.seconds)
            try:
                yield
            finally:
                if budget is not None:
                    budget.left -= time.monotonic() - started

    def _deliver(self, method: str, target: str, content: bytes | None, kind: str | None) -> Answer:
        """Send a request once, with the token if that is known to be required, and name what became
        of it if there is no answer. The caller has the turn."""
        if self._silence is not None:
            until, reason = self._silence
            if time.monotonic() < until:
                raise self._unreachable(reason)
            self._silence = None
        headers = {"User-Agent": f"sgpu/{__version__}", **self.credentials.headers}
        if kind is not None:
            headers["Content-Type"] = kind
        if self._requires_token:
            headers |= self.credentials.authorization
        try:
            answer = self._connection.request(method, target, headers, content, self._deadline)
        except ConnectionLost as lost:
            # After a request whose answer was lost, the next one asks what became of it.
            if lost.silent and method == "GET":
                self._silence = (time.monotonic() + _PAUSE, str(lost))
            if lost.sent and method != "GET":
                raise OutcomeUnknown(
                    f"the answer of `{self.address.url}` to `{method} {target}` was lost: {lost}",
                    hint="apply again: sgpu finds the launched run and does not launch it twice",
                ) from lost
            raise self._unreachable(str(lost)) from lost
        if self._requires_token is None and answer.status in (200, 404, *_REFUSALS):
            self._requires_token = answer.status in _REFUSALS  # a proxy may give other answers
        return answer

    def _unreachable(self, reason: str) -> BackendError:
        proxy = self._connection.proxy
        if proxy is not None:
            reason += f" (by the proxy `{proxy.host}:{proxy.port}` of `{proxy.variable}`)"
        error = BackendError(
            f"`{self.address.url}` does not answer: {reason}",
            hint=f"see that {self._named} is right, that this network reaches it, and that the "
            "cluster has `ray[default]`: plain `ray` has no dashboard",
            code="host_unreachable",
        )
        error.retryable = True
        return error

    def _refusal(self, request: str, answer: Answer) -> BackendError:
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
                f"`{url}` is not available now: it answers {status} ({_summary(answer.body)})",
                hint="try again in a minute",
                code="unavailable",
            )
            error.retryable = True
            return error
        message = f"`{url}` answers {status} to `{request}`: {_summary(answer.body)}"
        if status == 404:
            return PlaceMissing(message, hint=f"see that {self._named} is Ray's dashboard")
        return Refused(message, hint="see the dashboard's log on the head node", status=status)

    def _unauthenticated(self, answer: Answer) -> BackendError:
        source = self.credentials.source
        if source is None:
            message = f"`{self.address.url}` needs a token, and none was found"
            hint = f"it was looked for in {TOKEN_PLACES}"
        else:
            message = f"`{self.address.url}` does not accept the token of {source}"
            hint = f"the token is the first of {TOKEN_PLACES}; use that of the cluster"
        return BackendError(
            f"{message}: {_summary(answer.body)}", hint=hint, code="unauthenticated"
        )


def _summary(content: bytes) -> str:
    """The first characters of an answer in one line; of a traceback, those of its last exception.
    Ray sends tracebacks with 500: `job_head.py` in `ray/dashboard/modules/job`."""
    text = content.decode(errors="replace")
    _, found, last = text.rpartition(_TRACEBACK)
    if found:
        after = dropwhile(lambda line: line[:1] in ("", " "), last.splitlines())
        text = "\n".join(after) or text
    return _line(text)


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
