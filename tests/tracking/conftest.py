"""What tests of tracking share: the tables of a store, made once, and one real tracking server.

A test reaches the server through a door of its own, which it can close and open again.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.host.ports import claim_port
from sgpu_decl.agent.system.host_locks import host_lock_folder
from tests.cli.conftest import Shell, sgpu
from tests.support import PATIENCE, require

__all__ = ["Door", "sgpu"]


@pytest.fixture(scope="session")
def mlflow_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that empty stores are kept in: MLflow takes seconds to make one. All processes of
    one run of the tests share it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / "mlflow-tables"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def server_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a real `mlflow server`, which lasts as long as the tests."""
    require("mlflow")
    folder = tmp_path_factory.mktemp("mlflow-server")
    port, lock = free_port()
    words = [
        "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}",
        "--artifacts-destination", str(folder / "artifacts"),
    ]  # fmt: skip
    quiet = {
        "GIT_PYTHON_REFRESH": "quiet",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # four more processes, for no test
    }
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env={**os.environ, **quiet},
            start_new_session=True,
        )
    try:
        _await_health(port, process, folder / "server.log")
        yield port
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(lock)


def _await_health(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)


def free_port() -> tuple[int, int]:
    """A port that stays free while nothing listens on it, as long as the descriptor is open: the
    kernel would give one of its own to the next program that asks."""
    return claim_port(host_lock_folder("ports"), os.getpid())


class Door:
    """A port that leads to the server while it is open; who knocks at a closed one is refused."""

    def __init__(self, behind: int, port: int) -> None:
        self._behind = behind
        self._listener: socket.socket | None = None
        self.port = port

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> None:
        listener = self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._serve, args=(listener,), daemon=True).start()

    def close(self) -> None:
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None

    def ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask the server itself, whether the door is open or not. Without a body, it is a GET."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._behind}/api/2.0/mlflow/{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return dict(json.loads(answer.read()))

    def runs(self, attempt: str) -> list[dict[str, Any]]:
        """The server's runs of that name, all experiments searched."""
        found = self.ask("experiments/search", {"max_results": 1000})["experiments"]
        body = {
            "experiment_ids": [item["experiment_id"] for item in found],
            "filter": f"attributes.run_name = '{attempt}'",
        }
        return list(self.ask("runs/search", body).get("runs", ()))

    def _serve(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                guest, _ = listener.accept()
                threading.Thread(target=self._let_through, args=(guest,), daemon=True).start()

    def _let_through(self, guest: socket.socket) -> None:
        with guest, socket.create_connection(("127.0.0.1", self._behind)) as host:
            back = threading.Thread(target=_pass_on, args=(host, guest), daemon=True)
            back.start()
            _pass_on(guest, host)
            back.join()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def door(server_port: int) -> Iterator[Door]:
    port, lock = free_port()
    made = Door(server_port, port)
    made.open()
    yield made
    made.close()
    os.close(lock)


@pytest.fixture
def project(sgpu: Shell, mlflow_tables: Path) -> Shell:
    """An empty project whose user has the tables of MLflow's store already."""
    cache = Path(sgpu.environ["XDG_CACHE_HOME"]) / "sgpu"
    cache.mkdir(parents=True)
    (cache / "mlflow").symlink_to(mlflow_tables)
    for name in [item for item in sgpu.environ if item.startswith("MLFLOW_")]:
        del sgpu.environ[name]
    return sgpu
