"""The cells of a matrix stand in one block of a plan: what they share, then the axes."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from sgpu_decl.model.address import Address, Kind, cell_positions, cell_values
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.plan import (
    Action,
    Change,
    CodeChange,
    FieldEffect,
    PlannedLaunch,
    Reason,
    Upstream,
)
from sgpu_decl.views import plan_markdown, plan_text
from sgpu_decl.views.cell_groups import CellGroup, group_what, grouped
from tests.views.test_plan_views import INPUTS, NOW, a_plan, changed, prior

Golden = Callable[[str, str], None]

FULL = ("lr=0.01,seed=1", "lr=0.01,seed=2", "lr=0.002,seed=1", "lr=0.002,seed=2")


def cells(*keys: str, name: str = "sweep", **other: object) -> Iterator[Change]:
    """First launches of cells, in the order of the file."""
    addresses = [Address.run(name, key) for key in keys]
    for address, position in zip(addresses, cell_positions(addresses), strict=True):
        values = {f"args.{axis}": value for axis, value in cell_values(address.key).items()}
        rest = {"args.steps": 50, "env.variables.TAG": f"x-{address.key}", "gpus": 1}
        settings: dict[str, object] = {
            "action": Action.CREATE,
            "reason": Reason.FIRST_RUN,
            "attempt": 1,
            "fields": tuple(
                changed(path, None, value, 4, FieldEffect.NEW_ATTEMPT)
                for path, value in sorted({**values, **rest}.items())
            ),
            "code": CodeChange(digest="sha256:c", files=1, bytes=479),
            "launch": PlannedLaunch(
                owner="run.yaml", inputs=replace(INPUTS, cell=position), token="t"
            ),
            **other,
        }
        yield Change(address=address, kind=Kind.RUN, backend="local", **settings)  # type: ignore[arg-type]


def in_plan(*changes: Change) -> tuple[Change, ...]:
    return tuple(sorted(changes, key=lambda change: str(change.address)))


MORE_STEPS = (changed("args.steps", 50, 60, 5, FieldEffect.NEW_ATTEMPT),)
PLAN = a_plan(
    *in_plan(
        *cells(*FULL),
        *cells("a=1,b=1", "a=2,b=2", "a=2,b=3", name="partial"),
        *cells(
            "n=1",
            "n=2",
            name="again",
            reason=Reason.CONFIG_CHANGED,
            prior=prior(),
            fields=MORE_STEPS,
            unchanged=4,
        ),
        *cells("n=1", "n=2", "n=3", name="done", action=Action.NO_OP, reason=Reason.UP_TO_DATE,
               prior=prior(), fields=(), code=None, launch=None),
        *cells("n=1", name="one"),
    )
)  # fmt: skip


def test_the_text_of_a_matrix_is_as_drawn(golden: Golden) -> None:
    golden("plan_matrix.txt", plan_text.render(PLAN, now=NOW))


def test_the_markdown_of_a_matrix_is_as_drawn(golden: Golden) -> None:
    golden("plan_matrix.md", "".join(plan_markdown.render(PLAN, now=NOW)))


def groups(*changes: Change) -> list[CellGroup]:
    return [item for item in grouped(changes) if isinstance(item, CellGroup)]


def test_values_stand_in_the_order_of_the_file_and_not_of_the_addresses() -> None:
    (group,) = groups(*in_plan(*cells(*FULL)))
    assert group.axes == (("lr", ("0.01", "0.002")), ("seed", ("1", "2")))
    assert [change.address.key for change in group.changes] == list(FULL)
    assert [field.path for field in group.shared.fields] == ["args.steps", "gpus"]
    assert group.varying == ("env.variables.TAG",)


def test_cells_that_change_in_another_way_stand_in_another_block() -> None:
    first = list(cells("n=1", "n=2", "n=3", "n=4"))
    other_code = CodeChange(digest="sha256:d", files=1, bytes=480)
    mixed = [*first[:2], *(replace(change, code=other_code) for change in first[2:])]
    assert [group.axes for group in groups(*mixed)] == [
        (("n", ("1", "2")),),
        (("n", ("3", "4")),),
    ]
    lone = [first[0], replace(first[1], reason=Reason.PREVIOUS_FAILED)]
    assert grouped(lone) == lone


@pytest.mark.parametrize("keys", [("lr=1", "lr=2", "lr=1,seed=1", "lr=2,seed=2"), ("x", "y")])
def test_cells_of_other_axes_are_listed_one_by_one(keys: tuple[str, ...]) -> None:
    (group,) = groups(*cells(*keys, fields=()))
    assert group.axes == ()


def test_what_stops_an_active_run_is_shown_alone() -> None:
    stopping = [
        replace(
            change,
            action=Action.REPLACE,
            destructive=True,
            prior=prior(AttemptState.RUNNING),
            launch=PlannedLaunch(owner="run.yaml", inputs=INPUTS, token="t", stop=(7,)),
        )
        for change in cells("n=1", "n=2")
    ]
    assert grouped(stopping) == stopping
    assert plan_text.render(a_plan(*stopping), now=NOW).count("-/+") == 2


def test_an_argument_that_only_has_the_name_of_an_axis_is_shown() -> None:
    odd = [
        replace(change, fields=(changed("args.n", None, "fixed", 4, FieldEffect.NEW_ATTEMPT),))
        for change in cells("n=1", "n=2")
    ]
    (group,) = groups(*odd)
    assert [field.path for field in group.shared.fields] == ["args.n"]


@pytest.mark.parametrize("render", [plan_text.render, plan_markdown.render])
def test_a_large_matrix_is_short(render: Callable[..., str]) -> None:
    many = list(cells(*(f"a={a},b={b}" for a in range(60) for b in range(60))))
    text = "".join(render(a_plan(*in_plan(*many)), now=NOW))
    assert "3,600 runs" in text
    assert len(text.splitlines()) < 40
    assert max(map(len, text.splitlines())) < 1000


def test_the_attempts_that_cells_come_after_are_named() -> None:
    after = (Upstream(address=Address.run("prepare"), attempt=3),)
    (group,) = groups(*in_plan(*cells(*FULL, after=after)))
    assert group_what(group) == f"create {len(FULL)} runs after prepare#3 has succeeded"
