"""What a run that comes after others waits for, and when it is not launched."""

from typing import Any

import pytest

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptState as S
from sgpu_decl.model.attempt import FailureClass as F
from sgpu_decl.model.backend_kinds import Capabilities, Joining
from sgpu_decl.model.plan import Action, Change, Reason, Upstream
from tests.planner.conftest import CAPABILITIES, SPEC

TRAIN, EVALUATE = Address.run("train"), Address.run("evaluate")
READS = {**SPEC, "after": ["train"], "args": {"weights": "${run.train.output}/w.pt"}}
WAITS = {**SPEC, "after": ["train"]}
CAN = {**CAPABILITIES, "local": Capabilities(fields=frozenset({"after"}))}
JOINS = {**CAN, "local": Capabilities(fields=frozenset({"after"}), joins=Joining(most=100))}


def read_of(attempt: int) -> dict[str, Any]:
    return {**READS, "args": {"weights": f"${{run.train#{attempt}.output}}/w.pt"}}


def want(world: Any, spec: dict[str, Any] = READS) -> Any:
    """`evaluate` is declared before `train`, which it comes after."""
    return world.want("evaluate", spec, after=("train",)).want("train")


def changes(world: Any, **asked: Any) -> dict[str, Change]:
    made = world.plan(capabilities=CAN, **asked)
    return {change.address.name: change for change in made.changes}


def checks(world: Any, **asked: Any) -> list[tuple[str, str]]:
    return [(one.code, one.summary) for one in world.plan(capabilities=CAN, **asked).checks]


def test_a_launch_waits_for_the_launch_of_the_same_plan(world: Any) -> None:
    evaluate = changes(want(world))["evaluate"]
    assert evaluate.after == (Upstream(address=TRAIN, attempt=1),)
    assert evaluate.depends_on == (TRAIN,)
    assert '"${run.train#1.output}/w.pt"' in evaluate.launch.inputs.spec.text


def test_nothing_is_waited_for_that_has_succeeded(world: Any) -> None:
    evaluate = changes(want(world).had(S.SUCCEEDED))["evaluate"]
    assert (evaluate.action, evaluate.after) == (Action.CREATE, ())
    assert "${run.train#7.output}" in evaluate.launch.inputs.spec.text


@pytest.mark.parametrize("select", [None, frozenset({EVALUATE})])
def test_an_active_attempt_is_waited_for(world: Any, select: Any) -> None:
    world = want(world).had(S.RUNNING)
    evaluate = changes(world, select=select)["evaluate"]
    assert evaluate.after == (Upstream(address=TRAIN, attempt=7),)


def test_a_new_output_is_a_changed_argument(world: Any) -> None:
    want(world).had(S.SUCCEEDED).had(S.SUCCEEDED, "evaluate", read_of(7))
    assert changes(world)["evaluate"].reason is Reason.UP_TO_DATE
    evaluate = changes(world, rerun=frozenset({TRAIN}))["evaluate"]
    (field,) = evaluate.fields
    assert (field.path, field.before, field.after) == (
        "args.weights",
        "${run.train#7.output}/w.pt",
        "${run.train#8.output}/w.pt",
    )
    assert evaluate.after == (Upstream(address=TRAIN, attempt=8),)


def test_the_order_alone_launches_nothing_again(world: Any) -> None:
    want(world, WAITS).had(S.SUCCEEDED).had(S.SUCCEEDED, "evaluate", WAITS)
    assert changes(world, rerun=frozenset({TRAIN}))["evaluate"].reason is Reason.UP_TO_DATE


@pytest.mark.parametrize(
    ("state", "summary"),
    [
        (S.FAILED, "and `train#7` failed"),
        (S.CANCELLED, "and `train#7` was cancelled"),
    ],
)
def test_nothing_is_launched_after_a_run_that_stays_failed(
    world: Any, state: S, summary: str
) -> None:
    want(world).had(state, failure=F.EXCEPTION if state is S.FAILED else None)
    evaluate = changes(world)["evaluate"]
    assert (evaluate.action, evaluate.reason) == (Action.NO_OP, Reason.UPSTREAM_FAILED)
    assert (evaluate.launch, evaluate.after, list(evaluate.fields)) == (None, (), [])
    said = f"`evaluate` is not launched: it comes after `train`, {summary}"
    assert checks(world) == [("upstream_failed", said)]
    again = changes(world, retry_failed=True, rerun=frozenset({TRAIN}))["evaluate"]
    assert again.after == (Upstream(address=TRAIN, attempt=8),)


def test_what_is_up_to_date_stays_so_while_a_new_upstream_failed(world: Any) -> None:
    want(world).had(S.FAILED, failure=F.EXCEPTION).had(S.SUCCEEDED, "evaluate", read_of(6))
    assert changes(world)["evaluate"].reason is Reason.UP_TO_DATE
    assert checks(world) == []


