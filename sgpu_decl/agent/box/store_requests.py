"""The MLflow store of a project on this machine: its metrics, and MLflow's pages of it, for a
browser on another machine. The connection that asks for pages leads it to their port, and they end
with it."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from sgpu_decl.agent.attempt.attempt_files import SPEC, read_json
from sgpu_decl.agent.box.attempt_requests import attempt_folder
from sgpu_decl.agent.box.wire import BoxRefusal
from sgpu_decl.agent.host.ports import claim_port
from sgpu_decl.agent.system.host_locks import host_lock_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Answer = tuple[dict[str, Any], bytes]

PATIENCE = 120.0
"""Seconds in which MLflow listens: it takes five where nothing else runs."""

_HOST = "127.0.0.1"
_PAUSE = 0.05
_HAS = "import sys; from importlib.util import find_spec; sys.exit(find_spec('mlflow') is None)"
_ENVIRONMENT = {
    "PYTHONSAFEPATH": "1",  # nothing in a working folder shadows MLflow
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # Processes for jobs of its own, which nobody asks for here:
    # https://mlflow.org/docs/latest/api_reference/python_api/mlflow.environment_variables.html
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}
_STORE = "mlflow.db"  # `tracking.store_location` names it so
_locks: list[int] = []


def read_store(root: str, message: dict[str, Any], _content: object) -> Answer:
    """The `rows` that a `statement` of SQL finds in the store of the project with the attempt in
    `folder`, with `values` for its marks. It can only read."""
    path = os.path.join(_state(attempt_folder(root, message)), _STORE)
    try:
        with closing(sqlite3.connect(f"{Path(path).as_uri()}?mode=ro", uri=True)) as db:
            rows = db.execute(message["statement"], message["values"]).fetchall()
    except sqlite3.Error as error:
        raise OSError(f"`{path}`: {error}") from error
    return {"rows": rows}, b""


def has_mlflow(_root: str, _message: dict[str, Any], _content: object) -> Answer:
    """Whether this Python has MLflow, as `has`."""
    return {"has": _has_mlflow(sys.executable)}, b""


def claim_loopback_port(_root: str, _message: dict[str, Any], _content: object) -> Answer:
    """`port` is one that no run gets while this program lives."""
    port, lock = claim_port(host_lock_folder("ports"), int.from_bytes(os.urandom(4), "big"))
    _locks.append(lock)
    return {"port": port}, b""


def serve_store(root: str, message: dict[str, Any], _content: object) -> Answer:
    """Serve pages at a `port` of the loopback address while this program lives. `words` are those
    of MLflow's command. It is run by the Python of the attempt in `folder`, as that has the MLflow
    which the store fits, or by this one."""
    folder = attempt_folder(root, message)
    spec = read_json(folder, SPEC) or {}
    pythons = list(dict.fromkeys([str(spec.get("python", sys.executable)), sys.executable]))
    python = next(filter(_has_mlflow, pythons), None)
    if python is None:
        named = " nor ".join(f"`{one}`" for one in pythons)
        missing = f"neither {named} has MLflow" if len(pythons) > 1 else f"{named} has no MLflow"
        raise BoxRefusal("mlflow_missing", missing)
    port = int(message["port"])
    log = tempfile.TemporaryFile()  # noqa: SIM115  as long as this program
    server = subprocess.Popen(
        [python, "-m", *message["words"], "--host", _HOST, "--port", str(port), "--workers", "1"],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd=_state(folder),
        env={**os.environ, **_ENVIRONMENT},
    )
    deadline = time.monotonic() + PATIENCE
    while server.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection((_HOST, port), timeout=1.0).close()
        except OSError:
            time.sleep(_PAUSE)
        else:
            return {}, b""
    server.kill()
    log.seek(0)
    last = log.read().decode(errors="replace").strip().rpartition("\n")[2]
    why = last or f"exit code {server.wait()}"
    raise ChildProcessError(f"MLflow of `{python}` does not serve its pages: {why}")


def _state(attempt: str) -> str:
    """The folder of a state, which has its store beside the folders of its runs."""
    return os.path.normpath(os.path.join(attempt, "../../.."))


def _has_mlflow(python: str) -> bool:
    environ = {**os.environ, **_ENVIRONMENT}
    try:
        asked = subprocess.run([python, "-c", _HAS], stdin=subprocess.DEVNULL, cwd="/", env=environ)
    except OSError:
        return False  # it was deleted, with its environment
    return asked.returncode == 0


OPERATIONS = {
    "has_mlflow": has_mlflow,
    "read_store": read_store,
    "claim_loopback_port": claim_loopback_port,
    "serve_store": serve_store,
}
