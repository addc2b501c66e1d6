"""MLflow behind the workspace, for the SDK and for MLflow's own client."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from databricks.sdk.errors import ResourceDoesNotExist
from databricks.sdk.errors.base import DatabricksError
from databricks.sdk.service import ml

from tests.testing.workspace.conftest import call, client_of
from tests.testing.workspace.executing.conftest import User

_CLIENT = """
import mlflow
from pathlib import Path
mlflow.set_experiment("/Shared/exp")
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


_MODEL = """
import mlflow, os, sys
class Doubled(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        return [2 * one for one in model_input]
with mlflow.start_run() as run:
    assert run.info.run_id == os.environ.get("MLFLOW_RUN_ID", run.info.run_id)
    # Evidence: A18: `managed-artifacts`.
    assert run.info.artifact_uri.startswith("dbfs:/databricks/mlflow-tracking/")
    mlflow.log_text("kept", "notes/note.txt")
    logged = mlflow.pyfunc.log_model(name="m", python_model=Doubled(), pip_requirements=["mlflow"])
found = mlflow.artifacts.download_artifacts(f"runs:/{run.info.run_id}/notes/note.txt")
assert open(found).read() == "kept"
print("it says", mlflow.pyfunc.load_model(logged.model_uri).predict([21]))
"""


@pytest.fixture
def databricks(user: User, tmp_path: Path) -> dict[str, str]:
    """The environment of somebody whose MLflow works with the URI `databricks`."""
    return {
        **os.environ, "MLFLOW_TRACKING_URI": "databricks", "HOME": str(tmp_path),
        "DATABRICKS_HOST": user.client.config.host, "DATABRICKS_TOKEN": user.client.config.token,
    }  # fmt: skip


