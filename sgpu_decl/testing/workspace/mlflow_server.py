"""The MLflow server behind a workspace: one process, started when it is first asked for."""

import atexit
import json
import os
import secrets
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, BinaryIO

from sgpu_decl.testing.workspace.mlflow_program import KEY_HEADER, REQUEST_SIZE
from sgpu_decl.testing.workspace.programs import package_home
from sgpu_decl.testing.workspace.routes import ApiError

__all__ = ["Forwarded", "MlflowServer"]

_BLOCK = 1 << 18
_PAUSES = (0.05, 0.2, 0.8, 3.2)  # seconds
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
        self._process: _Server | None = None
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
        """Put a JSON request to the tracking API (`runs/create`), again where it answers 503: so do
        MLflow's clients, and its store in SQLite gives that answer if many write at once. Raises
        ApiError, as it answered last."""
        body = json.dumps(given).encode()
        target = f"/api/2.0/mlflow/{endpoint}"
        for pause in (*_PAUSES, 0.0):
            answer = self.forward(
                method, target, body=body, headers={"Content-Type": "application/json"}
            )
            said: dict[str, Any] = json.loads(answer.read())
            if answer.status != 503:
                break
            time.sleep(pause)
        if answer.status != 200:
            code, message = str(said.get("error_code")), str(said.get("message"))
            raise ApiError(answer.status, code, message)
        return said

    def close(self) -> None:
        """End the process. It answers nobody any more."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.close()
                self._process = None

    def _started(self) -> int:
        with self._lock:
            if self._closed:
                raise ApiError(503, "TEMPORARILY_UNAVAILABLE", "the workspace is shutting down")
            if self._process is None or self._process.ended:
                self._start()
            return self._port

    def _start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        log = self._folder / "mlflow.log"
        if self._process is not None:
            self._process.close()
        self._process = _PARENT.fork(self._folder, self._key, log)
        said = self._process.output.readline()
        if not said:
            last = log.read_text(errors="replace").strip().rpartition("\n")[2]
            message = f"the MLflow server of this emulator did not start: {last}"
            raise ApiError(503, "TEMPORARILY_UNAVAILABLE", message)
        self._port = int(said)


class _Server:
    """A process that ends when `life`, its stdin, is closed. Its `output` ends with it."""

    def __init__(self, life: int, output: BinaryIO) -> None:
        self._life = life
        self.output = output

    @property
    def ended(self) -> bool:
        """It writes its port alone, so there is something to read at its end only."""
        return bool(select.select([self.output], [], [], 0)[0])

    def close(self) -> None:
        os.close(self._life)
        with self.output:
            self.output.read()


class _Parent:
    """The process that all MLflow servers of this process are forked from."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None

    def fork(self, folder: Path, key: str, log: Path) -> _Server:
        """Return a server that is about to print its port, or an error to its log."""
        request = json.dumps({"folder": str(folder.resolve()), "key": key}).encode()
        assert len(request) <= REQUEST_SIZE  # noqa: S101  a path has 4,096 bytes at most
        stdin, life = os.pipe()
        output, stdout = os.pipe()
        with log.open("ab") as errors:
            descriptors = [stdin, stdout, errors.fileno()]
            try:
                with self._lock:
                    socket.send_fds(self._started(errors), [request], descriptors)
            except OSError:
                errors.write(b"the process that starts servers has ended\n")
            finally:
                os.close(stdin)
                os.close(stdout)
        return _Server(life, open(output, "rb", buffering=0))

    def _started(self, errors: BinaryIO) -> socket.socket:
        if self._requests is not None and self._process is not None:
            if self._process.poll() is None:
                return self._requests
            self.close()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _PROGRAM],
                stdin=theirs.fileno(), stdout=subprocess.DEVNULL, stderr=errors, cwd="/",
                start_new_session=True, env=_environment(),
            )  # fmt: skip
        return self._requests

    def close(self) -> None:
        """End the process, and wait for that."""
        if self._requests is not None and self._process is not None:
            self._requests.close()
            self._process.wait()
            self._requests = self._process = None


_PARENT = _Parent()
atexit.register(_PARENT.close)


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
