"""Cells of a matrix start, and are told of, in the order of their addresses."""

from collections.abc import Callable
from pathlib import Path

from sgpu_decl.api import PlanOptions, Session
from sgpu_decl.model.event import ApplyEvent, Step
from tests.support import PATIENCE

CELLS = 10
RUN = f"""\
name: many
gpus: 1
type: CPU
command: ["true", "${{matrix.n}}"]
matrix: {{n: {list(range(CELLS))}}}
mlflow: {{enabled: false}}
"""


def test_launches_are_told_and_recorded_in_the_order_of_the_plan(
    folder: Path, open_file: Callable[..., Session]
) -> None:
    (folder / "run.yaml").write_text(RUN)
    session = open_file()
    plan = session.plan(PlanOptions())
    told: list[ApplyEvent] = []

    applied = session.apply(plan, sink=told.append, parallelism=4)

    planned = [change.address for change in plan.plan.changes]
    for step in (Step.STARTED, Step.LAUNCHED):
        assert [event.address for event in told if event.step is step] == planned
    assert [ref.address for ref in applied.launched] == planned
    session.runs.wait(applied.launched, timeout=PATIENCE)


def test_cells_that_may_have_to_wait_stand_in_line_in_the_order_of_the_plan(
    folder: Path, open_file: Callable[..., Session]
) -> None:
    (folder / "run.yaml").write_text(f"{RUN}max_parallel: 1\n")
    session = open_file()
    plan = session.plan(PlanOptions())

    applied = session.apply(plan, parallelism=4)

    # An attempt counts as launched once it stands in line, so one slot serves them in that order.
    session.runs.wait(applied.launched, timeout=PATIENCE)
    begun = [str(item.started_at) for item in session.runs.describe(applied.launched)]
    assert [ref.address for ref in applied.launched] == [
        change.address for change in plan.plan.changes
    ]
    assert len(begun) == CELLS
    assert begun == sorted(begun)
