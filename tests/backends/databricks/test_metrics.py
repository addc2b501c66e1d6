"""The metrics of runs on the platform, in tables of attempts.

Assumption: `metrics-search`.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from databricks.sdk import WorkspaceClient

from sgpu_decl.api import Session
from sgpu_decl.backends.databricks.api import connection as connection_module
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.testing.workspace import Effect, Fault, WorkspaceServer
from tests.backends.databricks.test_runs import ended, launched
from tests.support import PATIENCE, until

Opened = Callable[[], Session]
SEARCH = "/api/2.0/mlflow/runs/search"


@pytest.fixture
def sweep(session: Opened, project: Path) -> list[AttemptRef]:
    """Three attempts of one matrix, which have ended."""
    run = (project / "run.yaml").read_text()
    (project / "run.yaml").write_text(run.replace("args: {n: 3}", "matrix: {n: [1, 2, 3]}"))
    opened = session()
    refs = opened.apply(opened.plan()).launched
    opened.runs.wait(refs, timeout=PATIENCE)
    return sorted(refs)


def logged(opened: Session, ref: AttemptRef, name: str, *values: float) -> None:
    """Log a metric to the MLflow run of an attempt, one value for each step. JSON has no NaN: the
    API takes and gives it as text."""
    (view,) = opened.runs.describe([ref])
    link: Any = view.links["mlflow"]
    metrics = [
        {"key": name, "value": "NaN" if math.isnan(value) else value, "step": step, "timestamp": 1}
        for step, value in enumerate(values)
    ]
    body = {"run_id": link["run_id"], "metrics": metrics}
    WorkspaceClient().api_client.do("POST", "/api/2.0/mlflow/runs/log-batch", body=body)


def asked(server: WorkspaceServer, token: str, path: str) -> list[Any]:
    key = server.tenants.of_token(token).key
    return [item for item in server.recording.all(key) if item.path.startswith(path)]


def failing(server: WorkspaceServer, token: str, pattern: str, **fault: Any) -> None:
    server.faults.add(
        Fault(pattern=pattern, times=0, **fault), tenant=server.tenants.of_token(token).key
    )


def refusing(server: WorkspaceServer, token: str, pattern: str) -> None:
    body: Any = {"error_code": "PERMISSION_DENIED", "message": "not for you"}
    failing(server, token, pattern, effect=Effect.STATUS, status_code=403, body=body)


def test_a_table_has_the_last_metrics_by_one_search(
    session: Opened, sweep: list[AttemptRef], server: WorkspaceServer, token: str
) -> None:
    opened = session()
    logged(opened, sweep[0], "loss", 3.0, 2.0)
    logged(opened, sweep[1], "loss", math.nan)
    logged(opened, sweep[1], "acc", 0.5)

    table = session().runs.table(sweep)

    assert table.problems == ()
    first, second, third = (row.metrics for row in table.rows)
    assert first == {"loss": 2.0}
    assert second["acc"] == 0.5
    assert math.isnan(second["loss"])
    assert third == {}
    (search,) = asked(server, token, SEARCH)
    lineage = opened.state.pull()["lineage"]
    assert search.json["filter"] == f"tags.\"sgpu.lineage\" = '{lineage}'"
    assert asked(server, token, "/api/2.0/mlflow/runs/get") == []


@pytest.mark.expensive
def test_a_search_goes_on_to_the_next_page(
    session: Opened,
    sweep: list[AttemptRef],
    server: WorkspaceServer,
    token: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = session()
    for ref in sweep:
        logged(opened, ref, "loss", 1.0)
    monkeypatch.setattr("sgpu_decl.backends.databricks.watching.workspace_metrics._PAGE", 1)

    table = session().runs.table(sweep)

    assert [row.metrics for row in table.rows] == [{"loss": 1.0}] * 3
    assert len(asked(server, token, SEARCH)) == 3


@pytest.mark.expensive
def test_a_run_that_could_not_be_tagged_is_found_by_its_id(
    session: Opened, server: WorkspaceServer, token: str
) -> None:
    refusal = "POST /api/2.0/mlflow/runs/log-batch"
    refusing(server, token, refusal)
    opened = session()
    ref = ended(opened)
    assert "undescribed" in str(opened.runs.describe([ref])[0].links)
    server.faults.clear()
    logged(opened, ref, "loss", 0.25)

    (row,) = session().runs.table([ref]).rows

    assert row.metrics == {"loss": 0.25}


def test_a_run_that_goes_on_has_metrics(session: Opened, project: Path) -> None:
    (project / "train.py").write_text(
        "import threading\ndef main(n):\n    threading.Event().wait()\n"
    )
    opened = session()
    ref = launched(opened)
    until(lambda: "mlflow" in opened.runs.describe([ref])[0].links)
    logged(opened, ref, "loss", 0.5)

    (row,) = opened.runs.table([ref]).rows

    assert row.view.state is AttemptState.RUNNING
    assert row.metrics == {"loss": 0.5}
    opened.runs.cancel(ref)
    opened.runs.wait([ref], timeout=PATIENCE)


@pytest.mark.expensive
def test_metrics_that_may_not_be_read_are_a_problem_of_the_table(
    session: Opened, sweep: list[AttemptRef], server: WorkspaceServer, token: str
) -> None:
    logged(session(), sweep[0], "loss", 1.0)
    refusing(server, token, f"POST {SEARCH}")

    table = session().runs.table(sweep)

    assert [row.returned["n"] for row in table.rows] == [1, 2, 3]
    assert [row.metrics for row in table.rows] == [{}, {}, {}]
    (problem,) = table.problems
    assert problem.startswith("reading metrics of the MLflow experiment ")
    assert "does not allow it: not for you" in problem


@pytest.mark.expensive
def test_a_workspace_that_does_not_answer_is_a_problem_of_the_table(
    session: Opened,
    sweep: list[AttemptRef],
    server: WorkspaceServer,
    token: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session().runs.table(sweep)  # results are fetched once
    monkeypatch.setattr(connection_module, "RETRIES", 1)
    failing(server, token, "* /api/2.0/*", effect=Effect.CUT)

    table = session().runs.table(sweep)

    assert [row.returned["n"] for row in table.rows] == [1, 2, 3]
    (problem,) = table.problems
    assert f"`{server.url}`" in problem


@pytest.mark.expensive
def test_a_login_for_another_workspace_reads_nothing_there(
    session: Opened,
    sweep: list[AttemptRef],
    tmp_path: Path,
    server: WorkspaceServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session().runs.table(sweep)
    with WorkspaceServer(tmp_path / "other", org_id="9008007006001") as other:
        monkeypatch.setenv("DATABRICKS_HOST", other.url)
        monkeypatch.setenv("DATABRICKS_TOKEN", other.new_token())

        table = session().runs.table(sweep)

        paths = [item.path for item in other.recording.all()]
    assert table.problems == (f"they are in `{server.url}`, and the login is for `{other.url}`",)
    assert [path for path in paths if "mlflow" in path] == []
