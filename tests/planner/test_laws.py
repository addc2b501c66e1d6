"""Laws that hold for every world: hypothesis looks for one that breaks them."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgpu_decl.model.attempt import AttemptState, FailureClass
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.plan import Action, Plan, Reason
from sgpu_decl.planner.plan_json import saved_from_json, saved_text
from tests.planner.conftest import SPEC

LAUNCHES = (Action.CREATE, Action.REPLACE)
NAMES = st.sampled_from(["a", "b", "c"])
CODES = tuple("sha256:" + letter * 64 for letter in "cd")
SPECS = st.fixed_dictionaries(
    {
        "gpus": st.integers(1, 2),
        "type": st.sampled_from(["A10", "CPU"]),
        "entrypoint": st.just("train.py"),
    },
    optional={
        "timeout": st.sampled_from(["1h", "2h"]),
        "tags": st.fixed_dictionaries({"t": st.sampled_from(["x", "y"])}),
        "args": st.dictionaries(st.sampled_from(["n", "m"]), st.integers(0, 2), max_size=2),
    },
)
WANTED = st.dictionaries(
    NAMES,
    st.fixed_dictionaries(
        {
            "spec": SPECS,
            "until": st.sampled_from(["success", "success", "always"]),
            "on_active": st.sampled_from(["replace", "queue", "parallel", "error"]),
            "code": st.sampled_from([None, *CODES]),
        }
    ),
)
HAD = st.dictionaries(
    NAMES,
    st.fixed_dictionaries(
        {
            "spec": SPECS,
            "state": st.sampled_from(list(AttemptState)),
            "failure": st.sampled_from([None, FailureClass.KILLED, FailureClass.EXCEPTION]),
            "gone": st.booleans(),
            "owner": st.sampled_from(["sgpu.yml", "other.yaml"]),
            "code": st.sampled_from([None, CODES[0]]),
            "older": st.lists(SPECS, max_size=2),
        }
    ),
)
ENDED = st.sampled_from([AttemptState.SUCCEEDED, AttemptState.RUNNING, AttemptState.CANCELLED])
lawful = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def build(new_world: Any, wanted: Any, had: Any) -> Any:
    world = new_world()
    for name, options in wanted.items():
        world.want(name, **options)
    for name, options in had.items():
        last = {key: value for key, value in options.items() if key != "older"}
        for number, spec in enumerate(options["older"], start=1):  # active still, beside the last
            world.had(AttemptState.RUNNING, name, spec, number=number)
        world.had(name=name, **last)
    return world


def launches(plan: Plan) -> list[str]:
    return [str(change.address) for change in plan.changes if change.action in LAUNCHES]


@lawful
@given(WANTED, HAD, ENDED)
def test_a_plan_after_its_own_effects_changes_nothing(
    new_world: Any, wanted: Any, had: Any, ended: AttemptState
) -> None:
    wanted = {name: {**options, "until": "success"} for name, options in wanted.items()}
    world = build(new_world, wanted, had)
    first = world.plan()
    if not first.applyable:
        return
    again = world.record(first, ended).plan()
    assert {change.action for change in again.changes} <= {Action.NO_OP, Action.ADOPT}


@lawful
@given(WANTED, HAD)
def test_only_launches_carry_a_token_and_each_address_has_one_change(
    new_world: Any, wanted: Any, had: Any
) -> None:
    plan = build(new_world, wanted, had).plan()
    addresses = [str(change.address) for change in plan.changes]
    assert addresses == sorted(set(addresses))
    for change in plan.changes:
        tokened = change.launch is not None and change.launch.token is not None
        assert not tokened or change.action in LAUNCHES
        assert change.action is not Action.NO_OP or change.launch is None
        if change.action in LAUNCHES and plan.applyable:
            assert tokened
    tokens = [c.launch.token for c in plan.changes if c.launch and c.launch.token]
    assert len(tokens) == len(set(tokens))


@lawful
@given(WANTED, HAD)
def test_the_same_input_gives_the_same_bytes_in_any_order(
    new_world: Any, wanted: Any, had: Any
) -> None:
    turned = build(
        new_world,
        dict(reversed(list(wanted.items()))),
        dict(reversed(list(had.items()))),
    )
    plan = build(new_world, wanted, had).plan()
    assert saved_text(plan) == saved_text(turned.plan())
    assert saved_from_json(saved_text(plan)) == (plan, ())


@lawful
@given(WANTED, HAD)
def test_destroy_twice_is_empty(new_world: Any, wanted: Any, had: Any) -> None:
    world = build(new_world, wanted, had)
    again = world.record(world.plan(destroy=True, owner=None)).plan(destroy=True, owner=None)
    assert again.changes == ()
    assert not again.applyable


@lawful
@given(WANTED, HAD, st.booleans())
def test_what_is_stopped_is_all_that_is_active_and_named(
    new_world: Any, wanted: Any, had: Any, destroy: bool
) -> None:
    world = build(new_world, wanted, had)
    for change in world.plan(destroy=destroy).changes:
        if change.launch is None:
            continue
        stop = change.launch.stop
        active = tuple(
            item.ref.number for item in world.active if item.ref.address == change.address
        )
        assert change.destructive == bool(stop)
        if stop:
            assert stop == active
            assert change.prior is not None
            about_the_last = (Reason.PREVIOUS_FAILED, Reason.PREVIOUS_LOST)
            assert change.prior.attempt == active[-1] or change.reason in about_the_last


@lawful
@given(WANTED, HAD)
def test_nothing_of_another_file_is_removed(new_world: Any, wanted: Any, had: Any) -> None:
    for change in build(new_world, wanted, had).plan().changes:
        if change.action in (Action.FORGET, Action.DESTROY):
            assert change.launch is not None
            assert change.launch.owner == "sgpu.yml"


def test_an_unchanged_run_costs_no_parsing(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work is counted, not timed: a plan without changes reads no config at all."""
    parsed: list[str] = []
    for n in range(50):
        world.want(key=f"n={n}").had(AttemptState.SUCCEEDED, key=f"n={n}")
    monkeypatch.setattr(json, "loads", parsed.append)
    assert launches(world.plan()) == []
    assert parsed == []


def test_a_first_plan_parses_each_run_a_fixed_number_of_times(
    new_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = json.loads
    counts = []
    for amount in (10, 20):
        world, calls = new_world(), list[str]()
        for n in range(amount):
            world.want(key=f"n={n}", spec={**SPEC, "args": {"n": n}})

        def counted(text: str, calls: list[str] = calls) -> Any:
            calls.append(text)
            return real(text)

        monkeypatch.setattr(json, "loads", counted)
        world.plan()
        monkeypatch.undo()
        counts.append(len(calls))
    assert counts[1] == 2 * counts[0] > 0


def test_specs_are_canonical_in_these_tests(world: Any) -> None:
    spec = next(iter(world.want().desired.values())).spec
    assert spec == Spec.of(spec.fields)
