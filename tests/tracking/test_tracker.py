"""The tracker against real MLflow and a real store; slow to import, so few and broad."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.tracking.run_description import tracking_request
from sgpu_decl.tracking.store_location import default_uri
from sgpu_decl.tracking.tracking_request import FILE, to_json, tracker_spec
from tests.support import PATIENCE, require, until

require("mlflow")
pytestmark = pytest.mark.mlflow

SPEC = Spec.of({"gpus": 2, "args": {f"a{n}": n for n in range(130)}})
USER_CODE = """
import mlflow
with mlflow.start_run():
    mlflow.log_metric("loss", 0.5, step=3)
    mlflow.log_param("gpus", "mine")
mlflow.end_run("FINISHED")
"""


def start(home: Path, number: int, **changes: Any) -> "tuple[Path, subprocess.Popen[bytes]]":
    """Start a tracker as the supervisor does; return the attempt folder and the process."""
    folder = home.parent / "runs" / str(number)
    folder.mkdir(parents=True)
    given: dict[str, Any] = {
        "ref": AttemptRef(Address.run("train"), number),
        "spec": SPEC,
        "home": home,
        "base": home.parent,
        "token": f"t{number}",
        "experiment": None,
        "names_experiment": False,
        "run_name": None,
        "tracking_uri": None,
        "system_metrics": False,
        "facts": {"lineage": "L"},
        "tags": {"team": "vision"},
    }
    (folder / FILE).write_text(to_json(tracking_request(**{**given, **changes})))
    spec = tracker_spec(enabled=True)
    assert spec is not None
    with (folder / "tracker.log").open("wb") as log:
        process = subprocess.Popen(
            spec["argv"],
            env={**os.environ, **spec["env"], "SGPU_RUN_DIR": str(folder)},
            stdin=subprocess.PIPE,
            stderr=log,
            cwd=folder,
        )
    return folder, process


def told(folder: Path, process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    """Return what `mlflow.json` tells the ranks, as soon as it is there."""
    deadline = time.monotonic() + PATIENCE
    while not (folder / "mlflow.json").exists():
        assert time.monotonic() < deadline, (folder / "tracker.log").read_text()
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        break
    return json.loads((folder / "mlflow.json").read_text())


def finish(folder: Path, process: "subprocess.Popen[bytes]", state: str | None) -> None:
    """End the attempt with a state (None: its supervisor died), then the tracker's pipe."""
    if state is not None:
        (folder / "outcome.json").write_text(
            json.dumps({"state": state, "ended_at": "2026-01-01T00:00:00Z", "ranks": []})
        )
    process.stdin.close()
    assert process.wait(PATIENCE) == 0, (folder / "tracker.log").read_text()


def recorded(home: Path, run_id: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(default_uri(home)).get_run(run_id)


def test_metrics_of_a_rank_land_in_the_run_and_its_status_is_the_attempts(tmp_path: Path) -> None:
    home = tmp_path / ".sgpu"
    folder, process = start(home, 8)
    tells = told(folder, process)
    subprocess.run(
        [sys.executable, "-c", USER_CODE], env={**os.environ, **tells["env"]}, check=True
    )
    finish(folder, process, "failed")

    run = recorded(home, tells["run_id"])
    assert run.info.status == "FAILED"
    assert run.info.end_time == 1767225600000
    assert run.info.run_name == "train#8"
    assert run.info.artifact_uri.startswith(str(home / "mlartifacts"))
    assert run.data.metrics == {"loss": 0.5}
    assert run.data.params["sgpu.gpus"] == "2"
    assert run.data.params["gpus"] == "mine"
    assert run.data.params["sgpu.args.a129"] == "129"
    assert run.data.tags["team"] == "vision"
    assert run.data.tags["sgpu.address"] == "run.train"
    assert run.data.tags["sgpu.state"] == "failed"
    assert oct((folder / "mlflow.json").stat().st_mode & 0o777) == "0o600"


def test_trackers_that_meet_on_a_new_store_share_it(tmp_path: Path) -> None:
    home = tmp_path / ".sgpu"
    ends = {1: ("succeeded", "FINISHED"), 2: ("cancelled", "KILLED"), 3: (None, "FAILED")}
    started = {number: start(home, number) for number in ends}
    tells = {number: told(*pair) for number, pair in started.items()}
    for number, (state, _) in ends.items():
        finish(*started[number], state)
    assert len({told["experiment_id"] for told in tells.values()}) == 1
    for number, (_, status) in ends.items():
        assert recorded(home, tells[number]["run_id"]).info.status == status


@pytest.mark.expensive
def test_the_use_of_the_machine_is_recorded_while_the_attempt_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    home = tmp_path / ".sgpu"
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.1")
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLES_BEFORE_LOGGING", "1")
    folder, process = start(home, 1, system_metrics=True)
    run_id = told(folder, process)["run_id"]
    client = MlflowClient(default_uri(home))
    until(
        lambda: client.get_metric_history(run_id, "system/cpu_utilization_percentage"),
        (folder / "tracker.log").read_text,
    )
    finish(folder, process, "succeeded")
    assert recorded(home, run_id).info.status == "FINISHED"


@pytest.mark.expensive
def test_a_store_that_refuses_the_run_is_replaced_by_the_local_one(tmp_path: Path) -> None:
    home = tmp_path / ".sgpu"
    folder, process = start(home, 1, tracking_uri="nonsense://x")
    tells = told(folder, process)
    assert tells["instead_of"]["tracking_uri"] == "nonsense://x"
    assert tells["tracking_uri"] == default_uri(home)
    finish(folder, process, "succeeded")
    assert recorded(home, tells["run_id"]).info.status == "FINISHED"


def test_a_folder_that_takes_no_store_is_told_to_the_ranks(tmp_path: Path) -> None:
    home = tmp_path / ".sgpu"
    (home / "mlflow.db").mkdir(parents=True)
    folder, process = start(home, 1)
    assert "mlflow.db" in str(told(folder, process)["error"])
    assert process.wait(PATIENCE) == 1
    process.stdin.close()
