"""What the MLflow run of an attempt says of it, on the platform as on this machine.

Assumption: `mlflow-record`.
"""

from typing import Any

import pytest
from databricks.sdk import WorkspaceClient

from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.views.tracking_text import tracking_notes
from tests.backends.databricks.bench import DatabricksBench, Launched
from tests.cli.test_git_references import git
from tests.support import PATIENCE

TAGGED = """\
tags: {team: vision, "cost.center": "42"}
mlflow: {run_name: "a run (with a name)"}
"""


def tracked(run: Launched) -> Any:
    """What MLflow has of an attempt."""
    return WorkspaceClient().experiments.get_run(run.told["links"]["mlflow"]["run_id"]).run


def named(pairs: Any) -> dict[str, str]:
    return {pair.key: pair.value for pair in pairs or ()}


def test_a_run_that_is_followed_has_its_name_tags_and_parameters_in_mlflow(
    bench: DatabricksBench,
) -> None:
    bench.declare(more=TAGGED)
    git(bench.project, "init", "-q", "-b", "work")
    git(bench.project, "add", ".")
    git(bench.project, "commit", "-q", "-m", "first")
    commit = git(bench.project, "rev-parse", "HEAD")

    run = tracked(bench.run())

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
    bench: DatabricksBench,
) -> None:
    launched = bench.launch()
    seen = Launched(bench.open(), launched.ref)
    while seen.told["state"] not in ("succeeded", "failed"):
        pass

    run = tracked(Launched(bench.open(), launched.ref))

    assert run.info.run_name == "hello#1"
    assert named(run.data.tags)["sgpu.address"] == "run.hello"
    assert len(bench.requests("/log-batch")) == 1


def test_an_mlflow_that_takes_no_tags_costs_a_word_and_no_run(bench: DatabricksBench) -> None:
    log = "POST /api/2.0/mlflow/runs/log-batch"
    bench.refuse(log, 403, "PERMISSION_DENIED", "no edit here", times=0)
    run = bench.launch()
    run.session.runs.wait([run.ref], timeout=PATIENCE)

    (view,) = run.session.runs.describe([run.ref])

    links: Any = view.links
    assert run.status.state is AttemptState.SUCCEEDED
    assert "no edit here" in links["mlflow"]["undescribed"]
    (note,) = tracking_notes(view)
    assert note.startswith("the MLflow run of hello#1 lacks its name, tags and parameters: ")
