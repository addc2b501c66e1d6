"""What ranks logged while the server was away is pushed to it later, whole and once."""

from typing import Any

import pytest

from tests.cli.conftest import Shell
from tests.support import require
from tests.tracking.conftest import Door

require("mlflow")
pytestmark = pytest.mark.mlflow

RUN = "name: later\ngpus: 1\ntype: CPU\ngrace: 1s\nmlflow: {run_name: pushed-later}\n"
LOGS = """
import mlflow
with mlflow.start_run():
    for step in range(5):
        mlflow.log_metric("loss", 1 / (step + 1), step=step)
    mlflow.log_param("lr", 0.1)
    mlflow.log_text("hello", "notes/hello.txt")
    with mlflow.start_run(run_name="pushed-child", nested=True):
        mlflow.log_metric("accuracy", 0.9)
"""


def pushed(door: Door, name: str) -> dict[str, Any]:
    (run,) = door.runs(name)
    return run


@pytest.mark.expensive
def test_a_run_of_the_local_store_is_pushed_whole_and_once(project: Shell, door: Door) -> None:
    door.close()
    project.environ["MLFLOW_TRACKING_URI"] = door.uri
    project.write("log.py", LOGS)
    project.write("run.yaml", RUN + "entrypoint: log.py\n")
    done = project("apply", "-y")
    assert done.code == 0, done.err
    door.open()
    first = project("mlflow", "sync", "later", "-o", "json")
    assert first.code == 0, first.err
    answer = first.json["data"]
    assert {name: answer[name] for name in ("attempt", "runs", "metrics", "artifacts", "left")} == {
        "attempt": "later#1", "runs": 2, "metrics": 6, "artifacts": 1, "left": [],
    }  # fmt: skip
    own, child = pushed(door, "pushed-later"), pushed(door, "pushed-child")
    assert own["info"]["run_id"] == answer["run_id"]
    assert own["info"]["status"] == child["info"]["status"] == "FINISHED"
    tags = {item["key"]: item["value"] for item in child["data"]["tags"]}
    assert tags["mlflow.parentRunId"] == answer["run_id"]
    params = {item["key"]: item["value"] for item in own["data"]["params"]}
    assert (params["lr"], params["sgpu.gpus"]) == ("0.1", "1")
    assert "was pushed to" in project.here("status").err

    again = project("mlflow", "sync", "later#1")
    assert again.out == f"{answer['run_id']}\n"
    assert len(door.runs("pushed-later")) == len(door.runs("pushed-child")) == 1


@pytest.mark.expensive
def test_what_cannot_be_pushed_says_why(project: Shell, door: Door) -> None:
    def refused(*words: str) -> dict[str, Any]:
        answer = project("mlflow", "sync", *words, "-o", "json")
        assert answer.code == 1, answer.err
        return dict(answer.json["error"])

    project.write("run.yaml", RUN + "command: 'true'\n")
    assert project("apply", "-y").code == 0
    assert refused("nobody")["code"] == "not_found"
    assert refused("later")["code"] == "nothing_to_sync"
    assert project("apply", "-y", "--rerun", "later", "--set", "mlflow.enabled=false").code == 0
    assert refused("later")["code"] == "not_tracked"
    project.write("run.yaml", RUN + "command: 'sleep 60'\n")
    assert project("apply", "-y", "--detach").code == 0
    assert refused("later", "--to", door.uri)["code"] in ("active_run", "not_tracked")
    assert project("cancel", "later").code == 0
    assert project.here("wait", "later").code == 5
    door.close()
    project.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
    assert refused("later", "--to", door.uri)["code"] == "tracking_unreachable"
    assert project("mlflow", "synk").code == 64
