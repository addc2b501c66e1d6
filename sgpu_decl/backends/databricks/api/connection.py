"""The connection to a workspace: the SDK's own authentication, begun early and bounded in time.

Importing the SDK takes a second, and its constructor asks the network, for minutes where a host is
silent. So a thread does both. A plan waits for `PATIENCE` in all, however often it needs the
client. An apply waits for `FIRST_ANSWER`, since logins by `az`, by `databricks auth` or by OIDC
take seconds (evidence: A13).
"""

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import timedelta
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sgpu_decl import __version__
from sgpu_decl.backends.answer_cache import AnswerCache
from sgpu_decl.backends.databricks.api.account import Account, Login, login_of
from sgpu_decl.backends.databricks.api.sdk_errors import Rejected, explained
from sgpu_decl.backends.databricks.api.workspace_credentials import ExplainedLogin, checks_of
from sgpu_decl.distribution import extra_command
from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.model.jsonable import Json
from sgpu_decl.places.file_place import PlaceMissing

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient


PATIENCE = 7.0  # seconds for a host to answer for the first time, while a plan is made
FIRST_ANSWER = 60.0  # the same, when something is to be launched
_NOTICE = 2.0  # seconds between two notices that a command waits for an answer
_AT_A_BROWSER = 600.0
_SAME = 15.0  # seconds that two clocks may differ
_APPLICATION_ID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_WORKSPACE_ID = "X-Databricks-Org-Id"
_HTTP = 60.0  # seconds without a byte
RETRY_SECONDS = 60  # seconds in which the SDK repeats failed requests


