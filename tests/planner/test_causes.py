"""Who causes a change: the plan of this branch beside that of the base."""

from dataclasses import replace

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.plan import Action, Cause, Plan, Reason
from sgpu_decl.planner.causes import all_caused_here, with_causes
from tests.planner.conftest import World

Specs = dict[str, dict[str, Json]]

OLD: dict[str, Json] = {"gpus": 1, "type": "CPU", "entrypoint": "a.py"}
NEW: dict[str, Json] = {**OLD, "gpus": 2}
OTHER: dict[str, Json] = {**OLD, "gpus": 4}


def planned(had: Specs, wanted: Specs, *, ended: AttemptState = AttemptState.SUCCEEDED) -> Plan:
    """The plan of runs that were applied with one spec and are wanted with another."""
    world = World()
    for name, spec in had.items():
        world.had(ended, name, spec)
    for name, spec in wanted.items():
        world.want(name, spec)
    return world.plan()


def causes(here: Plan, base: Plan) -> dict[str, Cause | None]:
    made = with_causes(here, base, selected=None)
    return {change.address.name: change.cause for change in made.changes}


def test_what_the_base_would_not_do_is_a_change_of_this_branch() -> None:
    had = {"a": OLD, "b": OLD}
    assert causes(planned(had, {"a": NEW, "b": OLD}), planned(had, had)) == {
        "a": Cause.CHANGE,
        "b": None,
    }


def test_what_both_would_do_is_pending() -> None:
    had = {"a": OLD}
    assert causes(planned(had, {"a": NEW}), planned(had, {"a": NEW})) == {"a": Cause.PENDING}


def test_what_the_base_would_do_differently_is_a_change() -> None:
    had = {"a": OLD}
    assert causes(planned(had, {"a": NEW}), planned(had, {"a": OTHER})) == {"a": Cause.CHANGE}


def test_what_nobody_changed_in_a_file_is_drift() -> None:
    lost = planned({"a": OLD}, {"a": OLD}, ended=AttemptState.LOST)
    assert causes(lost, lost) == {"a": Cause.DRIFT}


def test_a_rerun_that_was_asked_for_is_no_drift() -> None:
    always: Specs = {"a": {**OLD, "until": "always"}}
    world = World().had(AttemptState.SUCCEEDED, "a", always["a"])
    again = world.want("a", always["a"], until="always").plan()
    assert causes(again, again) == {"a": Cause.PENDING}
    (change,) = again.changes
    assert change.reason is Reason.REQUESTED_RERUN


def test_what_only_the_base_would_do_is_withdrawn_and_changes_nothing() -> None:
    had = {"a": OLD}
    here, base = planned(had, had), planned(had, {"a": NEW, "new": OLD})
    made = with_causes(here, base, selected=None)
    assert {change.address.name: change.cause for change in made.changes} == {
        "a": Cause.WITHDRAWN,
        "new": Cause.WITHDRAWN,
    }
    assert {change.action for change in made.changes} == {Action.NO_OP}
    assert made.summary.no_op == 0
    assert not made.applyable
    chosen = with_causes(here, base, selected=frozenset({Address.run("a")}))
    assert [change.address.name for change in chosen.changes] == ["a"]


def test_without_a_base_that_can_be_read_all_changes_are_those_of_the_branch() -> None:
    here = planned({"a": OLD, "b": OLD}, {"a": NEW, "b": OLD})
    made = all_caused_here(here)
    assert [change.cause for change in made.changes] == [Cause.CHANGE, None]
    assert replace(made, changes=here.changes) == here
