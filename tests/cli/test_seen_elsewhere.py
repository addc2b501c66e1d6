"""Clones of one project that share a state, whose users and workspaces differ: what one launched is
shown in the other as it was recorded, and is launched once."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from threading import Barrier

import pytest

from sgpu_decl.model.assumptions import Profile
from sgpu_decl.model.times import to_text
from sgpu_decl.storing.stores import FOLDER, SharedPlace, shared_store
from sgpu_decl.testing.workspace import Effect, ExecutionSettings, Fault, User, WorkspaceServer
from sgpu_decl.testing.workspace.executing.records import RunRecords
from tests.cli.conftest import Answer, Shell
from tests.cli.test_shared_state import actions, where
from tests.sampling import sampled
from tests.shared_places import new_place
from tests.support import PATIENCE, require, some

require("databricks.sdk")

PROJECT = """project: {{name: p}}
state: {{kind: folder, {where}}}
runs:
  hello:
    gpus: 1
    type: A10
    command: [echo, hello]
    permissions: {permissions}
    backend: {{kind: databricks{staging}}}
"""
ANN, BOB = "ann@example.org", "bob@example.org"
USERS = {
    "dapi-ann": User(name=ANN, workspace="team"),
    "dapi-bob": User(name=BOB, workspace="team"),
    "dapi-eve": User(name="eve@example.org"),
}
LOOKS = (("status",), ("wait", "hello"), ("logs", "hello"), ("show", "hello"))
PARALLEL = ("--on-active", "parallel")
NOT_VISIBLE = "attempt_not_visible"
MISSING = "RESOURCE_DOES_NOT_EXIST"
HIDDEN = {"refused": {}, "not shown": {"hidden-folder": MISSING, "hidden-run": MISSING}}
"""How a workspace answers about what a user may not see (`folder-shows-all` is not emulated)."""

DATABRICKS = "sgpu_decl.backends.databricks.launching.databricks_launcher,DatabricksLauncher"
VIEWED = f"[{{user: {BOB}, level: view}}]"
SUBMITTED = f"{DATABRICKS},start,after,1"
BEGUN = f"{DATABRICKS},stage,before,1"
MARKED = "sgpu_decl.backends.remote.launching.remote_launches,RemoteLaunches,mark,after,2"


@dataclass(frozen=True)
class Team:
    """Workspaces, which start no run, and clones of a project."""

    servers: tuple[WorkspaceServer, WorkspaceServer]
    clones: tuple[Shell, Shell]

    def clone(self, number: int, user: str, workspace: int = 0) -> Shell:
        shell = self.clones[number]
        logged_in = {
            "DATABRICKS_HOST": self.servers[workspace].url,
            "DATABRICKS_TOKEN": f"dapi-{user.partition('@')[0]}",
            "DATABRICKS_CONFIG_FILE": "/dev/null",
        }
        return replace(shell, environ=shell.environ | logged_in)

    def submitted(self) -> list[str]:
        """Who submitted the runs of both workspaces, in this order."""
        tenants = [server.tenants.of_token("dapi-ann") for server in self.servers]
        runs = [run for tenant in tenants for run in RunRecords(tenant).all()]
        return [run.creator for run in sorted(runs, key=lambda run: run.started)]


Make = Callable[..., Team]


@pytest.fixture
def team(request: pytest.FixtureRequest, sgpu: Shell, tmp_path: Path) -> Iterator[Make]:
    """Makes two workspaces that behave as a profile says, and two clones."""
    settings = ExecutionSettings(capacity={"GPU_1xA10": 0})
    running = []

    def make(staging: str | None = None, hidden: str = "refused", permissions: str = "[]") -> Team:
        place = new_place(request, FOLDER, tmp_path)
        block = f", staging: {staging}" if staging else ""
        for number in range(2):
            folder = tmp_path / f"clone-{number}"
            folder.mkdir()
            text = PROJECT.format(where=where(place), staging=block, permissions=permissions)
            (folder / "sgpu.yml").write_text(text)
            server = WorkspaceServer(
                tmp_path / f"workspace-{number}", users=USERS, execution=settings,
                profile=Profile(found=HIDDEN[hidden]), org_id=f"90080070060{number}",
            )  # fmt: skip
            running.append(server.start())
        one, two = (replace(sgpu, folder=tmp_path / f"clone-{number}") for number in range(2))
        return Team((running[0], running[1]), (one, two))

    yield make
    for server in running:
        server.close()


def _applied(clone: Shell, *options: str) -> Answer:
    return clone.done("apply", "-y", "--detach", *options)


def _is_left_alone(clone: Shell, *named: str) -> None:
    """That a clone neither launches the run nor calls it lost, and says where it is."""
    assert actions(clone) == {"run.hello": "adopt"}
    _applied(clone)
    (status,) = clone.data("status")["runs"]
    assert (status["attempt"], status["state"]) == (1, "queued")
    assert status["unknown_since"]
    shown = clone.here("status").out
    assert " recorded" in shown
    for word in named:
        assert word in status["unavailable"]
        assert word in shown
    for command in ("logs", "results", "cancel", "wait", "fetch"):
        refused = clone.here(command, "hello", "-o", "json")
        assert refused.json["error"]["code"] == "launched_elsewhere", (command, refused.err)
        assert all(word in refused.json["error"]["message"] for word in named), command


def _recorded(clone: Shell) -> str:
    """The state of the first attempt, as the shared state has it."""
    pulled = json.loads(clone.here("state", "pull").out)
    return str(pulled["resources"][0]["attempts"][0]["state"])


def _recorded_before(clone: Shell, time: timedelta) -> None:
    """Let the first attempt have been recorded a while ago."""
    with clone.edited_state() as pulled:
        pulled["resources"][0]["attempts"][0]["created_at"] = to_text(datetime.now(UTC) - time)


def _change_command(clone: Shell, before: str = "hello", after: str = "bye") -> None:
    clone.edit("sgpu.yml", f"[echo, {before}]", f"[echo, {after}]")


def _cancelled_in_the_workspace(team: Team) -> None:
    """As somebody does it there by hand."""
    from databricks.sdk import WorkspaceClient

    client = WorkspaceClient(host=team.servers[0].url, token="dapi-ann")
    (run,) = client.jobs.list_runs()
    assert run.run_id is not None
    client.jobs.cancel_run_and_wait(run.run_id)


@contextmanager
def _state_is_locked(clone: Shell) -> Iterator[None]:
    """By an apply of another machine."""
    folder = clone.folder.parent
    place = SharedPlace(kind=FOLDER, address=str(folder / "shared"), project="p")
    store = shared_store(place, folder / "another" / "default")
    state = some(store.read())
    with closing(store), store.lock("apply", lineage=state.lineage):
        yield


@pytest.mark.parametrize("user", [ANN, BOB])
def test_a_run_of_another_workspace_is_shown_as_recorded(team: Make, user: str) -> None:
    made = team()
    _applied(made.clone(0, ANN))
    _is_left_alone(made.clone(1, user, workspace=1), ANN, made.servers[0].url)
    assert made.submitted() == [ANN]
    assert actions(made.clone(0, ANN)) == {"run.hello": "adopt"}


def test_a_run_that_a_workspace_does_not_show_to_anybody_else_is_shown_as_recorded(
    team: Make,
) -> None:
    made = team()
    _applied(made.clone(0, ANN))
    _is_left_alone(made.clone(1, "eve@example.org"), ANN, "eve@example.org")
    assert made.submitted() == [ANN]


def test_a_run_of_another_workspace_is_not_cancelled_by_its_id(team: Make) -> None:
    made = team()
    _applied(made.clone(0, ANN))
    there = made.clone(1, ANN, workspace=1)
    _applied(there, "--rerun", "run.hello", "--on-active", "parallel")
    first, second = (RunRecords(server.tenants.of_token("dapi-ann")) for server in made.servers)
    assert first.all()[0].run_id == second.all()[0].run_id
    assert f"launched it in {made.servers[0].url}" in there.exits(1, "cancel", "hello#1").err
    assert all(run.active for records in (first, second) for run in records.all())


@pytest.mark.parametrize("hidden", sampled(list(HIDDEN), quick=1))
def test_a_run_that_the_user_may_not_see_is_shown_as_recorded(team: Make, hidden: str) -> None:
    made = team(hidden=hidden)
    _applied(made.clone(0, ANN))
    _is_left_alone(made.clone(1, BOB), ANN, BOB, f"/Workspace/Users/{ANN}")
    assert made.submitted() == [ANN]


@pytest.mark.parametrize("look", sampled(LOOKS, quick=1), ids=" ".join)
def test_whoever_sees_an_end_records_it_for_those_who_do_not(
    team: Make, look: tuple[str, ...]
) -> None:
    made = team()
    ann, bob = made.clone(0, ANN), made.clone(1, BOB)
    _applied(ann)
    bob.done("plan", "--out", "before", "--rerun", "run.hello", *PARALLEL)
    _cancelled_in_the_workspace(made)
    assert _recorded(bob) == "queued"
    ann.here(*look)
    assert _recorded(bob) == "cancelled"
    _change_command(bob)
    assert actions(bob) == {"run.hello": "create"}
    _change_command(bob, "bye", "hello")
    applied = bob.here("apply", "-y", "--detach", "before")  # it is as good as it was
    assert applied.code == 0, applied.err
    assert made.submitted() == [ANN, BOB]


def test_an_end_that_cannot_be_recorded_now_is_recorded_by_the_next_look(team: Make) -> None:
    made = team(staging="/Workspace/Shared/sgpu", permissions=VIEWED)
    ann, bob = made.clone(0, ANN), made.clone(1, BOB)
    _applied(ann)
    _cancelled_in_the_workspace(made)
    _change_command(bob)
    with _state_is_locked(bob):
        (status,) = bob.data("status")["runs"]
        assert status["state"] == "cancelled"
        assert actions(bob) == {"run.hello": "create"}
    assert _recorded(ann) == "queued"
    bob.done("status")  # the next look records it
    assert _recorded(ann) == "cancelled"


def test_a_run_that_cannot_be_seen_is_active_no_longer_than_its_limits(team: Make) -> None:
    made = team()
    ann, bob = made.clone(0, ANN), made.clone(1, BOB)
    limits = ("--set", "runs.hello.timeout=1h", "--set", "runs.hello.startup_timeout=10m")
    _applied(ann, *limits)
    for hours, counts in (0, True), (1, True), (2, False):
        _recorded_before(ann, timedelta(hours=hours))
        same = bob.here("plan", "-o", "json", *limits)
        (change,) = same.json["data"]["changes"]
        assert change["action"] == ("adopt" if counts else "no_op")
        (check,) = [one for one in same.json["data"]["checks"] if one["id"] == NOT_VISIBLE]
        assert f"`hello#1` is not visible to `{BOB}`, recorded at" in check["summary"]
        _change_command(bob)
        other = bob.here("plan", "-o", "json", *limits)
        _change_command(bob, "bye", "hello")
        refused = [one["id"] for one in other.json["data"]["checks"] if one["severity"] == "error"]
        assert refused == (["active_run"] if counts else [])
        (status,) = bob.data("status")["runs"]
        assert status["state"] == ("queued" if counts else "lost")
        assert f"not visible to `{BOB}`, recorded" in bob.here("status").out
        waited = bob.here("wait", "hello", "-o", "json")
        assert waited.json["error"]["code"] == "launched_elsewhere"
        bob.done("apply", "-y", "--detach", *limits)
        assert _recorded(ann) == "queued"  # nobody has seen how it ended
    assert made.submitted() == [ANN]


def test_a_run_is_launched_beside_one_that_cannot_be_seen_on_request(team: Make) -> None:
    made = team()
    _applied(made.clone(0, ANN))
    bob = made.clone(1, BOB)
    _applied(bob, "--rerun", "run.hello", "--on-active", "parallel")
    assert made.submitted() == [ANN, BOB]
    assert actions(bob) == {"run.hello": "adopt"}


@pytest.mark.expensive  # its experiment starts the MLflow server
def test_a_run_that_the_user_may_view_is_followed(team: Make) -> None:
    made = team(staging="/Workspace/Shared/sgpu", permissions=VIEWED)
    bob = made.clone(1, BOB)
    _applied(made.clone(0, ANN))
    (status,) = bob.data("status")["runs"]
    assert "unavailable" not in status
    assert bob.done("open", "hello", "--print").out == status["links"]["run"] + "\n"
    bob.done("logs", "hello")


@pytest.mark.parametrize("hidden", sampled(list(HIDDEN), quick=1))
def test_only_a_user_who_would_see_a_run_takes_it_for_lost(team: Make, hidden: str) -> None:
    made = team(hidden=hidden)
    ann, bob = made.clone(0, ANN), made.clone(1, BOB)
    _applied(ann)
    records = RunRecords(made.servers[0].tenants.of_token("dapi-ann"))
    (run,) = records.all()
    ann.done("status")  # from now on its workspace is known to show it
    records.delete(run.run_id)
    _is_left_alone(bob, ANN)
    assert actions(ann) == {"run.hello": "create"}


def test_a_run_goes_on_though_its_launch_folder_was_deleted(team: Make) -> None:
    made = team()
    ann = made.clone(0, ANN)
    _applied(ann)
    shutil.rmtree(made.servers[0].tenants.of_token("dapi-ann").folder / "Workspace/Users" / ANN)
    assert actions(made.clone(1, ANN)) == {"run.hello": "adopt"}
    made.clone(1, ANN).done("cancel", "hello")


@pytest.mark.parametrize(
    "case", sampled(list(product([BEGUN, MARKED, SUBMITTED], HIDDEN)), quick=1), ids=str
)
def test_a_launch_that_another_user_began_stays_open(team: Make, case: tuple[str, str]) -> None:
    step, hidden = case
    made = team(hidden=hidden)
    ann, bob = made.clone(0, ANN), made.clone(1, BOB)
    ann.kill_at(step, "apply", "-y", "--detach")
    assert actions(bob) == {"run.hello": "adopt"}
    applied = _applied(bob)
    assert "an earlier apply began to launch `hello#1`" in applied.err
    assert f"`{ANN}` began to launch it in {made.servers[0].url}" in applied.err
    assert f"/Workspace/Users/{ANN}" in applied.err
    assert "it is not known whether that runs" in _applied(made.clone(1, ANN, workspace=1)).err
    _applied(ann)
    assert made.submitted() == [ANN]
    assert actions(ann) == {"run.hello": "adopt"}


@pytest.mark.expensive
def test_a_launch_in_a_shared_folder_is_not_submitted_by_another_user(team: Make) -> None:
    """`token-of-another-user`: nobody knows whether the workspace would find it."""
    made = team(staging="/Workspace/Shared/sgpu")
    ann, bob = made.clone(0, ANN), made.clone(1, BOB)
    ann.kill_at(SUBMITTED, "apply", "-y", "--detach")
    assert f"`{ANN}` began it from `/Workspace/Shared/sgpu/runs/" in _applied(bob).err
    assert made.submitted() == [ANN]
    _applied(ann)
    assert made.submitted() == [ANN]
    (status,) = ann.data("status")["runs"]
    assert (status["attempt"], status["state"]) == (1, "queued")


@pytest.mark.expensive
def test_a_launch_that_certainly_did_not_happen_is_made_by_another_user(team: Make) -> None:
    """A shared folder shows that nothing was staged (`folder-shows-all`)."""
    made = team(staging="/Workspace/Shared/sgpu")
    made.clone(0, ANN).kill_at(BEGUN, "apply", "-y", "--detach")
    assert "it is not known" not in _applied(made.clone(1, BOB)).err
    assert made.submitted() == [BOB]


@pytest.mark.expensive  # its experiment starts the MLflow server
def test_a_submission_that_was_noted_is_recorded_by_a_user_who_may_view_it(team: Make) -> None:
    made = team(staging="/Workspace/Shared/sgpu", permissions=VIEWED)
    made.clone(0, ANN).kill_at(MARKED, "apply", "-y", "--detach")
    bob = made.clone(1, BOB)
    assert "it is not known" not in _applied(bob).err
    assert made.submitted() == [ANN]
    (status,) = bob.data("status")["runs"]
    assert "unavailable" not in status


def test_a_run_that_may_not_be_looked_at_hides_no_other(team: Make) -> None:
    made = team()
    ann, bob = made.clone(0, ANN), made.clone(1, BOB)
    other = "  other: {gpus: 1, type: CPU, command: [echo, x], mlflow: {enabled: false}}\n"
    for clone in (ann, bob):
        clone.write("sgpu.yml", clone.read("sgpu.yml") + other)
    _applied(ann, "--select", "run.hello")
    applied = bob.here("apply", "-y")
    assert "error[launched_elsewhere]: `hello#1` cannot be asked from here" in applied.err
    assert applied.code == 1
    runs = bob.data("status")["runs"]
    assert {run["name"]: run["state"] for run in runs} == {"hello": "queued", "other": "succeeded"}


def test_the_state_names_workspace_user_folder_and_run(team: Make) -> None:
    made = team()
    ann = made.clone(0, ANN)
    _applied(ann)
    (one,) = json.loads(ann.here("state", "pull").out)["resources"][0]["attempts"]
    (run,) = RunRecords(made.servers[0].tenants.of_token("dapi-ann")).all()
    place = json.loads(one["reference"])
    assert place.pop("folder").startswith(f"/Workspace/Users/{ANN}/.sgpu/runs/")
    assert place.pop("submitted") > 0
    assert place == {
        "host": made.servers[0].url,
        "workspace": made.servers[0].org_id,  # `workspace-id`
        "user": ANN,
        "run_id": run.run_id,
    }


def test_a_workspace_with_another_url_is_the_same(team: Make) -> None:
    made = team()
    _applied(made.clone(0, ANN))
    again = made.clone(1, ANN)
    url = made.servers[0].url.replace("127.0.0.1", "localhost")
    renamed = replace(again, environ=again.environ | {"DATABRICKS_HOST": url})
    (status,) = renamed.data("status")["runs"]
    assert "unavailable" not in status


def test_runs_are_asked_to_stop_at_the_same_time(team: Make) -> None:
    """Each request waits until there are three of them."""
    made = team()
    ann = made.clone(0, ANN)
    ann.edit("sgpu.yml", "[echo, hello]", "[echo, '${matrix.n}']\n    matrix: {n: [1, 2, 3]}")
    _applied(ann)
    together = Barrier(3, timeout=PATIENCE)

    def meet(*_: object) -> None:
        together.wait()

    faults = made.servers[0].faults
    faults.register("meet", meet)
    faults.add(Fault(pattern="POST */runs/cancel", effect=Effect.HOOK, hook="meet", times=0))
    assert ann.done("cancel", "hello*", "--no-wait").err.count("asked to stop") == 3


@pytest.mark.expensive
def test_a_workspace_that_is_gone_holds_up_nobody(team: Make) -> None:
    """The client of the platform tries each request for some seconds."""
    made = team()
    clone = made.clone(0, ANN)
    _applied(clone)
    made.servers[0].close()

    shown = clone.done("status")
    assert "does not answer" in shown.out
    lets_go = "`sgpu state rm run.hello` removes the run from the state and stops nothing"
    assert lets_go in shown.err
    planned = clone.done("plan")
    assert "hello#1 was queued as far as is known, and cannot be asked now" in planned.out
    refused = clone.error("cancel", "hello")
    assert (lets_go in refused["hint"], refused["retryable"]) == (True, True)
    clone.done("state", "rm", "hello")


@pytest.mark.expensive
def test_many_runs_that_the_user_may_not_see_cost_one_question(team: Make) -> None:
    made = team(staging="/Workspace/Shared/p")
    ann, bob = made.clone(0, ANN), made.clone(1, BOB)
    head, _, run = ann.read("sgpu.yml").partition("  hello:\n")
    names = [f"run-{number:02}" for number in range(37)]
    for clone in (ann, bob):
        runs = [f"  {name}:\n{run}" for name in names]
        runs[-1] = runs[-1].replace("permissions: []", f"permissions: {VIEWED}")
        clone.write("sgpu.yml", head + "".join(runs))
    _applied(ann)
    server = made.servers[0]
    server.recording.clear()
    plan = bob.data("plan")
    asked = server.recording.all()
    assert len(asked) <= 20, [f"{one.method} {one.path} {one.status}" for one in asked]
    hidden = [check["address"] for check in plan["checks"] if check["id"] == NOT_VISIBLE]
    assert hidden == [f"run.{name}" for name in names[:-1]]
    statuses = {run["name"]: "unavailable" in run for run in bob.data("status")["runs"]}
    assert statuses == {name: name != "run-36" for name in names}