def ran(text: str, environment: dict[str, str], folder: Path) -> str:
    """What a program prints that has to succeed."""
    said = subprocess.run(
        [sys.executable, "-c", text], env=environment, cwd=folder, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    return said.stdout


@pytest.mark.expensive
@pytest.mark.mlflow
def test_mlflows_client_works_with_the_uri_databricks(
    user: User, databricks: dict[str, str], tmp_path: Path
) -> None:
    run_id, found = ran(_CLIENT, databricks, tmp_path).split()[-2:]
    assert found == "1"
    run = user.client.experiments.get_run(run_id=run_id).run
    assert {param.key: param.value for param in run.data.params} == {"lr": "0.1"}
    assert run.info.artifact_uri.startswith("dbfs:/databricks/mlflow-tracking/")


@pytest.mark.mlflow
@pytest.mark.expensive
def test_models_are_logged_and_loaded_by_a_client(
    databricks: dict[str, str], tmp_path: Path
) -> None:
    text = f"import mlflow\nmlflow.set_experiment('/Shared/models')\n{_MODEL}"
    assert ran(text, databricks, tmp_path).endswith("it says [42]\n")


@pytest.mark.mlflow
@pytest.mark.expensive
def test_models_are_logged_and_loaded_on_a_node(user: User) -> None:
    where = user.stage(
        "models", train__py=_MODEL, command__sh='python "$(dirname "$0")/train.py"\n'
    )
    run_id = user.post("runs/submit", user.payload(user.task(where)))["run_id"]
    run = user.ended(run_id)
    assert run.state.result_state.value == "SUCCESS", user.lines(run_id)
    assert "it says [42]" in user.lines(run_id)


@pytest.mark.expensive
def test_artifacts_are_written_by_a_link_without_a_token(user: User) -> None:
    api = user.client.experiments
    experiment = api.create_experiment("/Shared/written").experiment_id
    run = api.create_run(experiment_id=experiment).run.info.run_id

    def links(action: str, *paths: str) -> list[str]:
        asked = {"run_id": run, "path": list(paths)}
        where = f"/api/2.0/mlflow/artifacts/credentials-for-{action}"
        answer = user.client.api_client.do("POST", where, body=asked)
        return [str(one["signed_uri"]) for one in answer["credential_infos"]]

    first, second = links("write", "a/one", "a/two")
    assert call("PUT", first, data=b"1").status == 200
    assert call("PUT", second, data=b"").status == 200
    assert call("GET", first).status == 403, "a link allows what it was asked for"
    assert call("PUT", first.replace("/one", "/three"), data=b"1").status == 403
    (reading,) = links("read", "a/one")
    assert call("GET", reading).body == b"1"
    listed = [(one.path, one.is_dir, one.file_size) for one in api.list_artifacts(run_id=run)]
    assert listed == [("a", True, None)]
    listed = [
        (one.path, one.is_dir, one.file_size) for one in api.list_artifacts(run_id=run, path="a")
    ]
    assert listed == [("a/one", False, 1), ("a/two", False, 0)]
    (above,) = links("write", "a")
    assert call("PUT", above, data=b"1").status == 409
    with pytest.raises(DatabricksError):
        links("write", "../other")


def test_experiments_are_each_tenants_own(user: User, server: Any) -> None:
    other = client_of(server.url, server.new_token())
    mine = user.client.experiments.create_experiment("/Shared/exp").experiment_id
    theirs = other.experiments.create_experiment("/Shared/exp").experiment_id
    assert mine != theirs
    assert user.client.experiments.get_experiment(mine).experiment.name == "/Shared/exp"
    assert user.client.experiments.get_by_name("/Workspace/Shared/exp").experiment
    with pytest.raises(ResourceDoesNotExist):
        user.client.experiments.get_experiment(theirs)
    for name in (None, "name = '/Shared/exp'", "name LIKE '/Shared/%'"):
        found = list(user.client.experiments.search_experiments(filter=name))
        assert [(one.experiment_id, one.name) for one in found] == [(mine, "/Shared/exp")]
    run = other.experiments.create_run(experiment_id=theirs).run.info.run_id
    assert list(user.client.experiments.search_runs(experiment_ids=[mine, theirs])) == []
    (found_run,) = other.experiments.search_runs(experiment_ids=[mine, theirs])
    assert found_run.info.run_id == run
    user.client.experiments.update_experiment(mine, new_name="/Shared/renamed")
    assert user.client.experiments.get_experiment(mine).experiment.name == "/Shared/renamed"
    assert other.experiments.get_by_name("/Shared/exp").experiment.experiment_id == theirs


@pytest.mark.parametrize(
    ("name", "message"),
    [("exp", "must be an absolute path"), ("/Users/nobody/exp", "Parent directory does not exist")],
)
def test_an_experiment_lies_in_a_folder_that_is_there(user: User, name: str, message: str) -> None:
    with pytest.raises(DatabricksError, match=message):
        user.client.experiments.create_experiment(name)


def test_runs_metrics_and_tags(user: User) -> None:
    api = user.client.experiments
    experiment = api.create_experiment("/Shared/metrics").experiment_id
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
    place = {"mlflow_artifact_location": "dbfs:/Volumes/main/default/files/runs"}
    run_id = user.submit("echo kept\n", ai=place)
    assert user.ended(run_id).state.result_state.value == "SUCCESS"
    tracked = user.output(run_id).ai_runtime_task_output.mlflow_run_id
    uri = user.client.experiments.get_run(run_id=tracked).run.info.artifact_uri
    assert uri.startswith("dbfs:/Volumes/main/default/files/runs/")
    where = "/api/2.0/mlflow/artifacts/credentials-for-read"
    with pytest.raises(DatabricksError, match="Credentials are given for artifacts below dbfs:"):
        user.client.api_client.do("GET", where, query={"run_id": tracked, "path": ["logs"]})
    chunk = f"{uri.removeprefix('dbfs:')}/logs/attempt_0/node_0/logs-0.chunk.txt"
    assert user.client.files.download(chunk).contents.read() == b"kept\n"
    run_id = user.submit("true\n", ai={"mlflow_artifact_location": "dbfs:/Volumes/a/b/c/d"})
    assert "Volume 'a.b.c' does not exist" in user.ended(run_id).state.state_message


@pytest.mark.parametrize("place", ["/Volumes/main/default/files/runs", "here", "file:/tmp/x"])
def test_an_artifact_location_is_a_uri(user: User, place: str) -> None:
    with pytest.raises(DatabricksError, match="mlflow_artifact_location must be a URI"):
        user.submit("true\n", ai={"mlflow_artifact_location": place})


def test_an_experiments_folder_has_to_be_there(user: User) -> None:
    run_id = user.submit("true\n", ai={"mlflow_experiment_directory": "/Workspace/nowhere"})
    run = user.ended(run_id)
    assert run.state.state_message.endswith("Parent directory does not exist: /Workspace/nowhere")
    assert run.state.life_cycle_state.value == "INTERNAL_ERROR"
