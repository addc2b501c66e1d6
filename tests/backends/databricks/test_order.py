"""Runs in order (`after`): tasks of one run of the workspace, whatever dies or is refused.

The emulated workspace follows `tasks-in-order`, `task-cancel` and `task-logs`, which nobody has
measured.
"""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.api import PlanOptions, Session
from sgpu_decl.backends.remote.staging.remote_layout import MARKER
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.plan import Action
from sgpu_decl.testing.workspace import Effect
from tests.backends.databricks.bench import DatabricksBench, Launched
from tests.backends.databricks.conftest import POLICY
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

Declare = Callable[..., None]


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


class Pipeline:
    """The two runs of the project, and the workspace that has them."""

    def __init__(self, bench: DatabricksBench) -> None:
        self.bench = bench

    def open(self) -> Session:
        return self.bench.open("sgpu.yml")

    def launch(self, *select: str, **options: Any) -> tuple[Session, dict[str, AttemptRef]]:
        """Apply anew; the session, and what it launched by name."""
        opened = self.open()
        plan = opened.plan(PlanOptions(select=select, **options))
        return opened, {ref.address.name: ref for ref in opened.apply(plan).launched}

    def run(self, *select: str) -> tuple[Session, dict[str, AttemptRef], list[AttemptView]]:
        """The same, to the end of all; how each ended."""
        opened, refs = self.launch(*select)
        return opened, refs, ended(opened, *refs.values())

    def refuse_next(self) -> None:
        self.bench.refuse("POST */runs/submit", 400, "INVALID_PARAMETER_VALUE", "No.")

    def assert_no_op(self) -> None:
        assert {change.action for change in self.open().plan().plan.changes} == {Action.NO_OP}


@pytest.fixture
def pipeline(bench: DatabricksBench, declare: Declare) -> Pipeline:
    return Pipeline(bench)


def ended(opened: Session, *refs: AttemptRef) -> list[AttemptView]:
    opened.runs.wait(refs, timeout=PATIENCE)
    opened.record_ended()
    return [opened.runs.status(ref) for ref in refs]


def states(views: list[AttemptView]) -> list[AttemptState]:
    return [view.state for view in views]


BOTH = [AttemptState.SUCCEEDED] * 2


@pytest.mark.expensive
def test_one_run_has_a_task_for_each_and_keeps_their_order(pipeline: Pipeline) -> None:
    opened, refs, (train, evaluate) = pipeline.run()

    assert states([train, evaluate]) == BOTH
    assert train.ended_at is not None
    assert evaluate.started_at is not None
    assert train.ended_at <= evaluate.started_at
    (run,) = pipeline.bench.records.all()
    assert run.name == "train#1, evaluate#1"
    assert [task["task_key"] for task in run.tasks] == ["1-train", "2-evaluate"]
    assert Launched(opened, refs["train"]).texts(0) == ["training"]
    assert Launched(opened, refs["evaluate"]).texts(0) == ["evaluating"]
    assert [one["value"] for one in opened.runs.results(refs["evaluate"])] == ["good"]
    pipeline.assert_no_op()


@pytest.mark.expensive
def test_nothing_starts_after_a_failure_until_both_are_launched_again(
    pipeline: Pipeline, declare: Declare
) -> None:
    declare({"args": {"fails": True}})

    _, _, (train, evaluate) = pipeline.run()

    assert train.failure is FailureClass.EXCEPTION
    assert (evaluate.state, evaluate.failure) == (
        AttemptState.FAILED, FailureClass.UPSTREAM_FAILED
    )  # fmt: skip
    assert evaluate.first_cause is not None
    assert evaluate.first_cause.summary == "train#1 failed, and this run comes after it"

    declare()
    _, second, views = pipeline.run()
    assert {str(ref) for ref in second.values()} == {"train#2", "evaluate#2"}
    assert states(views) == BOTH
    assert pipeline.bench.runs == 2


