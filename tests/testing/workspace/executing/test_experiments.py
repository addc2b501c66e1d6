"""MLflow behind the workspace, for the SDK and for MLflow's own client."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from databricks.sdk.errors import ResourceDoesNotExist
from databricks.sdk.service import ml

from tests.testing.workspace.conftest import call, client_of
from tests.testing.workspace.executing.conftest import User

_CLIENT = """
import mlflow
from pathlib import Path
mlflow.set_experiment("/Users/me/exp")
with mlflow.start_run(run_name="mine") as run:
    mlflow.log_params({"lr": 0.1})
    for step in range(3):
        mlflow.log_metric("loss", 1.0 / (step + 1), step=step)
    Path("note.txt").write_text("kept")
    mlflow.log_artifact("note.txt", "notes")
client = mlflow.MlflowClient()
assert [m.value for m in client.get_metric_history(run.info.run_id, "loss")] == [1, 0.5, 1 / 3]
assert [a.path for a in client.list_artifacts(run.info.run_id, "notes")] == ["notes/note.txt"]
path = mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path="notes/note.txt")
assert Path(path).read_text() == "kept"
found = mlflow.search_runs(search_all_experiments=True)
print(run.info.run_id, len(found))
"""


@pytest.mark.mlflow
def test_mlflows_client_works_with_a_token(user: User, tmp_path: Path) -> None:
    environment = {
        **os.environ, "MLFLOW_TRACKING_URI": user.client.config.host,
        "MLFLOW_TRACKING_TOKEN": user.client.config.token, "HOME": str(tmp_path),
    }  # fmt: skip
    said = subprocess.run(
        [sys.executable, "-c", _CLIENT], env=environment, cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    run_id, found = said.stdout.split()[-2:]
    assert found == "1"
    run = user.client.experiments.get_run(run_id=run_id).run
    assert {param.key: param.value for param in run.data.params} == {"lr": "0.1"}


def test_experiments_are_each_tenants_own(user: User, server: Any) -> None:
    other = client_of(server.url, f"dapi{os.urandom(16).hex()}")
    mine = user.client.experiments.create_experiment("/Users/a/exp").experiment_id
    theirs = other.experiments.create_experiment("/Users/a/exp").experiment_id
    assert mine != theirs
    assert user.client.experiments.get_experiment(mine).experiment.name == "/Users/a/exp"
    assert user.client.experiments.get_by_name("/Workspace/Users/a/exp").experiment
    with pytest.raises(ResourceDoesNotExist):
        user.client.experiments.get_experiment(theirs)
    for name in (None, "name = '/Users/a/exp'", "name LIKE '/Users/%'"):
        found = list(user.client.experiments.search_experiments(filter=name))
        assert [(one.experiment_id, one.name) for one in found] == [(mine, "/Users/a/exp")]
    user.client.experiments.update_experiment(mine, new_name="/Users/a/renamed")
    assert user.client.experiments.get_experiment(mine).experiment.name == "/Users/a/renamed"
    assert other.experiments.get_by_name("/Users/a/exp").experiment.experiment_id == theirs


def test_runs_metrics_and_tags(user: User) -> None:
    api = user.client.experiments
    experiment = api.create_experiment("/Users/a/metrics").experiment_id
    run = api.create_run(experiment_id=experiment, run_name="one").run.info.run_id
    metrics = [ml.Metric(key="loss", value=0.5, step=step, timestamp=1) for step in range(3)]
    api.log_batch(run_id=run, metrics=metrics)
    api.set_tag("a", "b", run_id=run)
    assert [one.step for one in api.get_history("loss", run_id=run)] == [0, 1, 2]
    api.update_run(run_id=run, status=ml.UpdateRunStatus.FINISHED)
    (found,) = api.search_runs(experiment_ids=[experiment], filter="tags.a = 'b'")
    assert found.info.status.value == "FINISHED"


def test_an_artifact_is_read_by_a_link_without_a_token(user: User) -> None:
    run_id = user.submit("echo 'a line'\n")
    user.ended(run_id)
    tracked = user.output(run_id).ai_runtime_task_output.mlflow_run_id

    def link(path: str) -> str:
        asked = {"run_id": tracked, "path": [path]}
        where = "/api/2.0/mlflow/artifacts/credentials-for-read"
        answer = user.client.api_client.do("GET", where, query=asked)
        return str(answer["credential_infos"][0]["signed_uri"])

    there = link("logs/attempt_0/node_0/logs-0.chunk.txt")
    assert call("GET", there).body == b"a line\n"
    assert call("GET", there.replace("node_0", "node_1")).status == 403
    assert call("GET", link("logs/attempt_0/node_0/logs-1.chunk.txt")).status == 404


def test_artifacts_in_a_volume(user: User) -> None:
    where = {"mlflow_artifact_location": "/Volumes/main/default/files/runs"}
    run_id = user.submit("echo kept\n", ai=where)
    assert user.ended(run_id).state.result_state.value == "SUCCESS"
    tracked = user.output(run_id).ai_runtime_task_output.mlflow_run_id
    uri = user.client.experiments.get_run(run_id=tracked).run.info.artifact_uri
    assert uri.startswith("dbfs:/Volumes/main/default/files/runs/")
    chunk = f"{uri.removeprefix('dbfs:')}/logs/attempt_0/node_0/logs-0.chunk.txt"
    assert user.client.files.download(chunk).contents.read() == b"kept\n"
    run_id = user.submit("true\n", ai={"mlflow_artifact_location": "/Volumes/a/b/c/d"})
    assert "Volume 'a.b.c' does not exist" in user.ended(run_id).state.state_message


def test_an_experiments_folder_has_to_be_there(user: User) -> None:
    run_id = user.submit("true\n", ai={"mlflow_experiment_directory": "/Workspace/nowhere"})
    run = user.ended(run_id)
    assert run.state.state_message.endswith("Parent directory does not exist: /Workspace/nowhere")
    assert run.state.life_cycle_state.value == "INTERNAL_ERROR"
