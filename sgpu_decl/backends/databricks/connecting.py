"""The connection to a workspace: the SDK's own authentication, begun early and bounded in time.

Importing the SDK takes a second, and its constructor asks the network, for minutes where a host is
silent. So both are done by a thread, and nobody waits for the client when the host has been asked
for longer than `PATIENCE`, however often somebody needs it.
"""

import logging
import os
import threading
import time
from concurrent.futures import Future
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sgpu_decl import __version__
from sgpu_decl.backends.databricks.account import Account, Login, login_of
from sgpu_decl.errors import BackendError, SgpuError

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

    from sgpu_decl.model.jsonable import Json

__all__ = ["PATIENCE", "RETRIES", "Connection"]

PATIENCE = 7.0  # seconds for a host to answer for the first time
_AT_A_BROWSER = 600.0
_HTTP = 60.0  # seconds without a byte
RETRIES = 60  # seconds in which the SDK tries again what it may


class Connection:
    """One workspace, as one user. `start` returns at once; `client`, `user` and those who ask
    something wait until it is there."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._made: Future[tuple[WorkspaceClient, str]] = Future()
        self._asking = threading.Event()  # the SDK is imported, and the host is being asked
        self._asked_at = 0.0  # by the monotonic clock
        self._lock = threading.Lock()
        self._login: Login | None = None
        self._begun = False

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
            BackendError: nothing says so.
        """
        with self._lock:
            if self._login is None:
                self._login = login_of(self._account, os.environ)
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
        return self._get()[0]

    @property
    def user(self) -> str:
        """The name of whoever the credentials belong to."""
        return self._get()[1]

    def explained(self, doing: str) -> AbstractContextManager[None]:
        """See `complaints.explained`."""
        from sgpu_decl.backends.databricks.complaints import explained

        return explained(doing, self.host)

    def ask(self, doing: str, path: str, /, **query: "Json") -> "dict[str, Any]":
        """A GET request; `doing` is for messages."""
        return self._do(doing, "GET", path, query=query)

    def tell(self, doing: str, path: str, body: "dict[str, Json]") -> "dict[str, Any]":
        """A POST request."""
        return self._do(doing, "POST", path, body=body)

    def _do(self, doing: str, method: str, path: str, **said: Any) -> "dict[str, Any]":
        client = self.client
        with self.explained(doing):
            answer = client.api_client.do(method, path, **said)
        return answer if isinstance(answer, dict) else {}

    def _get(self) -> "tuple[WorkspaceClient, str]":
        self.start()
        self._asking.wait()
        host = self.login.host
        patience = _AT_A_BROWSER if self.login.interactive else PATIENCE
        try:
            return self._made.result(max(0.0, self._asked_at + patience - time.monotonic()))
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
            self._made.set_result(_connected(login))
        except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
            self._made.set_exception(error)
        finally:
            self._asking.set()


def _connected(login: Login) -> "tuple[WorkspaceClient, str]":
    from databricks.sdk import WorkspaceClient
    from databricks.sdk.config import Config

    from sgpu_decl.backends.databricks.complaints import explained

    # What it fails to find out about a host is said by us, once.
    logging.getLogger("databricks.sdk").setLevel(logging.ERROR)
    doing = "connecting to the workspace"
    with explained(doing, login.host):
        try:
            config = Config(
                host=login.host, profile=login.profile, product="sgpu", product_version=__version__,
                http_timeout_seconds=PATIENCE / 2, retry_timeout_seconds=1,
            )  # fmt: skip
        except ValueError as error:
            raise BackendError(
                f"there are no credentials for `{login.host}`: {_first_sentence(error)}",
                hint=f"log in with `databricks auth login --host {login.host}`, or set "
                "`backend.profile`",
                code="no_credentials",
            ) from error
        user = WorkspaceClient(config=config).current_user.me().user_name
    # From here on it is known to answer, and may take its time.
    config.http_timeout_seconds = _HTTP
    config.retry_timeout_seconds = RETRIES
    return WorkspaceClient(config=config), str(user)


def _import_sdk() -> None:
    """Raises SgpuError where it is not installed."""
    if find_spec("databricks") is None or find_spec("databricks.sdk") is None:
        raise SgpuError(
            "runs on Databricks need the package `databricks-sdk`, which is not installed",
            hint="install it with `pip install 'sgpu[databricks]'`",
            code="sdk_missing",
        )
    import databricks.sdk  # noqa: F401


def _first_sentence(error: ValueError) -> str:
    return str(error).partition(". Config:")[0].partition("\n")[0]
