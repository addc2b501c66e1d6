"""A script without MLflow has metrics: those in `metrics.json` of its output."""

import json
import sqlite3
from contextlib import closing

import pytest

from tests.cli.conftest import Shell
from tests.support import until

CODE = """\
import json, os

def main(lr: float, log: bool = False):
    if log:
        import mlflow
        mlflow.log_metric("loss", 7.0)
    if os.environ["RANK"] == "0":
        with open(os.environ["SGPU_OUTPUT_DIR"] + "/metrics.json", "w") as file:
            for step in (10, 20):
                row = {"step": step, "loss": lr / step, "eval": {"acc": lr}}
                print(json.dumps(row), file=file)
"""
HEAD = "name: m\ntype: CPU\nentrypoint: t.py:main\n"


def test_metrics_of_a_file_are_in_tables_diffs_and_status(sgpu: Shell) -> None:
    sgpu.write("t.py", CODE)
    more = "gpus: 2\nmatrix: {lr: [2, 1]}\nmlflow: {enabled: false}\n"
    sgpu.write("run.yaml", HEAD + more)
    sgpu.done("apply", "-y")
    rows = sgpu.data("results", "m", "--sort", "loss")["runs"]
    assert [row["metrics"] for row in rows] == [
        {"loss": 0.05, "eval/acc": 1.0}, {"loss": 0.1, "eval/acc": 2.0},
    ]  # fmt: skip
    one, two = (row["address"] for row in rows)
    assert "loss  0.05 -> 0.1" in sgpu.here("diff", one, two).out
    assert "metrics:\n  loss: 0.05\n  eval/acc: 1\n" in sgpu.here("show", one).out
    runs = sgpu.data("status")["runs"]
    assert {json.dumps(run["metrics"]) for run in runs} == {
        json.dumps(row["metrics"]) for row in rows
    }
    assert "did you mean `loss`?" in sgpu.exits(1, "results", "m", "--sort", "los").err


@pytest.mark.mlflow
@pytest.mark.expensive
def test_the_tracker_logs_what_the_script_did_not(sgpu: Shell) -> None:
    sgpu.write("t.py", CODE)
    sgpu.write("run.yaml", HEAD + "gpus: 1\nargs: {lr: 2, log: true}\n")
    assert sgpu("apply", "-y").code == 0
    with closing(sqlite3.connect(sgpu.folder / ".sgpu/mlflow.db")) as db:
        query = "SELECT key, value, step FROM metrics ORDER BY key, step"
        until(lambda: len(db.execute(query).fetchall()) >= 3)  # the tracker ends after the run
        logged = db.execute(query).fetchall()
        tags = db.execute("SELECT key, value FROM experiment_tags").fetchall()
    assert logged == [("eval/acc", 2.0, 10), ("eval/acc", 2.0, 20), ("loss", 7.0, 0)]
    assert tags == [("mlflow.experimentKind", "custom_model_development")]
