"""What the MLflow run of an attempt says of it, on the platform as on this machine.

Assumption: `mlflow-record`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from databricks.sdk import WorkspaceClient

from sgpu_decl.api import Session
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.testing.workspace import Effect, Fault, WorkspaceServer
from sgpu_decl.views.status_json import status_objects
from sgpu_decl.views.tracking_text import tracking_notes
from tests.backends.databricks.test_runs import ended, launched
from tests.cli.test_git_references import git
from tests.support import PATIENCE

Opened = Callable[[], Session]
TAGGED = """\
tags: {team: vision, "cost.center": "42"}
mlflow: {run_name: "a run (with a name)"}
"""


def told(session: Session, ref: AttemptRef) -> Any:
    """What MLflow has of an attempt."""
    (run,) = status_objects(session.runs.describe([ref]))
    tracked: Any = run["links"]
    return WorkspaceClient().experiments.get_run(tracked["mlflow"]["run_id"]).run


def named(pairs: Any) -> dict[str, str]:
    return {pair.key: pair.value for pair in pairs or ()}


def test_a_run_that_is_followed_has_its_name_tags_and_parameters_in_mlflow(
    session: Opened, project: Path
) -> None:
    with (project / "run.yaml").open("a") as file:
        file.write(TAGGED)
    git(project, "init", "-q", "-b", "work")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "first")
    commit = git(project, "rev-parse", "HEAD")
    opened = session()
    ref = ended(opened)

    run = told(opened, ref)

    tags, params = named(run.data.tags), named(run.data.params)
    assert run.info.run_name == "a run (with a name)"
    assert (tags["team"], tags["cost.center"]) == ("vision", "42")
    assert (tags["sgpu.address"], tags["sgpu.attempt"]) == ("run.hello", "1")
    assert tags["sgpu.token"].startswith("sgpu1-")
    assert tags["sgpu.code_digest"].startswith("sha256:")
    assert (tags["mlflow.source.git.commit"], tags["mlflow.source.git.branch"]) == (commit, "work")
    assert (tags["sgpu.git.commit"], tags["sgpu.git.dirty"]) == (commit, "false")
    assert (params["sgpu.args.n"], params["sgpu.env.base"]) == ("3", "gpu-6")


@pytest.mark.expensive
def test_a_run_that_nobody_followed_is_told_when_somebody_looks_at_it(
    session: Opened, server: WorkspaceServer, token: str
) -> None:
    ref = launched(session())
    opened = session()
    while status_objects(opened.runs.describe([ref]))[0]["state"] not in ("succeeded", "failed"):
        pass

    run = told(session(), ref)

    assert run.info.run_name == "hello#1"
    assert named(run.data.tags)["sgpu.address"] == "run.hello"
    asked = server.recording.all(server.tenants.of_token(token).key)
    assert len([item for item in asked if item.path.endswith("/log-batch")]) == 1


def test_an_mlflow_that_takes_no_tags_costs_a_word_and_no_run(
    session: Opened, server: WorkspaceServer, token: str
) -> None:
    key = server.tenants.of_token(token).key
    refusal = Fault(
        pattern="POST /api/2.0/mlflow/runs/log-batch",
        effect=Effect.STATUS,
        status_code=403,
        body={"error_code": "PERMISSION_DENIED", "message": "no edit here"},
        times=0,
    )
    server.faults.add(refusal, tenant=key)
    opened = session()
    ref = launched(opened)
    (status,) = opened.runs.wait([ref], timeout=PATIENCE)

    (view,) = opened.runs.describe([ref])

    tracked: Any = view.links
    assert status.state is AttemptState.SUCCEEDED
    assert "no edit here" in tracked["mlflow"]["undescribed"]
    (note,) = tracking_notes(view)
    assert note.startswith("the MLflow run of hello#1 lacks its name, tags and parameters: ")