def _no_notice(_: float) -> None:
    """For waits without notices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """Of requests, once a host has answered: seconds without a byte, and seconds in which what
    failed is tried again."""

    silence: float
    retry_seconds: int


class Connection:
    """One workspace, as one user. `start` returns at once; `client`, `user` and requests wait until
    it is there: for `patience` seconds, by default those of a plan, for the first answer."""

    def __init__(
        self, account: Account, limits: TimeLimits | None = None, *, patience: float | None = None
    ) -> None:
        self._account = account
        self._limits = limits
        self._own_patience = patience
        self._future: Future[_Connected] = Future()
        self._asking = threading.Event()  # the SDK is imported, and the host is being asked
        self._asked_at = 0.0  # by the monotonic clock
        self._lock = threading.Lock()
        self._login: Login | None = None
        self._begun = False
        self.answers = AnswerCache("databricks", lambda: (self.login.host, self.login.who))

    def start(self) -> None:
        """Begin to connect, unless that was begun before.

        Raises:
            BackendError: nothing says which workspace is meant.
        """
        login = self.login
        with self._lock:
            begun, self._begun = self._begun, True
        if not begun:
            threading.Thread(
                target=self._make, args=(login,), name="databricks-sdk", daemon=True
            ).start()

    @property
    def login(self) -> Login:
        """Which workspace is meant, and whose credentials; known without connecting.

        Raises:
            BackendError: no workspace is named, or a browser is needed without a terminal.
        """
        with self._lock:
            if self._login is None:
                login = login_of(self._account, os.environ)
                if login.interactive and not _is_interactive():
                    raise _needs_browser(login)
                self._login = login
            return self._login

    @property
    def host(self) -> str:
        """The workspace's URL. As `login`."""
        return self.login.host

    @property
    def client(self) -> "WorkspaceClient":
        """The SDK's client.

        Raises:
            BackendError: there is no connection, with the reason.
        """
        return self._get().client

    @property
    def user(self) -> str:
        """The name of the user that the credentials belong to."""
        return self._get().user

    @property
    def workspace_id(self) -> str | None:
        """The id of the workspace, as far as it says that (evidence: D6)."""
        return self._get().workspace_id

    @property
    def person(self) -> str:
        """The same for people: a service principal by its display name."""
        return self._get().person

    @property
    def ahead(self) -> float:
        """How many seconds the workspace's clock is ahead of this machine's, to the second; less
        than 0 where it is behind."""
        return self._get().ahead

    @property
    def ahead_as_known(self) -> float | None:
        """The same if there is a connection already, without waiting for one."""
        future = self._future
        connected = future.done() and future.exception() is None
        return future.result().ahead if connected else None

    def now(self) -> float:
        """The time by the workspace's clock, in seconds of the epoch, to compare with times that it
        gives."""
        return time.time() + self.ahead

    def close(self) -> None:
        """Close the sockets of a connection that was made. A later request opens others."""
        future = self._future
        if future.done() and future.exception() is None:
            _close_sockets(future.result().client)

    def explained(
        self, doing: str, hints: Mapping[str, str] = MappingProxyType({})
    ) -> AbstractContextManager[None]:
        """See `sdk_errors.explained`."""
        return explained(doing, self.host, hints)

    def ask(self, doing: str, path: str, /, **query: Json) -> dict[str, Any]:
        """A GET request; `doing` is for messages."""
        return self._do(doing, "GET", path, query=query)

    def find(
        self,
        doing: str,
        path: str,
        hints: Mapping[str, str] = MappingProxyType({}),
        /,
        **query: Json,
    ) -> dict[str, Any] | None:
        """A GET request; `None` if its object does not exist. `hints` are those of
        `sdk_errors.explained`."""
        try:
            return self._do(doing, "GET", path, hints, query=query)
        except PlaceMissing:
            return None

    def pages(self, doing: str, path: str, /, **query: Json) -> Iterator[dict[str, Any]]:
        """GET requests for all pages of a long answer."""
        known: set[str] = set()
        while True:
            page = self.ask(doing, path, **query)
            yield page
            query["page_token"] = token = page.get("next_page_token")
            if not token:
                return
            if token in known:
                raise BackendError(
                    f"{doing}: `{self.host}` names the same next page again: the list has no end",
                    hint="try again; if it stays so, report it to whoever runs the workspace",
                    code="remote_broken",
                )
            known.add(token)

    def tell(
        self,
        doing: str,
        path: str,
        body: dict[str, Json],
        *,
        method: str = "POST",
        hints: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """A request that changes something. `hints` are those of `sdk_errors.explained`."""
        return self._do(doing, method, path, hints, body=body)

    def tell_unless_gone(self, doing: str, path: str, body: dict[str, Json], *, look: str) -> None:
        """The same about an object that may have been deleted, which is no error.

        Args:
            look: the path of the API that reads the object. It is asked if the request is refused,
                since some APIs do not say that an object is gone.
        """
        try:
            self.tell(doing, path, body)
        except PlaceMissing:
            return
        except Rejected:
            if self.find(doing, look, **body) is not None:
                raise

    def _do(
        self,
        doing: str,
        method: str,
        path: str,
        hints: Mapping[str, str] = MappingProxyType({}),
        **content: Any,
    ) -> dict[str, Any]:
        client = self.client
        with self.explained(doing, hints):
            answer = client.api_client.do(method, path, **content)
        return answer if isinstance(answer, dict) else {}

    def await_answer(
        self, waiting: Callable[[float], None] = _no_notice, *, patience: float = FIRST_ANSWER
    ) -> None:
        """Wait for the first answer, by default as long as an apply does.

        Args:
            waiting: called every two seconds with the seconds since the request.
            patience: for how many seconds.

        Raises:
            BackendError: there is no connection, with the reason.
        """
        self.start()
        self._asking.wait()
        longest = self._patience(patience)
        while not self._future.done() and (waited := time.monotonic() - self._asked_at) < longest:
            wait([self._future], timeout=min(_NOTICE, longest - waited))
            if not self._future.done():
                waiting(time.monotonic() - self._asked_at)
        self._get(patience)

    def _patience(self, seconds: float) -> float:
        return _AT_A_BROWSER if self.login.interactive else seconds

    def _get(self, seconds: float | None = None) -> "_Connected":
        self.start()
        self._asking.wait()
        host = self.login.host
        chosen = (seconds, self._own_patience, PATIENCE)
        patience = self._patience(next(item for item in chosen if item is not None))
        try:
            return self._future.result(max(0.0, self._asked_at + patience - time.monotonic()))
        except TimeoutError:
            error = BackendError(
                f"`{host}` does not answer: nothing came in {patience:g} s",
                hint="see that the name is right and that this network reaches it (VPN, proxy, "
                "private link)",
                code="host_unreachable",
            )
            error.retryable = True
            raise error from None

    def _make(self, login: Login) -> None:
        try:
            _import_sdk()
            self._asked_at = time.monotonic()
            self._asking.set()
            limits = self._limits or TimeLimits(silence=_HTTP, retry_seconds=RETRY_SECONDS)
            self._future.set_result(_connected(login, limits))
        except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
            self._future.set_exception(error)
        finally:
            self._asking.set()


def _is_interactive() -> bool:
    """Whether a person would see a browser that opens: at a terminal or a notebook, not in CI."""
    if os.environ.get("CI", "").lower() not in ("", "0", "false"):
        return False
    if "ipykernel" in sys.modules:
        return True
    return any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def _needs_browser(login: Login) -> BackendError:
    option = f"--profile {login.profile}" if login.profile else f"--host {login.host}"
    return BackendError(
        f"`{login.host}` is logged in to with a browser (`auth_type` is `external-browser`), and "
        "there is no terminal to do so",
        hint=f"log in once with `databricks auth login {option}`, which keeps the login on this "
        "machine; in CI, set `DATABRICKS_CLIENT_ID` and `DATABRICKS_CLIENT_SECRET` of a service "
        "principal",
        code="no_credentials",
    )


@dataclass(frozen=True, slots=True)
class _Connected:
    client: "WorkspaceClient"
    workspace_id: str | None
    user: str
    person: str
    ahead: float


def _connected(login: Login, limits: TimeLimits) -> _Connected:
    from databricks.sdk import WorkspaceClient
    from databricks.sdk.config import Config

    # Its warnings about a host would repeat our own error.
    logging.getLogger("databricks.sdk").setLevel(logging.ERROR)
    doing = "connecting to the workspace"
    with explained(doing, login.host):
        try:
            config = Config(
                host=login.host, profile=login.profile, product="sgpu", product_version=__version__,
                http_timeout_seconds=FIRST_ANSWER, retry_timeout_seconds=1,
                credentials_strategy=ExplainedLogin(login.host),  # type: ignore[arg-type]  # a protocol of its
            )  # fmt: skip
        except ValueError as error:
            kind = f" of the kind `{login.kind}`" if login.kind else ""
            raise BackendError(
                f"there are no credentials{kind} for `{login.host}`: {_first_sentence(error)}",
                hint=checks_of(login.kind, login.host)
                or f"log in with `databricks auth login --host {login.host}`, or set "
                f"`{login.block}.profile`",
                code="no_credentials",
            ) from error
        first = WorkspaceClient(config=config)
        try:
            answer: dict[str, Any] = first.api_client.do(
                "GET", "/api/2.0/preview/scim/v2/Me", response_headers=["Date", _WORKSPACE_ID]
            )
        finally:
            _close_sockets(first)
    ahead = _ahead(answer.get("Date"))
    # From here on it is known to answer, and may take its time.
    config.http_timeout_seconds = limits.silence
    config.retry_timeout_seconds = limits.retry_seconds
    if ahead > 0:  # it judges by its own clock whether a link has expired
        config.files_ext_multipart_upload_url_expiration_duration += timedelta(seconds=ahead)
    client = WorkspaceClient(config=config)
    workspace_id = answer.get(_WORKSPACE_ID)
    return _Connected(client, workspace_id, str(answer["userName"]), person_of(answer), ahead)


def _close_sockets(client: "WorkspaceClient") -> None:
    """The SDK's client has no way to be closed, and refers to itself: its sockets would stay open
    until Python's collector runs, which may be never in a notebook with large libraries.

    Source: https://github.com/databricks/databricks-sdk-py/blob/main/databricks/sdk/_base_client.py
    """
    with suppress(AttributeError):  # a later SDK may name it otherwise
        client.api_client._api_client._session.close()


def person_of(answer: Mapping[str, Any]) -> str:
    """The name of a user of the SCIM API, for people. The user name of a service principal is its
    application id, a UUID: its display name is taken, as bundles do.

    Source: https://github.com/databricks/cli/blob/main/libs/iamutil/user.go
    """
    user = str(answer["userName"])
    is_id = _APPLICATION_ID.fullmatch(user) is not None
    return str(answer.get("displayName") or user) if is_id else user


def _ahead(date: str | None) -> float:
    """From the header `Date` (RFC 9110, 6.6.1) of an answer that has just come. What its seconds
    and the way of the answer can explain is no difference."""
    if date is None:
        return 0.0
    ahead = parsedate_to_datetime(date).timestamp() - time.time()
    return round(ahead) if abs(ahead) > _SAME else 0.0


def _import_sdk() -> None:
    """Raises SgpuError where it is not installed."""
    if find_spec("databricks") is None or find_spec("databricks.sdk") is None:
        raise SgpuError(
            "Databricks needs the package `databricks-sdk`, which is not installed",
            hint=f"install it with `{extra_command('databricks')}`",
            code="sdk_missing",
        )
    import databricks.sdk  # noqa: F401


def _first_sentence(error: ValueError) -> str:
    return str(error).partition(". Config:")[0].partition("\n")[0]
