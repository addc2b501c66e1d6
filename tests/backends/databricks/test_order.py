"""Runs in order (`after`): tasks of one run of the workspace, whatever dies or is refused.

The emulated workspace follows `tasks-in-order`, `task-cancel` and `task-logs`, which nobody has
measured.
"""

import json
import signal
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.api import Location, PlanOptions, Session
from sgpu_decl.backends.remote.staging.remote_layout import MARKER
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.plan import Action
from sgpu_decl.testing.contracts.killed_commands import dying
from sgpu_decl.testing.workspace import Effect, Fault, WorkspaceServer
from sgpu_decl.testing.workspace.executing.records import Run, RunRecords
from tests.backends.databricks.conftest import POLICY
from tests.backends.databricks.test_staging import uploads
from tests.sampling import strided
from tests.support import PATIENCE, until

SMALLEST = {"gpus": 1, "type": "A10", "grace": "500ms", "env": {"base": "gpu-6"}}
CODE = """\
import os, pathlib, time, zlib
def train(fails=False, gate=""):
    print("training")
    while gate and not pathlib.Path(gate).exists():
        time.sleep(0.05)
    if fails:
        raise ValueError("no model")
def evaluate():
    print("evaluating")
    return "good"
def make():
    rank, folder = os.environ["RANK"], pathlib.Path(os.environ["SGPU_OUTPUT_DIR"])
    (folder / "model").mkdir()
    (folder / "model" / rank).write_text(rank)
    (folder / "log.txt").write_text(rank)
    if rank == "0":
        (folder / "large.bin").write_bytes(bytes(range(250)) * 70_000)
def read(folder, pause=0):
    files = [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]
    found = {str(path.relative_to(folder)): zlib.crc32(path.read_bytes()) for path in files}
    pathlib.Path(folder, "mine-" + os.environ["RANK"]).touch()
    print("reading", flush=True)
    time.sleep(pause)
    return {"folder": folder, "found": {name: found[name] for name in found if name[:4] != "mine"}}
"""
MAKES: dict[str, Any] = {"entrypoint": "train.py:make", "gpus": 2}
READS: dict[str, Any] = {
    "entrypoint": "train.py:read", "gpus": 2, "args": {"folder": "${run.train.output}"},
}  # fmt: skip
LEFT = {
    "model/0": b"0", "model/1": b"1", "log.txt": b"0", "node_1/log.txt": b"1",
    "large.bin": bytes(range(250)) * 70_000,  # it comes in three parts
}  # fmt: skip
WRITER = "sgpu_decl.storing.sqlite.writer,SqliteWriter"
LAUNCHER = "sgpu_decl.backends.databricks.launching.databricks_launcher,DatabricksLauncher"
LAUNCHES = "sgpu_decl.backends.remote.launching.remote_launches,RemoteLaunches"
STEPS = [
    f"{WRITER},begin,after,1",
    f"{WRITER},begin,after,2",
    f"{LAUNCHES},mark,after,1",
    f"{LAUNCHES},mark,after,2",
    f"{LAUNCHER},_write_submission,before,1",
    f"{LAUNCHER},_write_submission,after,1",
    f"{LAUNCHER},_submit,after,1",
    f"{LAUNCHES},mark,after,3",
    f"{LAUNCHES},mark,after,4",
    f"{WRITER},launched,after,1",
    f"{WRITER},launched,after,2",
]

Open = Callable[[], Session]
Declare = Callable[..., None]
Runs = Callable[[], list[Run]]


@pytest.fixture
def declare(project: Path) -> Declare:
    """Writes a project in which `evaluate` comes after `train`, with more fields for each."""
    (project / "run.yaml").unlink()
    (project / "train.py").write_text(CODE)

    def write(train: dict[str, Any] | None = None, evaluate: dict[str, Any] | None = None) -> None:
        runs = {
            "train": {**SMALLEST, "entrypoint": "train.py:train", **(train or {})},
            "evaluate": {
                **SMALLEST, "entrypoint": "train.py:evaluate", "after": ["train"],
                **(evaluate or {}),
            },
        }  # fmt: skip
        runs = {name: {"backend": "databricks", **run} for name, run in runs.items()}
        content = {"project": {"name": "pipeline"}, "runs": runs}
        (project / "sgpu.yml").write_text(json.dumps(content))

    write()
    return write


@pytest.fixture
def pipeline(project: Path, declare: Declare) -> Open:
    """Opens the project anew, as another call of the command line does."""
    return lambda: Session.open(Location(file=project / "sgpu.yml", project=project))


@pytest.fixture
def runs(server: WorkspaceServer, token: str) -> Runs:
    """The runs of the workspace."""
    return lambda: RunRecords(server.tenants.of_token(token)).all()


