"""When a task runs, by how those before it have ended: the same here as in the emulated workspace,
which has rules of its own."""

import itertools

import pytest

from sgpu_decl.backends.local.jobs.run_if import TaskEnd, hindrance, succeeded
from sgpu_decl.config.job_tasks import RunIf
from sgpu_decl.testing.workspace.executing import execution
from sgpu_decl.testing.workspace.executing.endings import GOOD, AttemptEnding
from sgpu_decl.testing.workspace.executing.records import TaskAttempt

CONDITIONS: tuple[str, ...] = RunIf.__args__  # type: ignore[attr-defined]


def end_of(ending: AttemptEnding) -> TaskEnd:
    if ending is AttemptEnding.EXCLUDED:
        return TaskEnd.EXCLUDED
    return TaskEnd.SUCCEEDED if ending in GOOD else TaskEnd.FAILED


def attempt(ending: AttemptEnding) -> TaskAttempt:
    return TaskAttempt(
        run_id=1, original_run_id=1, task_key="a", number=0, started=0, ending=ending
    )


@pytest.mark.parametrize("run_if", CONDITIONS)
def test_a_task_runs_here_when_it_does_in_a_workspace(run_if: str) -> None:
    assert len(CONDITIONS) == 6
    for count in range(4):
        for endings in itertools.product(AttemptEnding, repeat=count):
            there = execution._hindrance(run_if.upper(), [attempt(one) for one in endings])
            here = hindrance(run_if, [end_of(one) for one in endings])
            assert here is (None if there is None else end_of(there)), endings


@pytest.mark.parametrize(
    ("ends", "well"),
    [
        ("succeeded succeeded", True),
        ("failed failed", False),
        ("failed succeeded", True),  # the last one decides
        ("succeeded excluded", True),
        ("succeeded failed", False),
    ],
)
def test_the_tasks_at_the_end_decide_how_a_launch_ends(ends: str, well: bool) -> None:
    first, last = map(TaskEnd, ends.split())
    assert succeeded({"a": first, "b": last}, {"a": (), "b": ("a",)}) is well
    assert succeeded({"a": first, "b": last}, {"a": ("b",), "b": ()}) is (first != TaskEnd.FAILED)
