"""The MLflow server behind a workspace: one process, started when it is first asked for."""

import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, BinaryIO

from sgpu_decl.testing.workspace.mlflow_program import KEY_HEADER
from sgpu_decl.testing.workspace.programs import package_home
from sgpu_decl.testing.workspace.routes import ApiError

__all__ = ["Forwarded", "MlflowServer"]

_BLOCK = 1 << 18
_PROGRAM = "sgpu_decl.testing.workspace.mlflow_program"


class Forwarded:
    """An answer of the MLflow server that is still to be read."""

    def __init__(self, connection: HTTPConnection, response: HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        self.status = response.status
        self.content_type = response.getheader("Content-Type") or ""

    def read(self) -> bytes:
        """All of it."""
        try:
            return self._response.read()
        finally:
            self._connection.close()

    def blocks(self) -> Iterator[bytes]:
        """All of it, block by block."""
        try:
            while block := self._response.read(_BLOCK):
                yield block
        finally:
            self._connection.close()


class MlflowServer:
    """Keeps experiments, runs and artifacts below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.artifacts = folder / "artifacts"
        self._folder = folder
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._key = secrets.token_hex(16)
        self._closed = False

    def forward(
        self,
        method: str,
        target: str,
        *,
        body: BinaryIO | bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Forwarded:
        """Put a request to it. Raises ApiError, 503, where it cannot be started."""
        connection = HTTPConnection("127.0.0.1", self._started(), timeout=60)
        connection.request(
            method, target, body=body, headers={**(headers or {}), KEY_HEADER: self._key}
        )
        return Forwarded(connection, connection.getresponse())

    def ask(self, method: str, endpoint: str, given: Mapping[str, object]) -> dict[str, Any]:
        """Put a JSON request to the tracking API (`runs/create`). Raises ApiError, as it
        answered."""
        body = json.dumps(given).encode()
        target = f"/api/2.0/mlflow/{endpoint}"
        answer = self.forward(
            method, target, body=body, headers={"Content-Type": "application/json"}
        )
        said: dict[str, Any] = json.loads(answer.read())
        if answer.status != 200:
            code, message = str(said.get("error_code")), str(said.get("message"))
            raise ApiError(answer.status, code, message)
        return said

    def close(self) -> None:
        """End the process, and wait for that."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.communicate()
                self._process = None

    def _started(self) -> int:
        with self._lock:
            if self._closed:
                raise ApiError(503, "TEMPORARILY_UNAVAILABLE", "the workspace is shutting down")
            if self._process is None or self._process.poll() is not None:
                self._start()
            return self._port

    def _start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        log = self._folder / "mlflow.log"
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _PROGRAM, str(self._folder)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=self._folder,
                start_new_session=True, env=_environment(),
            )  # fmt: skip
        assert self._process.stdout is not None  # noqa: S101  it was asked for as a pipe
        assert self._process.stdin is not None  # noqa: S101  as well
        self._process.stdin.write(f"{self._key}\n".encode())
        self._process.stdin.flush()
        said = self._process.stdout.readline()
        if not said:
            last = log.read_text(errors="replace").strip().rpartition("\n")[2]
            message = f"the MLflow server of this emulator did not start: {last}"
            raise ApiError(503, "TEMPORARILY_UNAVAILABLE", message)
        self._port = int(said)


def _environment() -> dict[str, str]:
    """Ours, less what would make MLflow a client of somebody, and with this package to be found."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MLFLOW_", "_MLFLOW_", "DATABRICKS_"))
    }
    where = str(package_home())
    known = kept.get("PYTHONPATH")
    return {**kept, "PYTHONPATH": f"{where}{os.pathsep}{known}" if known else where}
