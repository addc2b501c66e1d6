"""The folder of a run's MLflow experiment: looked for by plan, and made by apply."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from venv import create

import pytest
from databricks.sdk import WorkspaceClient

from sgpu_decl.api import Session
from sgpu_decl.backends.databricks.launching.experiment import experiment_of, experiments_home
from sgpu_decl.config.run import RunConfig
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.testing.workspace import WorkspaceServer
from sgpu_decl.testing.workspace.executing.records import RunRecords
from tests.support import PATIENCE

HOME = "/Workspace/Users/a@b.c"
PRINCIPAL = "0f3b2c1d-0000-4a5b-8c7d-1234567890ab"


def looks(server: WorkspaceServer, token: str) -> int:
    """How often somebody looked what lies at a path."""
    asked = server.recording.all(server.tenants.of_token(token).key)
    return len([item for item in asked if item.path.endswith("/workspace/get-status")])


def ran(opened: Session, ref: AttemptRef) -> AttemptState:
    """How an attempt ended, once it has."""
    (status,) = opened.runs.wait([ref], timeout=PATIENCE)
    opened.record_ended()
    return status.state


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
    session: Callable[[], Session], project: Path, server: WorkspaceServer, token: str
) -> None:
    assert server.profile.flag("experiment-folder-made")
    with (project / "run.yaml").open("a") as file:
        file.write("mlflow: {experiment: /Shared/team/deep/exp}\n")
    opened = session()
    plan = opened.plan()
    check = {item.code: item for item in plan.plan.checks}["experiment_folder_missing"]
    assert (str(check.severity), check.place and check.place.line) == ("info", 9)
    assert "/Workspace/Shared/team/deep" in check.summary

    (ref,) = opened.apply(plan).launched

    (status,) = opened.runs.wait([ref], timeout=PATIENCE)
    opened.record_ended()
    assert status.state is AttemptState.SUCCEEDED
    assert WorkspaceClient().experiments.get_by_name("/Shared/team/deep/exp").experiment
    assert "experiment_folder_missing" not in {item.code for item in session().plan().plan.checks}
    before = looks(server, token)
    session().plan()
    assert looks(server, token) == before, "it is remembered"


@pytest.mark.expensive
def test_a_run_once_more_asks_thirteen_times_at_most(
    session: Callable[[], Session],
    project: Path,
    tmp_path: Path,
    server: WorkspaceServer,
    token: str,
) -> None:
    """With a folder for its experiment, and an environment that is there already."""
    create(tmp_path / "venv", symlinks=True)
    run = (project / "run.yaml").read_text()
    declared = f"env: {{base: gpu-6, snapshot: true, python: {tmp_path}/venv/bin/python}}"
    (project / "run.yaml").write_text(
        run.replace("env: {base: gpu-6}", declared).replace("gpus: 2", "gpus: 1")
        + "until: always\nmlflow: {experiment: /Shared/warm/exp}\n"
    )
    tenant = server.tenants.of_token(token)
    for _ in range(2):
        opened = session()
        server.recording.clear(tenant.key)
        (ref,) = opened.apply(opened.plan(for_apply=True)).launched
        asked = [f"{item.method} {item.path}" for item in server.recording.all(tenant.key)]
        assert ran(opened, ref) is AttemptState.SUCCEEDED

    assert len(asked) <= 13, "\n".join(asked)


@pytest.mark.expensive
def test_a_folder_that_was_deleted_meanwhile_is_made_again(
    session: Callable[[], Session], project: Path
) -> None:
    with (project / "run.yaml").open("a") as file:
        file.write("until: always\nmlflow: {experiment: /Shared/gone/exp}\n")
    ended = []
    for _ in range(3):
        opened = session()
        (ref,) = opened.apply(opened.plan()).launched
        ended.append(str(ran(opened, ref)))
        if len(ended) == 1:
            WorkspaceClient().workspace.delete("/Shared/gone", recursive=True)
    assert ended == ["succeeded", "failed", "succeeded"]


def test_a_run_that_names_none_has_the_folder_of_its_user(
    session: Callable[[], Session], server: WorkspaceServer, token: str
) -> None:
    opened = session()
    (ref,) = opened.apply(opened.plan()).launched
    opened.runs.cancel(ref)
    opened.runs.wait([ref], timeout=PATIENCE)
    opened.record_ended()

    tenant = server.tenants.of_token(token)
    (run,) = RunRecords(tenant).all()
    (task,) = run.tasks
    asked: Any = task["ai_runtime_task"]
    assert asked["mlflow_experiment_directory"] == f"/Workspace{tenant.home}"


def test_a_file_where_the_folder_should_be_is_refused_by_plan(
    session: Callable[[], Session], project: Path, tenant: Path
) -> None:
    with (project / "run.yaml").open("a") as file:
        file.write("mlflow: {experiment: /Shared/notes/exp}\n")
    WorkspaceClient().workspace.mkdirs("/Shared")
    (tenant / "Workspace" / "Shared" / "notes").write_text("not a folder")

    check = {item.code: item for item in session().plan().plan.checks}["experiment_folder_taken"]

    assert (str(check.severity), check.place and check.place.line) == ("error", 9)