def test_a_run_that_is_not_launched_holds_back_those_after_it(world: Any) -> None:
    world = want(world).want("report", {**SPEC, "after": ["evaluate"]}, after=("evaluate",))
    report = changes(world.had(S.FAILED, failure=F.OOM))["report"]
    assert report.reason is Reason.UPSTREAM_FAILED
    assert checks(world)[1][1].endswith("it comes after `evaluate`, which is not launched")
    hint = world.plan(capabilities=CAN).checks[1].hint
    assert hint == "launch `evaluate` first: another warning says why it is not launched"


def test_a_run_that_an_upstream_stopped_is_launched_with_it(world: Any) -> None:
    want(world).had(S.FAILED, failure=F.EXCEPTION)
    world.had(S.FAILED, "evaluate", read_of(7), failure=F.UPSTREAM_FAILED)
    assert changes(world)["evaluate"].reason is Reason.UPSTREAM_FAILED
    evaluate = changes(world, retry_failed=True)["evaluate"]
    assert (evaluate.reason, evaluate.attempt) == (Reason.PREVIOUS_FAILED, 8)


def test_a_run_that_was_never_launched_and_is_not_selected(world: Any) -> None:
    said = "`evaluate` is not launched: it comes after `train`, which has no attempt yet"
    assert checks(want(world), select=frozenset({EVALUATE})) == [("upstream_failed", said)]


def test_a_matrix_is_waited_for_as_a_whole(world: Any) -> None:
    world.want("evaluate", WAITS, after=("train",))
    for key, state in (("n=1", S.SUCCEEDED), ("n=2", S.RUNNING), ("n=3", None)):
        world.want("train", key=key)
        if state is not None:
            world.had(state, key=key)
    evaluate = changes(world)["evaluate"]
    assert [str(one.ref) for one in evaluate.after] == ['train["n=2"]#7', 'train["n=3"]#1']


def test_runs_of_two_backends_cannot_wait_for_each_other(world: Any) -> None:
    world = world.want("evaluate", WAITS, after=("train",)).want("train", backend="databricks")
    assert [one for one, _ in checks(world)] == ["after_elsewhere"]


def test_runs_of_two_places_of_a_backend_cannot_wait_for_each_other(world: Any) -> None:
    world = world.want("evaluate", WAITS, after=("train",), site="`a`").want("train", site="`b`")
    said = "`evaluate` runs on `local`, `a` and comes after `train`, which runs on `local`, `b`"
    assert checks(world) == [
        ("after_elsewhere", f"{said}: neither place sees the other's runs"),
    ]
    assert checks(world.want("train", site="`a`")) == []


def test_the_cells_of_a_matrix_share_the_check_of_their_backend(world: Any) -> None:
    for key in ("n=1", "n=2"):
        world.want("evaluate", WAITS, after=("train",), key=key)
    assert len(checks(world.want("train", backend="databricks"))) == 1


def test_a_queued_run_whose_upstream_is_replaced_is_told(world: Any) -> None:
    changed = {**SPEC, "args": {"n": 2}}
    world.want("evaluate", WAITS, after=("train",)).had(S.QUEUED, "evaluate", WAITS)
    world.want("train", changed, on_active="replace").had(S.RUNNING)
    said = "`evaluate#7` is queued after an attempt of `train` that this plan stops"
    assert ("upstream_stopped", f"{said}: it then ends without having started") in checks(world)
    again = changes(world, rerun=frozenset({EVALUATE}), on_active="replace")["evaluate"]
    assert again.after == (Upstream(address=TRAIN, attempt=8),)
    world.want("train")
    assert checks(world) == []


def test_a_run_that_is_named_twice_is_waited_for_once(world: Any) -> None:
    evaluate = changes(world.want("evaluate", WAITS, after=("train", "train")).want("train"))[
        "evaluate"
    ]
    assert (evaluate.depends_on, len(evaluate.after)) == ((TRAIN,), 1)


def test_a_hint_can_be_pasted_into_a_shell(world: Any) -> None:
    world.want("evaluate", WAITS, after=("train",)).want("train", key="n=1")
    (check,) = world.plan(capabilities=CAN, select=frozenset({EVALUATE})).checks
    assert check.hint is not None
    assert """`--select 'train["n=1"]'`""" in check.hint


def test_an_attempt_of_another_plan_cannot_be_joined(world: Any) -> None:
    world = want(world).had(S.RUNNING)

    (check,) = [
        one for one in world.plan(capabilities=JOINS).checks if one.code == "upstream_not_joined"
    ]

    assert check.summary == (
        "`evaluate` comes after `train#7`, which an earlier apply launched: on `local`, one apply "
        "must launch both"
    )
    assert check.hint == "wait for it with `sgpu wait 'train#7'`, then apply"


@pytest.mark.parametrize("before", [None, S.SUCCEEDED])
def test_what_is_launched_together_or_has_succeeded_is_no_obstacle(
    world: Any, before: S | None
) -> None:
    world = want(world)
    if before is not None:
        world = world.had(before)
    checks = world.plan(capabilities=JOINS).checks
    assert "upstream_not_joined" not in {one.code for one in checks}
