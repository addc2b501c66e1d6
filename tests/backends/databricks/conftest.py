"""A workspace that executes, and projects whose runs go there, through the real SDK."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.backends.databricks.api import connection as connection_module
from sgpu_decl.testing.workspace import ExecutionSettings, Offers, WorkspaceServer
from tests.backends.databricks.bench import DatabricksBench
from tests.support import require
from tests.workspace_login import log_in

require("databricks.sdk")

POLICY = "00000000-0000-0000-0000-00000000beef"
RUN = """\
name: hello
gpus: 2
type: A10
entrypoint: train.py:main
args: {n: 3}
grace: 500ms
env: {base: gpu-6}
backend: databricks
"""
CODE = """\
import os, sys
def main(n):
    print("hello from", os.environ["RANK"])
    print("and more", file=sys.stderr)
    return {"rank": int(os.environ["RANK"]), "n": n}
"""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkspaceServer]:
    """One for all tests of a process: its MLflow server takes seconds to come up. It has no single
    H100, and nobody waits long for one."""
    settings = ExecutionSettings(grace=1.0, capacity={"GPU_1xH100": 0}, queue_timeout=0.2)
    root = tmp_path_factory.mktemp("workspace")
    offers = Offers(policies=((POLICY, "team"),), service_principals=("sp",))
    with WorkspaceServer(root, execution=settings, offers=offers) as running:
        yield running


@pytest.fixture
def token(server: WorkspaceServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A user of the workspace; the environment says so to the SDK."""
    return log_in(server, monkeypatch, tmp_path)


@pytest.fixture
def tenant(server: WorkspaceServer, token: str) -> Path:
    """What the user's part of the workspace is on disk."""
    return server.tenants.of_token(token).folder


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str) -> Path:
    """A project with one run, `hello`; caches and the code store lie beside it."""
    for name in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setattr(connection_module, "RETRY_SECONDS", 20)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "run.yaml").write_text(RUN)
    (folder / "train.py").write_text(CODE)
    return folder


@pytest.fixture
def bench(project: Path, server: WorkspaceServer, token: str) -> DatabricksBench:
    return DatabricksBench(project, server, token)
