"""What a plan proposes: the same for the same files, whatever the state."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.job import RUN, STAGED
from sgpu_decl.model.jsonable import Json, Spec
from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.model.plan import Action, FieldChange, FieldEffect
from sgpu_decl.model.proposal import Effect
from sgpu_decl.planner.effects import carried_out, covers, effects_of
from sgpu_decl.planner.jobs.launched_run import without_staged
from tests.planner.conftest import CODE, SPEC, World

OTHER_CODE = "sha256:" + "d" * 64
SMALLER = {**SPEC, "args": {"n": 2}}


def effect(world: World, **asked: Any) -> Effect:
    (only,) = effects_of(world.plan(**asked))
    return only


def create(spec: Any = SPEC, code: str = CODE) -> Effect:
    return effect(World().want(spec=spec, code=code))


def replacement(spec: Any = SPEC) -> Effect:
    return effect(
        World().want(spec=spec).had(AttemptState.RUNNING, spec=SMALLER), on_active="replace"
    )


specs = st.fixed_dictionaries(
    {},
    optional={
        "args": st.dictionaries(st.sampled_from("abc"), st.integers(0, 3), max_size=2),
        "tags": st.dictionaries(st.sampled_from("xy"), st.sampled_from("12"), max_size=2),
        "timeout": st.sampled_from([60, 90]),
    },
).map(lambda some: {**SPEC, **some})


@given(
    wanted=specs,
    earlier=st.lists(specs, max_size=2),
    number=st.integers(1, 99),
    serial=st.integers(0, 9),
)
def test_an_effect_is_the_same_whatever_the_state(
    wanted: Any, earlier: Sequence[Any], number: int, serial: int
) -> None:
    first = create(wanted)
    world = World().want(spec=wanted)
    for spec in earlier:
        world.had(AttemptState.FAILED, spec=spec, number=number)
    plan = world.plan(rerun=frozenset(world.desired))
    plan = replace(plan, serial=serial, lineage=f"lineage-{serial}")
    (later,) = effects_of(plan)
    assert later.attempt == (number + 1 if earlier else 1)
    assert replace(later, attempt=1) == first
    assert covers(first, later)
    assert covers(later, first)


@given(one=specs, other=specs)
def test_a_launch_covers_the_same_launch_alone(one: Any, other: Any) -> None:
    assert covers(create(one), create(other)) == (one == other)


def test_other_code_environment_backend_or_run_is_another_effect() -> None:
    shown = create()
    assert not covers(shown, create(code=OTHER_CODE))
    assert not covers(shown, replace(shown, environment="sha256:e"))
    assert not covers(shown, replace(shown, backend="ray"))
    assert not covers(shown, effect(World().want("other")))


def test_a_replacement_covers_a_launch_and_a_launch_no_replacement() -> None:
    assert replacement().action is Action.REPLACE
    assert covers(replacement(), create())
    assert not covers(create(), replacement())
    assert not covers(replacement(SMALLER | {"gpus": 1}), create())


def test_what_ends_is_that_of_the_record_and_stops_only_what_was_shown_to_stop() -> None:
    forget = effect(World().had(AttemptState.FAILED))
    of_another_merge = effect(World().had(AttemptState.FAILED, spec=SMALLER, code=OTHER_CODE))
    destroy = effect(World().had(AttemptState.RUNNING))
    assert [item.action for item in (forget, destroy)] == [Action.FORGET, Action.DESTROY]
    assert covers(forget, of_another_merge)
    assert covers(destroy, forget)
    assert not covers(forget, destroy)
    assert not covers(replace(destroy, destructive=False), destroy)


def test_a_pinned_output_is_the_same_whichever_attempt_is_read() -> None:
    reads: Any = {"gpus": 1, "type": "CPU", "command": ["cat", "${run.train.output}"]}
    found = [
        effects_of(
            World()
            .had(AttemptState.SUCCEEDED, number=number)
            .want()
            .want("eval", reads, after=("train",))
            .plan()
        )
        for number in (3, 8)
    ]
    assert found[0] == found[1]
    assert "#" not in str(found[0][0].spec)


def test_no_op_and_adopt_and_environments_have_no_effect() -> None:
    assert effects_of(World().want().had(AttemptState.SUCCEEDED).plan()) == ()
    assert effects_of(World().want().had(AttemptState.RUNNING).plan()) == ()


def test_a_move_is_an_effect_also_where_nothing_else_happens() -> None:
    old = Address.run("old")
    plan = World().want().had(AttemptState.SUCCEEDED).plan()
    plan = replace(plan, changes=(replace(plan.changes[0], moved_from=old),))
    (moved,) = effects_of(plan)
    shown = replace(create(), moved_from=old)
    assert covers(shown, moved)
    assert covers(shown, create())  # it was moved already
    assert not covers(create(), moved)
    assert not covers(create(), shown)


def test_less_drift_than_was_shown_is_covered_and_more_is_not() -> None:
    plan = World().want().plan()

    def drifting(*paths: str) -> Effect:
        fields = tuple(
            FieldChange(path=path, before=1, after=2, effect=FieldEffect.IN_PLACE, drifted=True)
            for path in paths
        )
        (change,) = plan.changes
        return effects_of(replace(plan, changes=(replace(change, fields=fields),)))[0]

    assert covers(drifting("a", "b"), drifting("b"))
    assert covers(drifting("a"), drifting())
    assert not covers(drifting("a"), drifting("a", "b"))


@pytest.mark.parametrize(
    ("number", "spec", "code", "closed"),
    [
        (7, SPEC, CODE, True),
        (9, SPEC, CODE, True),
        (6, SPEC, CODE, False),
        (7, SMALLER, CODE, False),
        (7, SPEC, OTHER_CODE, False),
    ],
)
def test_an_effect_is_closed_by_a_later_attempt_of_the_same(
    number: int, spec: Any, code: str, closed: bool
) -> None:
    shown = replace(create(), attempt=7)
    had = World().had(AttemptState.FAILED, spec=spec, code=code, number=number)
    (attempt,) = (resource.last for resource in had.resources.values())
    assert attempt is not None
    assert carried_out(shown, [attempt]) == (attempt if closed else None)
    assert carried_out(replace(shown, attempt=None), [attempt]) is None


def test_a_job_of_a_run_is_the_same_for_every_user_and_lineage() -> None:
    def job(path: str, gpus: int | None) -> Spec:
        tasks: Json = {"nightly": {"deployments": [{"command_path": path}]}}
        run: dict[str, Json] = {} if gpus is None else {RUN: {"name": "train", "gpus": gpus}}
        return without_staged(Spec.of({"tasks": tasks, STAGED: {}, **run}))

    planner, applier = "/Workspace/Users/planner/.sgpu/a", "/Workspace/Users/applier/.sgpu/b"
    assert job(planner, 1) == job(applier, 1)
    assert job(planner, 1) != job(applier, 2)
    # Without a run, what the tasks say is what the file says.
    assert job(planner, None) != job(applier, None)


def test_an_attempt_that_read_an_output_closes_the_effect_that_named_the_run() -> None:
    spec = '{"command":["cat","${run.train%s.output}"]}'
    shown = Effect(
        address=create().address,
        kind=create().kind,
        backend="local",
        action=Action.CREATE,
        attempt=1,
        spec=Spec(spec % ""),
    )
    had = World().had(AttemptState.FAILED, number=1)
    (attempt,) = (resource.last for resource in had.resources.values())
    assert attempt is not None
    ref = AttemptRef(shown.address, 1)
    read = replace(attempt, ref=ref, inputs=LaunchInputs(spec=Spec(spec % "#4"), fingerprint=""))
    assert carried_out(shown, [read]) == read
