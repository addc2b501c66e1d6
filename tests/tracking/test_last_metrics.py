"""The last values of metrics, as each kind of store gives them."""

import math
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sgpu_decl.tracking.last_metrics import TrackingStore, read_last_metrics
from tests.cli.conftest import Shell
from tests.support import require
from tests.tracking.conftest import Door

require("mlflow")
pytestmark = pytest.mark.mlflow

SWEEP = """\
name: sweep
gpus: 2
type: CPU
entrypoint: train.py:main
matrix: {lr: [3, 1, 2]}
"""
TRAIN = """\
import os
import mlflow

def main(lr):
    if os.environ["RANK"] == "0":
        for step in range(3):
            mlflow.log_metric("loss", lr / (step + 1), step=step)
"""


@pytest.mark.expensive
def test_the_table_of_a_sweep_has_the_last_metrics(project: Shell) -> None:
    project.write("run.yaml", SWEEP.replace("gpus: 2", "gpus: 2\nmlflow: {system_metrics: false}"))
    project.write("train.py", TRAIN)
    done = project("apply", "-y")
    assert done.code == 0, done.err
    lines = [line.split() for line in project.here("results", "sweep").out.splitlines()]
    assert lines[0] == ["lr", "attempt", "state", "time", "loss"]
    assert [line[-1] for line in lines[1:4]] == ["1", "0.333333", "0.666667"]
    best = project.here("results", "sweep", "--sort", "loss", "-o", "json").json["data"]["runs"]
    assert [run["axes"]["lr"] for run in best] == [1, 2, 3]
    cells = project.here("status", "-o", "json").json["data"]["runs"]
    assert len({cell["links"]["mlflow"]["run_id"] for cell in cells}) == 3
    assert len({cell["links"]["mlflow"]["experiment_id"] for cell in cells}) == 1
    compared = ("diff", 'sweep["lr=3"]', 'sweep["lr=1"]')
    metrics = project.here(*compared, "-o", "json").json["data"]["metrics"]
    assert metrics == [{"name": "loss", "before": 1.0, "after": 1 / 3}]
    text = project.here(*compared).out
    assert "metrics:\n  ~ loss  1 -> 0.333333\n" in text


@pytest.mark.expensive
def test_a_table_and_a_diff_say_that_they_wait_for_a_server(project: Shell, door: Door) -> None:
    project.write(
        "run.yaml", SWEEP + f"mlflow: {{system_metrics: false, tracking_uri: '{door.uri}'}}\n"
    )
    project.write("train.py", "def main(lr):\n    return lr\n")
    assert project("apply", "-y").code == 0
    door.close()
    with socket.create_server(("127.0.0.1", door.port)):  # takes connections, and never answers
        table = project("results", "sweep")
        compared = project("diff", 'sweep["lr=3"]', 'sweep["lr=1"]')
    assert "reading results and MLflow metrics of 3 runs\nwarning: metrics are missing" in table.err
    begun = "reading code, results and MLflow metrics of"
    assert f'{begun} sweep["lr=3"]#1 and sweep["lr=1"]#1\n' in compared.err


def _logged(uri: str) -> dict[str, str]:
    """Two runs with metrics and one without; the experiment of each by its id."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = client.create_experiment("measured")
    runs = [client.create_run(experiment) for _ in range(3)]
    for step in range(3):
        client.log_metric(runs[0].info.run_id, "loss", 3.0 - step, step=step)
    client.log_metric(runs[1].info.run_id, "loss", math.nan)
    client.log_metric(runs[1].info.run_id, "acc", 0.5)
    return {run.info.run_id: experiment for run in runs}


def _check(uri: str) -> None:
    runs = _logged(uri)
    metrics = TrackingStore(uri, {}).last_metrics(runs)
    assert metrics.problems == ()
    first, second, third = runs
    assert metrics.by_run[first] == {"loss": 1.0}
    assert metrics.by_run[second]["acc"] == 0.5
    assert math.isnan(metrics.by_run[second]["loss"])
    assert metrics.by_run.get(third, {}) == {}
    history = TrackingStore(uri, {}).metric_history(first, ["loss", "none"])
    assert {**history} == {"loss": [(0, 3.0), (1, 2.0), (2, 1.0)], "none": []}
    ((_, lost),) = TrackingStore(uri, {}).metric_history(second, ["loss"])["loss"]
    assert math.isnan(lost)


def test_a_store_that_several_backends_name_is_one_place() -> None:
    here, there = TrackingStore("http://server", {"A": "1"}), TrackingStore("http://server", {})
    assert len({here: "local", there: "ray", TrackingStore("http://other", {}): "ray"}) == 2


@pytest.mark.expensive
def test_a_database_is_read_by_sql_and_by_the_client_where_its_schema_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _check(f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setattr("sgpu_decl.tracking.stores.choice.REVISIONS", frozenset())
    _check(f"sqlite:///{tmp_path}/other.db")


def test_a_server_is_asked_for_many_runs_at_once(door: Door) -> None:
    _check(door.uri)
    door.close()
    metrics = TrackingStore(door.uri, {}).last_metrics({"a" * 32: "1"})
    assert metrics.by_run == {}
    assert len(metrics.problems) == 1


@pytest.mark.expensive
def test_a_store_that_is_gone_or_damaged_leaves_the_other(tmp_path: Path) -> None:
    gone, damaged, whole = (f"sqlite:///{tmp_path}/{name}.db" for name in ("a", "b", "c"))
    (tmp_path / "b.db").write_bytes(b"x" * 4096)
    runs = _logged(whole)
    with closing(sqlite3.connect(tmp_path / "c.db")) as db:
        assert db.execute("SELECT count(*) FROM latest_metrics").fetchone() == (3,)
    metrics = read_last_metrics({TrackingStore(uri, {}): runs for uri in (gone, damaged, whole)})
    assert len(metrics.by_run) == 2
    assert ["b.db" in problem for problem in metrics.problems] == [True]
    assert not (tmp_path / "a.db").exists()