@pytest.fixture
def refused(server: WorkspaceServer, token: str) -> None:
    """The workspace refuses the next run that is submitted."""
    fault = Fault(
        pattern="POST */runs/submit",
        effect=Effect.STATUS,
        status_code=400,
        body={"error_code": "INVALID_PARAMETER_VALUE", "message": "No."},
    )
    server.faults.add(fault, tenant=server.tenants.of_token(token).key)


def named(refs: tuple[AttemptRef, ...]) -> dict[str, AttemptRef]:
    return {ref.address.name: ref for ref in refs}


def ended(opened: Session, *refs: AttemptRef) -> list[AttemptView]:
    opened.runs.wait(refs, timeout=PATIENCE)
    opened.record_ended()
    return [opened.runs.status(ref) for ref in refs]


def lines(opened: Session, ref: AttemptRef) -> list[str]:
    read = opened.runs.logs(ref, ranks=(0,), follow=False)
    return [line.text for line in read if line is not None]


@pytest.mark.expensive
def test_one_run_has_a_task_for_each_and_keeps_their_order(pipeline: Open, runs: Runs) -> None:
    opened = pipeline()
    refs = named(opened.apply(opened.plan()).launched)

    train, evaluate = ended(opened, refs["train"], refs["evaluate"])

    assert [train.state, evaluate.state] == [AttemptState.SUCCEEDED] * 2
    assert train.ended_at is not None
    assert evaluate.started_at is not None
    assert train.ended_at <= evaluate.started_at
    (run,) = runs()
    assert run.name == "train#1, evaluate#1"
    assert [task["task_key"] for task in run.tasks] == ["1-train", "2-evaluate"]
    assert lines(opened, refs["train"]) == ["training"]
    assert lines(opened, refs["evaluate"]) == ["evaluating"]
    assert [one["value"] for one in opened.runs.results(refs["evaluate"])] == ["good"]
    again = pipeline().plan().plan
    assert {change.action for change in again.changes} == {Action.NO_OP}


@pytest.mark.expensive
def test_nothing_starts_after_a_failure_until_both_are_launched_again(
    pipeline: Open, declare: Declare, runs: Runs
) -> None:
    declare({"args": {"fails": True}})
    opened = pipeline()
    refs = named(opened.apply(opened.plan()).launched)

    train, evaluate = ended(opened, refs["train"], refs["evaluate"])

    assert train.failure is FailureClass.EXCEPTION
    assert (evaluate.state, evaluate.failure) == (
        AttemptState.FAILED, FailureClass.UPSTREAM_FAILED
    )  # fmt: skip
    assert evaluate.first_cause is not None
    assert evaluate.first_cause.summary == "train#1 failed, and this run comes after it"

    declare()
    again = pipeline()
    second = again.apply(again.plan()).launched
    assert {str(ref) for ref in second} == {"train#2", "evaluate#2"}
    assert [view.state for view in ended(again, *second)] == [AttemptState.SUCCEEDED] * 2
    assert len(runs()) == 2


