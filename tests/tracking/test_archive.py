"""The tracker from its archive, with Pythons that have neither sgpu nor MLflow."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sgpu_decl.agent.node.agent_process import ARCHIVE as AGENT
from sgpu_decl.backends.archives import agent_zip, tracker_zip
from sgpu_decl.backends.node_tracker import ARCHIVE
from sgpu_decl.tracking.tracking_request import FILE, TrackingRequest, to_json
from tests.support import PATIENCE, until
from tests.tracking.conftest import Door

pytestmark = pytest.mark.mlflow


@pytest.mark.expensive
@pytest.mark.parametrize("version", ["3.10", "3.13"])
def test_the_tracker_runs_where_sgpu_and_mlflow_are_not(
    door: Door, tmp_path: Path, version: str
) -> None:
    python = shutil.which(f"python{version}") or "none"
    asked = [python, "-c", "import sys; print(sys.executable)"]
    try:
        found = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"this machine has no Python {version}")
    request = TrackingRequest(
        token=version, experiment="archive", names_experiment=True, run_name=f"archive {version}",
        tracking_uri=door.uri, artifacts=None, home=None, system_metrics=True,
        params={"sgpu.gpus": "2"}, tags={"sgpu.token": version},
    )  # fmt: skip
    (tmp_path / AGENT).write_bytes(agent_zip()[1])
    (tmp_path / ARCHIVE).write_bytes(tracker_zip())
    (tmp_path / FILE).write_text(to_json(request))
    with (tmp_path / "tracker.log").open("wb") as log:
        process = subprocess.Popen(
            [found, str(tmp_path / ARCHIVE)],
            env={"PATH": os.environ["PATH"], "SGPU_RUN_DIR": str(tmp_path)},
            stdin=subprocess.PIPE,
            stderr=log,
            cwd="/",
        )
    until(lambda: (tmp_path / "mlflow.json").exists(), (tmp_path / "tracker.log").read_text)
    answer = json.loads((tmp_path / "mlflow.json").read_text())
    outcome = {"state": "cancelled", "ended_at": "2100-01-01T00:00:00.000Z", "ranks": []}
    (tmp_path / "outcome.json").write_text(json.dumps(outcome))
    process.communicate(timeout=PATIENCE)

    assert (process.returncode, (tmp_path / "tracker.log").read_text()) == (0, "")
    (run,) = door.runs(f"archive {version}")
    assert answer["env"]["MLFLOW_RUN_ID"] == run["info"]["run_id"]
    assert (run["info"]["status"], run["info"]["end_time"]) == ("KILLED", 4_102_444_800_000)
    assert not list((tmp_path / "mlflow-open").iterdir())


def test_the_archive_needs_no_other_room_of_this_package(tmp_path: Path) -> None:
    (tmp_path / AGENT).write_bytes(agent_zip()[1])
    (tmp_path / ARCHIVE).write_bytes(tracker_zip())
    done = subprocess.run(
        [sys.executable, "-I", str(tmp_path / ARCHIVE)], env={}, capture_output=True, text=True
    )
    assert "KeyError: 'SGPU_RUN_DIR'" in done.stderr  # it came as far as its settings