@pytest.mark.expensive
def test_a_waiting_run_says_so_is_cancelled_alone_and_holds_back_a_later_apply(
    pipeline: Pipeline, declare: Declare, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    declare({"args": {"gate": str(gate)}})
    opened, refs = pipeline.launch()
    until(lambda: opened.runs.status(refs["train"]).state is AttemptState.RUNNING)
    waiting = opened.runs.status(refs["evaluate"])
    assert (waiting.state, waiting.waiting_for) == (AttemptState.QUEUED, "train#1")

    opened.runs.cancel(refs["evaluate"])

    assert states(ended(opened, refs["evaluate"])) == [AttemptState.CANCELLED]
    assert opened.runs.status(refs["train"]).state is AttemptState.RUNNING
    again = pipeline.open().plan(PlanOptions(rerun=("run.evaluate",)))
    assert "upstream_not_joined" in {one.code for one in again.plan.checks}
    gate.touch()
    assert states(ended(opened, refs["train"])) == [AttemptState.SUCCEEDED]


@pytest.mark.expensive
def test_what_the_workspace_refuses_is_not_there_and_can_be_applied_again(
    pipeline: Pipeline, tenant: Path
) -> None:
    pipeline.refuse_next()
    opened = pipeline.open()

    applied = opened.apply(opened.plan())

    assert {address.name for address, _ in applied.failed} == {"train", "evaluate"}
    assert not list((tenant / "Workspace").rglob("submission.json"))
    assert pipeline.bench.runs == 0
    refs = opened.apply(opened.plan()).launched
    assert {str(ref) for ref in refs} == {"train#1", "evaluate#1"}
    assert states(ended(opened, *refs)) == BOTH
    assert pipeline.bench.runs == 1


@pytest.mark.expensive
def test_a_launch_alone_after_a_refusal_is_a_run_alone(pipeline: Pipeline) -> None:
    pipeline.refuse_next()
    opened, _ = pipeline.launch()

    (ref,) = opened.apply(opened.plan(PlanOptions(select=("run.train",)))).launched

    assert states(ended(opened, ref)) == [AttemptState.SUCCEEDED]
    (run,) = pipeline.bench.records.all()
    assert [task["task_key"] for task in run.tasks] == ["train"]


def folder_read(opened: Session, ref: AttemptRef) -> str:
    """The folder in which each rank of a run found what `train` left; it is gone with the nodes."""
    crc = {name: zlib.crc32(content) for name, content in LEFT.items()}
    (folder,) = {str(one["value"]["folder"]) for one in opened.runs.results(ref)}
    assert [one["value"]["found"] for one in opened.runs.results(ref)] == [crc, crc]
    assert not Path(folder).parent.exists()
    return folder


@pytest.mark.expensive
def test_each_node_reads_the_output_of_the_run_before(pipeline: Pipeline, declare: Declare) -> None:
    declare(MAKES, READS)

    opened, refs, views = pipeline.run()

    assert states(views) == BOTH
    assert folder_read(opened, refs["evaluate"]).endswith("/train-1")
    assert pipeline.bench.runs == 1
    pipeline.assert_no_op()


@pytest.mark.expensive
def test_a_later_apply_reads_an_output_until_gc_has_freed_it(
    pipeline: Pipeline, declare: Declare
) -> None:
    declare(MAKES, READS)
    pipeline.run("run.train")

    later, refs, views = pipeline.run()

    assert states(views) == [AttemptState.SUCCEEDED]
    assert folder_read(later, refs["evaluate"]).endswith("/train-1")
    assert pipeline.bench.runs == 2

    pipeline.open().gc(keep_last=0, older_than=None, everything=True, dry_run=False)
    with pytest.raises(BackendError, match="`train#1`, which is gone") as raised:
        pipeline.launch(rerun=("run.evaluate",))
    assert raised.value.code == "output_gone"
    assert pipeline.bench.runs == 2


@pytest.mark.expensive
def test_nodes_that_come_after_a_lost_one_read_the_output_anew(
    pipeline: Pipeline, declare: Declare
) -> None:
    pause = {**READS["args"], "pause": 2}
    declare(MAKES, {**READS, "args": pause, "retry": {"max": 1, "backoff": "0s"}})
    pipeline.run("run.train")
    pipeline.bench.hook("lose_node", node=0, after_lines=1)

    later, refs, (view,) = pipeline.run()

    assert (view.state, view.restart) == (AttemptState.SUCCEEDED, 1)
    folder_read(later, refs["evaluate"])


@pytest.mark.expensive
def test_an_output_is_read_that_is_staged_in_a_volume(pipeline: Pipeline, declare: Declare) -> None:
    (pipeline.bench.tenant.tree("Volumes") / "main" / "ml" / "sgpu").mkdir(parents=True)
    block = {"backend": {"kind": "databricks", "staging": "/Volumes/main/ml/sgpu/here"}}
    declare({**MAKES, **block}, {**READS, **block})

    opened, refs, views = pipeline.run()

    assert states(views) == BOTH
    folder_read(opened, refs["evaluate"])


def test_runs_that_differ_in_what_belongs_to_both_are_refused_at_their_place(
    pipeline: Pipeline, declare: Declare
) -> None:
    declare({"budget": POLICY})
    (found,) = [one for one in pipeline.open().plan().plan.checks if one.code == "cannot_join"]
    assert found.summary.startswith("`train` and `evaluate` differ in `budget`")
    assert found.place is not None


def test_what_cannot_be_staged_leaves_nothing_of_the_others(
    pipeline: Pipeline, tenant: Path
) -> None:
    bench = pipeline.bench
    pipeline.refuse_next()
    pipeline.launch()  # shared objects are there now
    sent = [path for path in bench.uploads() if "/objects/" not in path]
    first, second, *_ = [at for at, path in enumerate(sent) if path.endswith(MARKER)]
    assert "/train/" in sent[first]
    assert "/evaluate/" in sent[second]
    bench.refuse("POST */workspace/import", 403, "PERMISSION_DENIED", "not yours", after=second)
    bench.forget_requests()
    opened = pipeline.open()

    applied = opened.apply(opened.plan())

    assert bench.uploads()[-1] == sent[second]
    assert len(bench.uploads()) == second + 1
    assert {(address.name, error.code) for address, error in applied.failed} == {
        ("train", "permission_denied"),
        ("evaluate", "permission_denied"),
    }
    assert bench.runs == 0
    assert not list((tenant / "Workspace").rglob(MARKER))
    refs = opened.apply(opened.plan()).launched
    assert {str(ref) for ref in refs} == {"train#1", "evaluate#1"}
    assert bench.runs == 1
    opened.runs.cancel(next(ref for ref in refs if ref.address.name == "train"))


@pytest.mark.expensive
def test_a_lost_answer_is_one_run(pipeline: Pipeline) -> None:
    pipeline.bench.fault("POST */runs/submit", Effect.LOSE_ANSWER)
    pipeline.launch()

    again, _ = pipeline.launch()

    assert states(ended(again, *again.runs.find("train#1", "evaluate#1"))) == BOTH
    assert pipeline.bench.runs == 1


@pytest.mark.expensive
@pytest.mark.parametrize("step", strided(STEPS, 3))
def test_killed_at_a_step_and_applied_again_there_is_one_run(pipeline: Pipeline, step: str) -> None:
    pipeline.bench.killed(step, "-y", "--detach", "sgpu.yml")

    opened = pipeline.open()
    applied = opened.apply(opened.plan())

    found = (*opened.runs.find("train"), *opened.runs.find("evaluate"))
    refs = tuple(dict.fromkeys((*applied.launched, *applied.adopted, *found)))
    ends = {str(ref): view.state for ref, view in zip(refs, ended(opened, *refs), strict=True)}
    assert ends == dict.fromkeys(("train#1", "evaluate#1"), AttemptState.SUCCEEDED)
    assert pipeline.bench.runs == 1
    pipeline.assert_no_op()


@pytest.mark.expensive
def test_a_pipeline_whose_apply_was_killed_while_it_was_replaced_is_one_run_of_the_next(
    pipeline: Pipeline, declare: Declare, tmp_path: Path
) -> None:
    declare({"args": {"gate": str(tmp_path / "gate")}})
    opened, first = pipeline.launch()
    Launched(opened, first["train"]).up()
    declare()
    planned = pipeline.open()
    both = PlanOptions(rerun=("evaluate",), on_active="replace")
    planned.save(planned.plan(both), pipeline.bench.project / "saved.plan")
    wait = "sgpu_decl.runs.project_runs,ProjectRuns,wait,before,1"
    pipeline.bench.killed(wait, "--detach", "saved.plan")

    again, _ = pipeline.launch()

    old, train, evaluate = ended(again, first["train"], *again.runs.find("train#2", "evaluate#2"))
    assert old.state is AttemptState.CANCELLED
    assert states([train, evaluate]) == BOTH
    assert old.ended_at is not None
    assert train.started_at is not None
    assert old.ended_at <= train.started_at
    assert pipeline.bench.runs == 2
