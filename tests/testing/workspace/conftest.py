"""One emulated workspace for all tests of a process; each test is a tenant of its own."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.testing.workspace import ExecutionSettings, WorkspaceServer
from tests.support import PATIENCE

databricks = pytest.importorskip("databricks.sdk")


@dataclass
class Clock:
    """The SDK's own door for time: it waits between tries by it. Nobody waits here."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


@dataclass
class Answer:
    status: int
    headers: Message
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def call(
    method: str, url: str, *, token: str | None = None, data: Any = None, **headers: str
) -> Answer:
    """One request without the SDK; `data` is bytes, or what becomes JSON."""
    if data is not None and not isinstance(data, bytes):
        headers["Content-Type"] = "application/json"
        data = json.dumps(data).encode()
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data=data, method=method, headers=named)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return Answer(response.status, response.headers, response.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers, error.read())


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkspaceServer]:
    """Its MLflow server takes seconds to come up, so there is one for all. Nodes that are stopped
    have all the time they need."""
    settings = ExecutionSettings(capacity={"GPU_8xH100": 8}, grace=60)
    with WorkspaceServer(tmp_path_factory.mktemp("workspace"), execution=settings) as running:
        yield running


@pytest.fixture(autouse=True)
def no_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What this machine's user has set up for a workspace is not looked at."""
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", str(tmp_path / "none"))
    for name in ("HOST", "TOKEN", "CLIENT_ID", "CLIENT_SECRET", "CONFIG_PROFILE"):
        monkeypatch.delenv(f"DATABRICKS_{name}", raising=False)


@pytest.fixture
def token(server: WorkspaceServer) -> str:
    return server.new_token()


def client_of(url: str, token: str, **settings: Any) -> Any:
    config = databricks.config.Config(
        host=url, token=token, http_timeout_seconds=PATIENCE, retry_timeout_seconds=30,
        clock=Clock(), **settings,
    )  # fmt: skip
    return databricks.WorkspaceClient(config=config)


@pytest.fixture
def client(server: WorkspaceServer, token: str) -> Any:
    return client_of(server.url, token)


@pytest.fixture
def api(server: WorkspaceServer, token: str) -> Callable[..., Answer]:
    def ask(method: str, path: str, data: Any = None, **headers: str) -> Answer:
        return call(method, server.url + path, token=token, data=data, **headers)

    return ask
