"""The folder of a run's MLflow experiment: looked for by plan, and made by apply."""

from pathlib import Path
from typing import Any
from venv import create

import pytest
from databricks.sdk import WorkspaceClient

from sgpu_decl.backends.databricks.launching.experiment import experiment_of, experiments_home
from sgpu_decl.config.run import RunConfig
from sgpu_decl.model.attempt import AttemptState
from tests.backends.databricks.bench import DatabricksBench, Launched

HOME = "/Workspace/Users/a@b.c"
PRINCIPAL = "0f3b2c1d-0000-4a5b-8c7d-1234567890ab"


@pytest.mark.parametrize(
    ("said", "folder", "name"),
    [
        (None, HOME, "train"),
        ("exp", HOME, "exp"),
        ("/Shared/team/exp", "/Workspace/Shared/team", "exp"),
        ("/Workspace/Shared/team/exp", "/Workspace/Shared/team", "exp"),
        ("/Users/a@b.c/x/exp", "/Workspace/Users/a@b.c/x", "exp"),
        ("team/exp", f"{HOME}/team", "exp"),
        ("/exp", "/Workspace", "exp"),
        ("/Workspace/Shared/../../exp", "/Workspace", "exp"),
    ],
)
def test_where_an_experiment_lies(said: str | None, folder: str, name: str) -> None:
    given: dict[str, Any] = {"name": "train", "gpus": 1, "type": "A10", "entrypoint": "a.py"}
    config = RunConfig.model_validate({**given, "mlflow": {"experiment": said}})

    found = experiment_of(config, HOME)

    assert (found.folder, found.name) == (folder, name)


@pytest.mark.parametrize(
    ("user", "staging", "folder"),
    [
        ("a@b.c", "/Workspace/Shared/x/.sgpu", HOME),
        (PRINCIPAL, "/Workspace/Shared/ci/.sgpu", "/Workspace/Shared/ci"),
        (PRINCIPAL, "/Volumes/a/b/c", f"/Workspace/Users/{PRINCIPAL}"),
    ],
)
def test_where_experiments_lie_that_name_no_folder(user: str, staging: str, folder: str) -> None:
    assert experiments_home(user, staging) == folder


def test_a_folder_that_is_missing_is_said_by_plan_and_made_by_apply(
    bench: DatabricksBench,
) -> None:
    assert bench.server.profile.flag("experiment-folder-made")
    bench.declare(more="mlflow: {experiment: /Shared/team/deep/exp}\n")
    opened = bench.open()
    plan = opened.plan()
    check = {item.code: item for item in plan.plan.checks}["experiment_folder_missing"]
    assert (str(check.severity), check.place and check.place.line) == ("info", 9)
    assert "/Workspace/Shared/team/deep" in check.summary

    run = Launched(opened, *opened.apply(plan).launched).ended()

    assert run.status.state is AttemptState.SUCCEEDED
    assert WorkspaceClient().experiments.get_by_name("/Shared/team/deep/exp").experiment
    assert "experiment_folder_missing" not in bench.checks()
    looks = len(bench.requests("/workspace/get-status"))
    bench.plan()
    assert len(bench.requests("/workspace/get-status")) == looks, "it is remembered"


@pytest.mark.expensive
def test_a_run_once_more_asks_fourteen_times_at_most(
    bench: DatabricksBench, tmp_path: Path
) -> None:
    """With a folder for its experiment, and an environment that is there already."""
    create(tmp_path / "venv", symlinks=True)
    python = f"{tmp_path}/venv/bin/python"
    bench.declare("{base: gpu-6}", f"{{base: gpu-6, snapshot: true, python: {python}}}")
    more = "until: always\nmlflow: {experiment: /Shared/warm/exp}\n"
    bench.declare("gpus: 2", "gpus: 1", more)
    for _ in range(2):
        opened = bench.open()
        bench.forget_requests()
        launched = opened.apply(opened.plan(for_apply=True)).launched
        asked = [f"{item.method} {item.path}" for item in bench.requests()]
        assert Launched(opened, *launched).ended().status.state is AttemptState.SUCCEEDED

    assert len(asked) <= 14, "\n".join(asked)


@pytest.mark.expensive
def test_a_folder_that_was_deleted_meanwhile_is_made_again(bench: DatabricksBench) -> None:
    bench.declare(more="until: always\nmlflow: {experiment: /Shared/gone/exp}\n")
    ended = []
    for _ in range(3):
        ended.append(str(bench.run().status.state))
        if len(ended) == 1:
            WorkspaceClient().workspace.delete("/Shared/gone", recursive=True)
    assert ended == ["succeeded", "failed", "succeeded"]


def test_a_run_that_names_none_has_the_folder_of_its_user(bench: DatabricksBench) -> None:
    bench.launch().cancelled()

    (run,) = bench.records.all()
    (task,) = run.tasks
    asked: Any = task["ai_runtime_task"]
    assert asked["mlflow_experiment_directory"] == f"/Workspace{bench.tenant.home}"


def test_a_file_where_the_folder_should_be_is_refused_by_plan(
    bench: DatabricksBench, tenant: Path
) -> None:
    bench.declare(more="mlflow: {experiment: /Shared/notes/exp}\n")
    WorkspaceClient().workspace.mkdirs("/Shared")
    (tenant / "Workspace" / "Shared" / "notes").write_text("not a folder")

    check = bench.checks()["experiment_folder_taken"]

    assert (str(check.severity), check.place and check.place.line) == ("error", 9)
