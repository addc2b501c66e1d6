"""Jobs of a project that two users of a workspace plan and apply by turns: what depends on the user
stays as whoever applied it first made it."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from sgpu_decl.model.assumptions import Profile
from sgpu_decl.testing.workspace import User, WorkspaceServer
from tests.cli.conftest import Answer, Shell
from tests.sampling import sampled
from tests.support import require

require("databricks.sdk")

ANN, BOB = "ann@example.org", "bob@example.org"
PROJECT = """\
project: {{name: p}}
mode: {mode}
state: {{kind: folder, path: {state}}}
runs:
  train:
    gpus: 1
    type: A10
    timeout: 1h
    entrypoint: train.py:main
    mlflow: {{experiment: {experiment}}}
    env: {{base: gpu-4}}
    backend: {{kind: databricks{staging}}}
jobs:
  nightly:
    name: {title}
    run: train
    schedule: 0 0 2 * * ?
    permissions: [{{user: {bob}, level: manage}}]
"""
SHARED, VOLUME = ", staging: /Workspace/Shared/sgpu", ", staging: /Volumes/main/ml/s"


Make = Callable[..., "Pair"]


@dataclass(frozen=True)
class Pair:
    """Two clones of a project in one workspace, `ann` and `bob`."""

    ann: Shell
    bob: Shell
    server: WorkspaceServer

    def write(self, old: str, new: str, name: str = "sgpu.yml") -> None:
        for shell in (self.ann, self.bob):
            text = (shell.folder / name).read_text()
            assert old in text
            (shell.folder / name).write_text(text.replace(old, new))

    @property
    def tenant(self) -> Path:
        return self.server.tenants.of_token(self.ann.environ["DATABRICKS_TOKEN"]).folder

    def settings(self) -> dict[str, Any]:
        """Of the one job, as the workspace has it."""
        from databricks.sdk import WorkspaceClient

        client = WorkspaceClient(host=self.server.url, token=self.ann.environ["DATABRICKS_TOKEN"])
        answer: Any = client.api_client.do(
            "GET", "/api/2.2/jobs/list", query={"expand_tasks": "true"}
        )
        (job,) = answer["jobs"]
        return dict(job["settings"])

    def task(self) -> dict[str, Any]:
        (task,) = self.settings()["tasks"]
        return dict(task["ai_runtime_task"])


def changed(shell: Shell, *options: str) -> dict[str, Any]:
    """The fields that a plan changes of the job, with their new values."""
    (change,) = shell.done("plan", "-o", "json", *options).json["data"]["changes"]
    if change["action"] == "no_op":
        return {}
    return {field["path"]: field.get("after") for field in change["fields"]} or {"code": True}


def warned(shell: Shell) -> list[str]:
    """What a plan says of files that move."""
    return [check["summary"] for check in shell.checks(id="job_staging_moves")]


def applied(shell: Shell, *options: str) -> Answer:
    answer = shell.here("apply", "-y", *options)
    assert answer.code == 0, answer.out + answer.err
    return answer


@pytest.fixture(scope="module")
def servers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, WorkspaceServer]]:
    """Workspaces that answer otherwise about what a user may not see."""
    root = tmp_path_factory.mktemp("workspaces")
    running = {
        code: WorkspaceServer(root / code, profile=Profile(found={"hidden-folder": code})).start()
        for code in ("PERMISSION_DENIED", "RESOURCE_DOES_NOT_EXIST")
    }
    yield running
    for server in running.values():
        server.close()


@pytest.fixture
def pair(sgpu: Shell, servers: dict[str, WorkspaceServer], tmp_path: Path) -> Make:
    """Makes a project with two clones, in a workspace of its own."""

    def make(
        staging: str = "",
        *,
        hidden: str = "PERMISSION_DENIED",
        mode: str = "production",
        experiment: str = "exp",
        title: str = "nightly",
    ) -> Pair:
        key, shells, server = uuid4().hex, [], servers[hidden]
        state = tmp_path / "state"
        state.mkdir()
        (state / ".sgpu-state").touch()
        for who in (ANN, BOB):
            name = who.partition("@")[0]
            folder = tmp_path / name
            folder.mkdir()
            (folder / "train.py").write_text("def main():\n    pass\n")
            (folder / "sgpu.yml").write_text(
                PROJECT.format(
                    staging=staging, mode=mode, state=state, experiment=experiment, bob=BOB,
                    title=title,
                )
            )  # fmt: skip
            server.users[f"dapi-{name}-{key}"] = User(name=who, workspace=key)
            login = {
                "DATABRICKS_HOST": server.url,
                "DATABRICKS_TOKEN": f"dapi-{name}-{key}",
                "DATABRICKS_CONFIG_FILE": "/dev/null",
            }
            shells.append(replace(sgpu, folder=folder, environ=sgpu.environ | login))
        made = Pair(shells[0], shells[1], server)
        (made.tenant / "Volumes/main/ml/s").mkdir(parents=True)
        return made

    return make


@pytest.mark.parametrize("hidden", ["PERMISSION_DENIED", "RESOURCE_DOES_NOT_EXIST"])
@pytest.mark.parametrize("staging", sampled(["", SHARED, VOLUME], quick=1))
def test_what_one_user_applied_is_no_change_for_the_other(
    pair: Make, staging: str, hidden: str
) -> None:
    made = pair(staging, hidden=hidden)
    applied(made.ann)
    before = made.settings()
    assert changed(made.ann) == changed(made.bob) == {}
    applied(made.bob)
    assert changed(made.ann) == changed(made.bob) == {}
    assert made.settings() == before


@pytest.mark.parametrize("staging", sampled(["", SHARED, VOLUME], quick=1))
def test_another_user_changes_what_the_file_changes_and_no_more(pair: Make, staging: str) -> None:
    made = pair(staging)
    applied(made.ann)
    task = made.task()
    made.write("0 0 2", "0 0 3")
    schedule = {"schedule.quartz_cron_expression": "0 0 3 * * ?"}
    assert changed(made.ann) == changed(made.bob) == schedule
    applied(made.bob)
    assert made.task() == task
    assert changed(made.ann) == changed(made.bob) == {}


@pytest.mark.parametrize("staging", sampled(["", SHARED, VOLUME], quick=1))
def test_code_that_another_user_applies_is_staged_by_them_and_stays(
    pair: Make, staging: str
) -> None:
    made = pair(staging)
    applied(made.ann)
    assert warned(made.bob) == []
    made.write("pass", "return 1", "train.py")
    assert changed(made.ann) == changed(made.bob) == {"code": True}
    said = warned(made.bob)  # commands lie in the workspace, also beside a volume
    assert len(said) == (0 if staging == SHARED else 1)
    assert all(f"from the staging folder of `{ANN}` to that of `{BOB}`" in one for one in said)
    assert warned(made.ann) == []
    applied(made.bob)
    task = made.task()
    assert task["mlflow_experiment_directory"] == f"/Workspace/Users/{ANN}", "who owns the job"
    assert BOB in task["deployments"][0]["command_path"] or "Shared" in staging
    for path in (task["code_source_path"], task["deployments"][0]["command_path"]):
        assert (made.tenant / path.lstrip("/")).is_file()
    assert changed(made.ann) == changed(made.bob) == {}
    applied(made.ann)
    assert made.task() == task


@pytest.mark.expensive
def test_files_that_are_gone_are_staged_by_whoever_sees_it(pair: Make) -> None:
    made = pair(VOLUME)
    applied(made.ann)
    (folder,) = made.tenant.glob("Volumes/main/ml/s/runs/*/job.nightly/*")
    shutil.rmtree(folder)
    assert changed(made.bob)
    applied(made.bob)
    assert (made.tenant / made.task()["deployments"][0]["command_path"].lstrip("/")).is_file()
    assert changed(made.ann) == changed(made.bob) == {}


@pytest.mark.parametrize(
    "case",
    sampled([("development", "nightly"), ("production", "'${user} and ${user}'")], quick=1),
    ids=" ".join,
)
def test_a_user_in_the_name_of_a_job_goes_on_to_be_named(pair: Make, case: tuple[str, str]) -> None:
    mode, title = case
    made = pair(SHARED, mode=mode, title=title)
    applied(made.ann)
    named = made.settings()["name"]
    assert named in ("[dev ann] nightly", "ann and ann")
    assert changed(made.ann) == changed(made.bob) == {}
    made.write("0 0 2", "0 0 3")
    applied(made.bob)
    assert made.settings()["name"] == named
    assert made.settings()["tags"].get("dev", "ann") == "ann"
    assert changed(made.ann) == {}


@pytest.mark.expensive
@pytest.mark.parametrize("experiment", ["team/exp", "/Shared/team/exp"])
def test_an_experiment_that_the_file_moves_moves_for_both(pair: Make, experiment: str) -> None:
    made = pair(SHARED)
    applied(made.ann)
    made.write("experiment: exp", f"experiment: {experiment}")
    assert changed(made.ann) == changed(made.bob) == {"run.mlflow.experiment": experiment}
    applied(made.ann)
    assert changed(made.ann) == changed(made.bob) == {}
    folder = made.task()["mlflow_experiment_directory"]
    assert folder in (f"/Workspace/Users/{ANN}/team", "/Workspace/Shared/team")
    made.write(f"experiment: {experiment}", "experiment: exp")
    applied(made.ann)
    assert made.task()["mlflow_experiment_directory"] == f"/Workspace/Users/{ANN}"


@pytest.mark.parametrize("staging", sampled(["", SHARED, VOLUME], quick=1))
def test_a_saved_plan_of_another_user_makes_a_job_of_whoever_applies_it(
    pair: Make, staging: str, tmp_path: Path
) -> None:
    made = pair(staging)
    saved = str(tmp_path / "saved.plan")
    there = replace(made.bob, folder=made.ann.folder)  # the same checkout
    there.done("plan", "--out", saved)
    applied(made.ann, saved)
    task = made.task()
    assert BOB not in str(task)
    assert (made.tenant / task["deployments"][0]["command_path"].lstrip("/")).is_file()
    assert changed(made.ann) == changed(made.bob) == {}


def test_a_target_of_one_user_is_planned_by_both_and_applied_by_that_one(pair: Make) -> None:
    both = pair(SHARED)
    both.write("jobs:\n", f"targets: {{prod: {{user: {ANN}}}}}\njobs:\n")
    both.bob.done("plan", "-t", "prod")
    err = both.bob.exits(1, "apply", "-y", "-t", "prod").err
    assert "error[other_user]" in err
    assert f"applied by `{ANN}` only" in err
    assert f"the login at {both.server.url} is `{BOB}`" in err
    applied(both.ann, "-t", "prod")