@pytest.mark.expensive
def test_a_waiting_run_says_so_is_cancelled_alone_and_holds_back_a_later_apply(
    pipeline: Open, declare: Declare, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    declare({"args": {"gate": str(gate)}})
    opened = pipeline()
    refs = named(opened.apply(opened.plan()).launched)
    until(lambda: opened.runs.status(refs["train"]).state is AttemptState.RUNNING)
    waiting = opened.runs.status(refs["evaluate"])
    assert (waiting.state, waiting.waiting_for) == (AttemptState.QUEUED, "train#1")

    opened.runs.cancel(refs["evaluate"])
    (evaluate,) = ended(opened, refs["evaluate"])

    assert evaluate.state is AttemptState.CANCELLED
    assert opened.runs.status(refs["train"]).state is AttemptState.RUNNING
    again = pipeline().plan(PlanOptions(rerun=("run.evaluate",)))
    assert "upstream_not_joined" in {one.code for one in again.plan.checks}
    gate.touch()
    (train,) = ended(opened, refs["train"])
    assert train.state is AttemptState.SUCCEEDED


@pytest.mark.expensive
def test_what_the_workspace_refuses_is_not_there_and_can_be_applied_again(
    pipeline: Open, runs: Runs, refused: None, tenant: Path
) -> None:
    opened = pipeline()

    applied = opened.apply(opened.plan())

    assert {address.name for address, _ in applied.failed} == {"train", "evaluate"}
    assert not list((tenant / "Workspace").rglob("submission.json"))
    assert runs() == []
    refs = opened.apply(opened.plan()).launched
    assert {str(ref) for ref in refs} == {"train#1", "evaluate#1"}
    assert [view.state for view in ended(opened, *refs)] == [AttemptState.SUCCEEDED] * 2
    assert len(runs()) == 1


@pytest.mark.expensive
def test_a_launch_alone_after_a_refusal_is_a_run_alone(
    pipeline: Open, runs: Runs, refused: None
) -> None:
    opened = pipeline()
    opened.apply(opened.plan())

    (ref,) = opened.apply(opened.plan(PlanOptions(select=("run.train",)))).launched

    (train,) = ended(opened, ref)
    assert train.state is AttemptState.SUCCEEDED
    (run,) = runs()
    assert [task["task_key"] for task in run.tasks] == ["train"]


def folder_read(opened: Session, ref: AttemptRef) -> str:
    """The folder in which each rank of a run found what `train` left; it is gone with the nodes."""
    crc = {name: zlib.crc32(content) for name, content in LEFT.items()}
    (folder,) = {str(one["value"]["folder"]) for one in opened.runs.results(ref)}
    assert [one["value"]["found"] for one in opened.runs.results(ref)] == [crc, crc]
    assert not Path(folder).parent.exists()
    return folder


@pytest.mark.expensive
def test_each_node_reads_the_output_of_the_run_before(
    pipeline: Open, declare: Declare, runs: Runs
) -> None:
    declare(MAKES, READS)
    opened = pipeline()
    refs = named(opened.apply(opened.plan()).launched)

    views = ended(opened, refs["train"], refs["evaluate"])

    assert [view.state for view in views] == [AttemptState.SUCCEEDED] * 2
    assert folder_read(opened, refs["evaluate"]).endswith("/train-1")
    assert len(runs()) == 1
    again = pipeline().plan().plan
    assert {change.action for change in again.changes} == {Action.NO_OP}


@pytest.mark.expensive
def test_a_later_apply_reads_an_output_until_gc_has_freed_it(
    pipeline: Open, declare: Declare, runs: Runs
) -> None:
    declare(MAKES, READS)
    opened = pipeline()
    (train,) = opened.apply(opened.plan(PlanOptions(select=("run.train",)))).launched
    ended(opened, train)

    later = pipeline()
    (evaluate,) = later.apply(later.plan()).launched

    (view,) = ended(later, evaluate)
    assert view.state is AttemptState.SUCCEEDED
    assert folder_read(later, evaluate).endswith("/train-1")
    assert len(runs()) == 2

    pipeline().gc(keep_last=0, older_than=None, everything=True, dry_run=False)
    last = pipeline()
    with pytest.raises(BackendError, match="`train#1`, which is gone") as raised:
        last.apply(last.plan(PlanOptions(rerun=("run.evaluate",))))
    assert raised.value.code == "output_gone"
    assert len(runs()) == 2


@pytest.mark.expensive
def test_nodes_that_come_after_a_lost_one_read_the_output_anew(
    pipeline: Open, declare: Declare, server: WorkspaceServer, token: str
) -> None:
    pause = {**READS["args"], "pause": 2}
    declare(MAKES, {**READS, "args": pause, "retry": {"max": 1, "backoff": "0s"}})
    opened = pipeline()
    (train,) = opened.apply(opened.plan(PlanOptions(select=("run.train",)))).launched
    ended(opened, train)
    server.faults.add(
        Fault(pattern="POST */runs/submit", effect=Effect.HOOK, hook="lose_node",
              arguments={"node": 0, "after_lines": 1}),
        tenant=server.tenants.of_token(token).key,
    )  # fmt: skip

    later = pipeline()
    (evaluate,) = later.apply(later.plan()).launched

    (view,) = ended(later, evaluate)
    assert (view.state, view.restart) == (AttemptState.SUCCEEDED, 1)
    folder_read(later, evaluate)


@pytest.mark.expensive
def test_an_output_is_read_that_is_staged_in_a_volume(
    pipeline: Open, declare: Declare, server: WorkspaceServer, token: str
) -> None:
    volume = server.tenants.of_token(token).tree("Volumes") / "main" / "ml" / "sgpu"
    volume.mkdir(parents=True)
    block = {"backend": {"kind": "databricks", "staging": "/Volumes/main/ml/sgpu/here"}}
    declare({**MAKES, **block}, {**READS, **block})
    opened = pipeline()
    refs = named(opened.apply(opened.plan()).launched)

    views = ended(opened, refs["train"], refs["evaluate"])

    assert [view.state for view in views] == [AttemptState.SUCCEEDED] * 2
    folder_read(opened, refs["evaluate"])


def test_runs_that_differ_in_what_belongs_to_both_are_refused_at_their_place(
    pipeline: Open, declare: Declare
) -> None:
    declare({"budget": POLICY})
    (found,) = [one for one in pipeline().plan().plan.checks if one.code == "cannot_join"]
    assert found.summary.startswith("`train` and `evaluate` differ in `budget`")
    assert found.place is not None


def test_what_cannot_be_staged_leaves_nothing_of_the_others(
    pipeline: Open, runs: Runs, refused: None, server: WorkspaceServer, token: str, tenant: Path
) -> None:
    key = server.tenants.of_token(token).key
    pipeline().apply(pipeline().plan())  # shared objects are there now
    sent = [path for path in uploads(server, key) if "/objects/" not in path]
    first, second, *_ = [at for at, path in enumerate(sent) if path.endswith(MARKER)]
    assert "/train/" in sent[first]
    assert "/evaluate/" in sent[second]
    server.faults.add(
        Fault(pattern="POST */workspace/import", effect=Effect.STATUS, after=second,
              status_code=403, body={"error_code": "PERMISSION_DENIED", "message": "not yours"}),
        tenant=key,
    )  # fmt: skip
    server.recording.clear(key)
    opened = pipeline()

    applied = opened.apply(opened.plan())

    assert uploads(server, key)[-1] == sent[second]
    assert len(uploads(server, key)) == second + 1
    assert {(address.name, error.code) for address, error in applied.failed} == {
        ("train", "permission_denied"),
        ("evaluate", "permission_denied"),
    }
    assert runs() == []
    assert not list((tenant / "Workspace").rglob(MARKER))
    refs = opened.apply(opened.plan()).launched
    assert {str(ref) for ref in refs} == {"train#1", "evaluate#1"}
    assert len(runs()) == 1
    opened.runs.cancel(named(refs)["train"])


@pytest.mark.expensive
def test_a_lost_answer_is_one_run(
    pipeline: Open, runs: Runs, server: WorkspaceServer, token: str
) -> None:
    fault = Fault(pattern="POST */runs/submit", effect=Effect.LOSE_ANSWER)
    server.faults.add(fault, tenant=server.tenants.of_token(token).key)
    opened = pipeline()
    opened.apply(opened.plan())

    again = pipeline()
    again.apply(again.plan())

    refs = again.runs.find("train#1", "evaluate#1")
    assert [view.state for view in ended(again, *refs)] == [AttemptState.SUCCEEDED] * 2
    assert len(runs()) == 1


@pytest.mark.expensive
@pytest.mark.parametrize("step", strided(STEPS, 3))
def test_killed_at_a_step_and_applied_again_there_is_one_run(
    pipeline: Open, project: Path, runs: Runs, step: str
) -> None:
    died = subprocess.run(
        dying(step, "apply", "-y", "--detach", "sgpu.yml"),
        cwd=project,
        capture_output=True,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()

    opened = pipeline()
    applied = opened.apply(opened.plan())

    found = (*opened.runs.find("train"), *opened.runs.find("evaluate"))
    refs = tuple(dict.fromkeys((*applied.launched, *applied.adopted, *found)))
    states = {str(ref): view.state for ref, view in zip(refs, ended(opened, *refs), strict=True)}
    assert states == dict.fromkeys(("train#1", "evaluate#1"), AttemptState.SUCCEEDED)
    assert len(runs()) == 1
    again = pipeline().plan().plan
    assert {change.action for change in again.changes} == {Action.NO_OP}


@pytest.mark.expensive
def test_a_pipeline_whose_apply_was_killed_while_it_was_replaced_is_one_run_of_the_next(
    pipeline: Open, declare: Declare, project: Path, runs: Runs, tmp_path: Path
) -> None:
    declare({"args": {"gate": str(tmp_path / "gate")}})
    opened = pipeline()
    first = named(opened.apply(opened.plan()).launched)
    log = opened.runs.logs(first["train"], ranks=(0,), follow=True)
    next(item for item in log if item is not None)
    declare()
    planned = pipeline()
    both = PlanOptions(rerun=("evaluate",), on_active="replace")
    planned.save(planned.plan(both), project / "saved.plan")
    step = "sgpu_decl.runs.project_runs,ProjectRuns,wait,before,1"
    died = subprocess.run(
        dying(step, "apply", "--detach", "saved.plan"),
        cwd=project,
        capture_output=True,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()

    again = pipeline()
    again.apply(again.plan())

    old, train, evaluate = ended(again, first["train"], *again.runs.find("train#2", "evaluate#2"))
    assert old.state is AttemptState.CANCELLED
    assert [train.state, evaluate.state] == [AttemptState.SUCCEEDED] * 2
    assert old.ended_at is not None
    assert train.started_at is not None
    assert old.ended_at <= train.started_at
    assert len(runs()) == 2
