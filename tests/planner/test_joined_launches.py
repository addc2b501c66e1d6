"""Launches that are started as one, and what keeps them from it."""

from typing import Any

import pytest

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.model.address import Address
from sgpu_decl.model.backend_kinds import Capabilities, Joining
from sgpu_decl.model.plan import Action, Change, Reason, Upstream
from sgpu_decl.planner.run_order import launch_groups
from tests.planner.conftest import CAPABILITIES, SPEC

CAN = Capabilities(fields=frozenset({"after", "budget"}), joins=Joining(most=3, same=("budget",)))


def waiting(name: str, *upstreams: str) -> Change:
    after = tuple(Upstream(address=Address.run(one), attempt=1) for one in upstreams)
    return Change(
        address=Address.run(name),
        kind=Address.run(name).kind,
        backend="local",
        action=Action.CREATE,
        reason=Reason.FIRST_RUN,
        after=after,
    )


def grouped(*changes: Change, joins: bool = True) -> list[list[str]]:
    groups = launch_groups(changes, lambda _: joins)
    return [[change.address.name for change in group] for group in groups]


def test_changes_that_wait_for_each_other_are_one_group() -> None:
    changes = [waiting("a"), waiting("b"), waiting("c"), waiting("d", "a"), waiting("e", "d", "c")]
    assert grouped(*changes) == [["a", "c", "d", "e"], ["b"]]


def test_two_groups_become_one_by_a_change_that_waits_for_both() -> None:
    changes = [waiting("a"), waiting("b"), waiting("c", "a"), waiting("d", "b")]
    assert grouped(*changes) == [["a", "c"], ["b", "d"]]
    assert grouped(*changes, waiting("e", "c", "d")) == [["a", "b", "c", "d", "e"]]


def test_each_change_is_alone_where_nothing_is_joined() -> None:
    changes = [waiting("a"), waiting("b", "a")]
    assert grouped(*changes, joins=False) == [["a"], ["b"]]


def test_an_upstream_that_the_plan_does_not_launch_is_in_no_group() -> None:
    assert grouped(waiting("b", "a")) == [["b"]]


def refused(world: Any, *specs: dict[str, Any], **asked: Any) -> list[Diagnostic]:
    """What a plan says of runs of which each comes after the one before it."""
    for at, spec in enumerate(specs):
        world.want(f"r{at}", {**SPEC, **spec}, after=(f"r{at - 1}",) if at else ())
    plan = world.plan(capabilities={**CAPABILITIES, "local": CAN}, **asked)
    return [check for check in plan.checks if check.code == "cannot_join"]


@pytest.mark.parametrize(
    "specs", [({}, {}, {}), ({"budget": "team"},) * 3, ({}, {"timeout": "1h"})]
)
def test_runs_that_one_run_of_the_platform_can_have_are_not_refused(world: Any, specs: Any) -> None:
    assert refused(world, *specs) == []


def test_runs_that_differ_in_what_is_given_once_for_all(world: Any) -> None:
    (check,) = refused(world, {}, {}, {"budget": "team"})
    assert check.address == "run.r2"
    assert check.summary == (
        "`r0` and `r2` differ in `budget`, and `local` launches them together with one `budget` "
        "for both"
    )


def test_more_runs_than_can_be_launched_together(world: Any) -> None:
    (check,) = refused(world, {}, {}, {}, {})
    assert check.summary == "4 runs come after each other, and `local` launches at most 3 together"


def test_a_run_that_is_not_launched_is_not_compared(world: Any) -> None:
    assert refused(world, {}, {"budget": "team"}, select=frozenset({Address.run("r0")})) == []
