"""The metrics of runs on the platform, in tables of attempts.

Assumption: `metrics-search`.
"""

import math
from pathlib import Path
from typing import Any

import pytest
from databricks.sdk import WorkspaceClient

from sgpu_decl.backends.databricks.api import connection as connection_module
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.run_table import RunTable
from sgpu_decl.testing.workspace import Effect, WorkspaceServer
from tests.backends.databricks.bench import DatabricksBench
from tests.support import PATIENCE, until

LOG = "/api/2.0/mlflow/runs/log-batch"
SEARCH = "/api/2.0/mlflow/runs/search"


@pytest.fixture
def sweep(bench: DatabricksBench) -> list[AttemptRef]:
    """Three attempts of one matrix, which have ended."""
    bench.declare("args: {n: 3}", "matrix: {n: [1, 2, 3]}")
    opened = bench.open()
    refs = opened.apply(opened.plan()).launched
    opened.runs.wait(refs, timeout=PATIENCE)
    return sorted(refs)


def logged(bench: DatabricksBench, ref: AttemptRef, name: str, *values: float) -> None:
    """Log a metric to the MLflow run of an attempt, one value for each step. JSON has no NaN: the
    API takes and gives it as text."""
    (view,) = bench.open().runs.describe([ref])
    link: Any = view.links["mlflow"]
    metrics = [
        {"key": name, "value": "NaN" if math.isnan(value) else value, "step": step, "timestamp": 1}
        for step, value in enumerate(values)
    ]
    body = {"run_id": link["run_id"], "metrics": metrics}
    WorkspaceClient().api_client.do("POST", LOG, body=body)


def table_of(bench: DatabricksBench, refs: list[AttemptRef]) -> RunTable:
    return bench.open().runs.table(refs)


def test_a_table_has_the_last_metrics_by_one_search(
    bench: DatabricksBench, sweep: list[AttemptRef]
) -> None:
    logged(bench, sweep[0], "loss", 3.0, 2.0)
    logged(bench, sweep[1], "loss", math.nan)
    logged(bench, sweep[1], "acc", 0.5)

    table = table_of(bench, sweep)

    assert table.problems == ()
    first, second, third = (row.metrics for row in table.rows)
    assert first == {"loss": 2.0}
    assert second["acc"] == 0.5
    assert math.isnan(second["loss"])
    assert third == {}
    (search,) = bench.requests(SEARCH)
    lineage = bench.open().state.pull()["lineage"]
    assert isinstance(search.json, dict)
    assert search.json["filter"] == f"tags.\"sgpu.lineage\" = '{lineage}'"
    assert bench.requests("/api/2.0/mlflow/runs/get") == []


@pytest.mark.expensive
def test_a_search_goes_on_to_the_next_page(
    bench: DatabricksBench, sweep: list[AttemptRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    for ref in sweep:
        logged(bench, ref, "loss", 1.0)
    monkeypatch.setattr("sgpu_decl.backends.databricks.watching.workspace_metrics._PAGE", 1)

    table = table_of(bench, sweep)

    assert [row.metrics for row in table.rows] == [{"loss": 1.0}] * 3
    assert len(bench.requests(SEARCH)) == 3


@pytest.mark.expensive
def test_a_run_that_could_not_be_tagged_is_found_by_its_id(bench: DatabricksBench) -> None:
    bench.refuse(f"POST {LOG}", 403, "PERMISSION_DENIED", "not for you", times=0)
    run = bench.run()
    assert "undescribed" in str(run.session.runs.describe([run.ref])[0].links)
    bench.no_faults()
    logged(bench, run.ref, "loss", 0.25)

    (row,) = table_of(bench, [run.ref]).rows

    assert row.metrics == {"loss": 0.25}


def test_a_run_that_goes_on_has_metrics(bench: DatabricksBench) -> None:
    bench.code("import threading\ndef main(n):\n    threading.Event().wait()\n")
    run = bench.launch()
    until(lambda: "mlflow" in run.session.runs.describe([run.ref])[0].links)
    logged(bench, run.ref, "loss", 0.5)

    (row,) = run.session.runs.table([run.ref]).rows

    assert row.view.state is AttemptState.RUNNING
    assert row.metrics == {"loss": 0.5}
    run.cancelled()


@pytest.mark.expensive
def test_metrics_that_may_not_be_read_are_a_problem_of_the_table(
    bench: DatabricksBench, sweep: list[AttemptRef]
) -> None:
    logged(bench, sweep[0], "loss", 1.0)
    bench.refuse(f"POST {SEARCH}", 403, "PERMISSION_DENIED", "not for you", times=0)

    table = table_of(bench, sweep)

    assert [row.returned["n"] for row in table.rows] == [1, 2, 3]
    assert [row.metrics for row in table.rows] == [{}, {}, {}]
    (problem,) = table.problems
    assert problem.startswith("reading metrics of the MLflow experiment ")
    assert "does not allow it: not for you" in problem


@pytest.mark.expensive
def test_a_workspace_that_does_not_answer_is_a_problem_of_the_table(
    bench: DatabricksBench, sweep: list[AttemptRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    table_of(bench, sweep)  # results are fetched once
    monkeypatch.setattr(connection_module, "RETRY_SECONDS", 1)
    bench.fault("* /api/2.0/*", Effect.CUT, times=0)

    table = table_of(bench, sweep)

    assert [row.returned["n"] for row in table.rows] == [1, 2, 3]
    (problem,) = table.problems
    assert f"`{bench.server.url}`" in problem


@pytest.mark.expensive
def test_a_login_for_another_workspace_reads_nothing_there(
    bench: DatabricksBench,
    sweep: list[AttemptRef],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table_of(bench, sweep)
    with WorkspaceServer(tmp_path / "other", org_id="9008007006001") as other:
        monkeypatch.setenv("DATABRICKS_HOST", other.url)
        monkeypatch.setenv("DATABRICKS_TOKEN", other.new_token())

        table = table_of(bench, sweep)

        paths = [item.path for item in other.recording.all()]
    url = bench.server.url
    assert table.problems == (f"they are in `{url}`, and the login is for `{other.url}`",)
    assert [path for path in paths if "mlflow" in path] == []
