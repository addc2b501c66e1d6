"""A client that nobody here wrote: the `air` command of the package `databricks-air`."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.testing.workspace import WorkspaceServer
from tests.support import REGEN
from tests.testing.workspace.conftest import call
from tests.testing.workspace.sessions import recorded, replay

_AIR = os.environ.get("SGPU_TEST_AIR") or shutil.which("air")

_SESSION = Path(__file__).with_name("air_session.json")
_RECORDED_AS = "dapi-session-of-air"

_RUN = """
experiment_name: hello-air
compute: {num_accelerators: 2, accelerator_type: GPU_1xA10}
environment: {version: "5", dependencies: []}
env_variables: {GREETING: hello}
parameters: {lr: 0.5}
code_source: {type: snapshot, snapshot: {root_path: ./code}}
max_retries: 0
timeout_minutes: 10
command: |
  echo "$GREETING from node $NODE_RANK of $NUM_NODES"
  cat "$CODE_SOURCE_PATH/note.txt" "$HYPERPARAMETERS_PATH"
"""


@pytest.fixture
def air(server: WorkspaceServer, token: str, tmp_path: Path) -> Any:
    """Runs `air`; what it says on stdout, as JSON where it is asked for that."""
    return _air(server.url, token, tmp_path)


def _air(url: str, token: str, tmp_path: Path) -> Any:
    if _AIR is None:
        pytest.skip("`air` of databricks-air 1.2.1 is not on the PATH, nor named by SGPU_TEST_AIR")
    kept = {name: text for name, text in os.environ.items() if not name.startswith("DATABRICKS_")}
    environment = {
        **kept, "DATABRICKS_HOST": url, "DATABRICKS_TOKEN": token, "HOME": str(tmp_path),
        "AIR_DISABLE_TELEMETRY": "1",
    }  # fmt: skip
    (tmp_path / "code").mkdir()
    (tmp_path / "code/note.txt").write_text("from the code\n")
    (tmp_path / "run.yaml").write_text(_RUN)

    def run(*words: str, code: int = 0) -> str:
        said = subprocess.run(
            [str(_AIR), *words], env=environment, cwd=tmp_path, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert said.returncode == code, said.stdout + said.stderr
        return said.stdout

    return run


def test_a_run_is_submitted_followed_and_looked_at(
    air: Any, server: WorkspaceServer, token: str, tmp_path: Path
) -> None:
    events = [
        json.loads(line) for line in air("--json", "run", "-f", "run.yaml", "--watch").splitlines()
    ]
    run_id = events[0]["run_id"]
    assert [one["line"] for one in events if one.get("type") == "LOG"] == [
        "hello from node 0 of 2", "from the code", "lr: 0.5",
    ]  # fmt: skip
    assert events[-1]["data"]["status"] == "SUCCESS"
    shown = json.loads(air("--json", "get", "run", run_id))["data"]
    assert (shown["status"], shown["experiment_name"]) == ("SUCCESS", "hello-air")
    assert "hello from node 1 of 2" in air("logs", run_id, "--node", "1")
    air("logs", run_id, "--download-to", "logs")
    for node in range(2):
        text = (tmp_path / f"logs/logs/node_{node}.log").read_text()
        assert text.startswith(f"hello from node {node} of 2")
    assert run_id in air("--json", "list", "runs", "--all-status")
    asked = json.loads(call("GET", f"{server.url}/__testserver/requests", token=token).body)
    assert [one for one in asked["requests"] if one["status"] >= 400] == []


@pytest.mark.expensive
def test_a_session_that_was_recorded_is_answered_alike(tmp_path: Path) -> None:
    """Recorded with `air` itself, where SGPU_REGEN=1 asks for it; played without it."""
    with WorkspaceServer(tmp_path / "workspace") as server:
        server.admit(_RECORDED_AS)
        if REGEN:
            with recorded(server.url) as (url, passed):
                air = _air(url, _RECORDED_AS, tmp_path)
                run_id = json.loads(
                    air("--json", "run", "-f", "run.yaml", "--watch").splitlines()[0]
                )["run_id"]
                air("--json", "get", "run", run_id)
                air("logs", run_id, "--node", "1")
                air("logs", run_id, "--download-to", "logs")
                air("--json", "list", "runs", "--all-status")
            _SESSION.write_text(json.dumps(passed, indent=1) + "\n")
        else:
            replay(json.loads(_SESSION.read_text()), server.url, _RECORDED_AS)


def test_a_run_that_fails_is_told_as_failed(air: Any, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(_RUN.replace("  cat", "  exit 3; cat"))
    said = air("--json", "run", "-f", "run.yaml", "--watch", code=1)
    assert '"FAILED"' in said


def test_a_run_is_cancelled(air: Any, server: WorkspaceServer, token: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(_RUN + "  sleep 1000\n")
    said = json.loads(air("--json", "run", "-f", "run.yaml"))["data"]
    air("cancel", said["run_id"])
    tenant = server.tenants.of_token(token)
    server.services[0].runner.wait(tenant, [int(said["run_id"])])  # type: ignore[attr-defined]
    shown = json.loads(air("--json", "get", "run", said["run_id"]))["data"]
    assert shown["status"] == "CANCELED"
