"""The decision table, cell by cell, and what options do to it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.backend_kinds import Capabilities
from sgpu_decl.model.plan import Action, FieldEffect, Plan, Reason
from sgpu_decl.planner.plan_inputs import PlanRequest

SPEC = {"gpus": 2, "type": "A10", "entrypoint": "train.py", "args": {"n": 1}}
OTHER = {**SPEC, "args": {"n": 2}}
TRAIN = Address.run("train")
ACTIVE_STATES = [state for state in AttemptState if state.active]

S = AttemptState
F = FailureClass


def errors(plan: Plan) -> list[str]:
    return [check.code for check in plan.checks if check.severity is Severity.ERROR]


def test_a_run_never_launched_is_created(world: Any) -> None:
    change = world.want().change()
    assert (change.action, change.reason, change.attempt) == (Action.CREATE, Reason.FIRST_RUN, 1)
    assert change.prior is None
    assert change.launch.token.startswith("sgpu1-")
    assert len(change.launch.token) <= 64
    assert {field.path for field in change.fields} == {"gpus", "type", "entrypoint", "args.n"}


def test_a_destroyed_run_is_created_with_the_next_number(world: Any) -> None:
    change = world.want().had(S.SUCCEEDED, gone=True).change()
    assert (change.action, change.reason, change.attempt) == (Action.CREATE, Reason.FIRST_RUN, 8)


def test_a_destroyed_run_that_still_stops_is_waited_for(world: Any) -> None:
    change = world.want().had(S.STOPPING, gone=True).change()
    assert (change.action, change.launch.wait_for) == (Action.CREATE, (7,))


@pytest.mark.parametrize("state", ACTIVE_STATES)
def test_an_active_run_with_the_same_fingerprint_is_adopted(world: Any, state: S) -> None:
    change = world.want().had(state).change()
    assert (change.action, change.reason) == (Action.ADOPT, Reason.ALREADY_RUNNING)
    assert (change.attempt, change.launch, change.destructive) == (7, None, False)


def test_a_changed_active_run_is_an_error_by_default(world: Any) -> None:
    made = world.want(spec=OTHER).had(S.RUNNING).plan()
    (change,) = made.changes
    assert errors(made) == ["active_run"]
    assert not made.applyable
    assert (change.action, change.launch) == (Action.REPLACE, None)
    assert [field.path for field in change.fields] == ["args.n"]


def test_a_changed_active_run_is_replaced(world: Any) -> None:
    made = world.want(spec=OTHER, on_active="replace").had(S.RUNNING).plan()
    (change,) = made.changes
    assert (change.action, change.reason) == (Action.REPLACE, Reason.CONFIG_CHANGED)
    assert change.destructive
    assert (change.attempt, change.launch.stop, change.launch.wait_for) == (8, (7,), ())
    assert [check.code for check in made.checks] == ["work_lost"]
    assert "for 2 h on 2 GPUs: 4.0 GPU hours so far" in made.checks[0].summary
    assert made.applyable


def test_what_has_run_for_seconds_is_not_told_in_hours(world: Any) -> None:
    world = world.want(spec=OTHER, on_active="replace").had(S.RUNNING)
    (active,) = world.active
    later = active.started_at + timedelta(hours=2) - timedelta(seconds=20)
    world.active[:] = [replace(active, started_at=later)]
    world.resources[TRAIN] = replace(world.resources[TRAIN], last=world.active[0])
    (check,) = world.plan().checks
    assert check.summary == ("`train#7` has been running for 20 s on 2 GPUs: 40 GPU seconds so far")


def test_a_changed_active_run_is_queued_behind(world: Any) -> None:
    change = world.want(spec=OTHER, on_active="queue").had(S.RUNNING).change()
    assert (change.action, change.launch.wait_for, change.launch.stop) == (Action.CREATE, (7,), ())
    assert not change.destructive


def test_a_changed_active_run_gets_a_parallel_attempt(world: Any) -> None:
    change = world.want(spec=OTHER, on_active="parallel").had(S.RUNNING).change()
    assert (change.action, change.launch.wait_for, change.launch.stop) == (Action.CREATE, (), ())


def test_the_option_on_active_wins_over_the_field(world: Any) -> None:
    world.want(spec=OTHER, on_active="replace").had(S.RUNNING)
    assert world.change(on_active="queue").launch.wait_for == (7,)


def test_every_active_attempt_is_stopped_by_a_replacement(world: Any) -> None:
    world.want(spec=OTHER, on_active="replace").had(S.RUNNING, number=6).had(S.QUEUED)
    assert world.change().launch.stop == (6, 7)


@pytest.mark.parametrize("on_active", ["replace", "queue", "parallel"])
def test_a_change_names_the_active_attempt_that_it_acts_on(world: Any, on_active: str) -> None:
    # The newest has ended meanwhile; an older one still runs, and differs in another field.
    world.had(S.RUNNING, number=6).had(S.SUCCEEDED, spec={**SPEC, "gpus": 4})
    change = world.want(spec=OTHER, on_active=on_active).change()
    assert (change.prior.attempt, change.prior.state) == (6, S.RUNNING)
    assert [field.path for field in change.fields] == ["args.n"]


def test_a_failure_is_named_even_where_an_older_attempt_is_active(world: Any) -> None:
    world.had(S.RUNNING, spec=OTHER, number=6).had(S.FAILED, failure=F.NODE_LOST)
    change = world.want(on_active="replace").change()
    assert (change.reason, change.prior.attempt) == (Reason.PREVIOUS_FAILED, 7)
    assert change.launch.stop == (6,)


def test_destroy_stops_every_active_attempt_and_names_the_newest(world: Any) -> None:
    world.had(S.RUNNING, number=5).had(S.QUEUED, number=6).had(S.SUCCEEDED)
    made = world.plan(destroy=True)
    (change,) = made.changes
    assert (change.launch.stop, change.prior.attempt) == ((5, 6), 6)
    assert [check.code for check in made.checks] == ["work_lost", "work_lost"]


def test_an_older_active_attempt_that_computes_the_same_is_adopted(world: Any) -> None:
    world.had(S.RUNNING, number=6).had(S.SUCCEEDED, spec=OTHER).want()
    change = world.change()
    assert (change.action, change.attempt) == (Action.ADOPT, 6)


def test_an_unchanged_success_is_left_alone(world: Any) -> None:
    made = world.want().had(S.SUCCEEDED).plan()
    (change,) = made.changes
    assert (change.action, change.reason) == (Action.NO_OP, Reason.UP_TO_DATE)
    assert change.prior.attempt == 7
    assert not made.applyable
    assert made.summary.no_op == 1


def test_a_changed_success_is_created_again(world: Any) -> None:
    change = world.want(spec=OTHER).had(S.SUCCEEDED).change()
    assert (change.action, change.reason) == (Action.CREATE, Reason.CONFIG_CHANGED)
    assert (change.attempt, change.unchanged) == (8, 3)


def test_changed_code_is_created_again(world: Any) -> None:
    change = world.want(code="sha256:d", changed=("train.py",)).had(S.SUCCEEDED).change()
    assert (change.action, change.reason) == (Action.CREATE, Reason.CODE_CHANGED)
    assert change.code.changed == ("train.py",)
    assert change.fields == ()


def test_config_comes_before_code_as_the_reason(world: Any) -> None:
    change = world.want(spec=OTHER, code="sha256:d").had(S.SUCCEEDED).change()
    assert change.reason is Reason.CONFIG_CHANGED


USERS = [f for f in F if f in (F.EXCEPTION, F.EXIT_CODE, F.OOM, F.TIMEOUT, F.LAUNCH_FAILED_USER)]


@pytest.mark.parametrize("failure", [*USERS, None])
def test_a_failure_of_the_users_code_is_not_retried(world: Any, failure: F | None) -> None:
    change = world.want().had(S.FAILED, failure=failure).change()
    assert (change.action, change.reason) == (Action.NO_OP, Reason.FAILED_NOT_RETRIED)
    assert change.prior.state is S.FAILED


def test_retry_failed_creates_it(world: Any) -> None:
    change = world.want().had(S.FAILED, failure=F.EXCEPTION).change(retry_failed=True)
    assert (change.action, change.reason) == (Action.CREATE, Reason.PREVIOUS_FAILED)


def test_a_failed_run_with_a_changed_config_is_created(world: Any) -> None:
    change = world.want(spec=OTHER).had(S.FAILED, failure=F.EXCEPTION).change()
    assert (change.action, change.reason) == (Action.CREATE, Reason.CONFIG_CHANGED)


@pytest.mark.parametrize("spec", [SPEC, OTHER])
@pytest.mark.parametrize("failure", [F.KILLED, F.NODE_LOST, F.CAPACITY, F.STAGING_FAILED])
def test_a_failure_of_the_infrastructure_is_created(world: Any, failure: F, spec: Any) -> None:
    change = world.want(spec=spec).had(S.FAILED, failure=failure).change()
    assert (change.action, change.reason) == (Action.CREATE, Reason.PREVIOUS_FAILED)


@pytest.mark.parametrize("spec", [SPEC, OTHER])
def test_a_lost_run_is_created(world: Any, spec: Any) -> None:
    change = world.want(spec=spec).had(S.LOST, failure=F.SUPERVISOR_LOST).change()
    assert (change.action, change.reason) == (Action.CREATE, Reason.PREVIOUS_LOST)


@pytest.mark.parametrize("retry", [False, True])
def test_a_cancelled_run_stays_cancelled(world: Any, retry: bool) -> None:
    change = world.want().had(S.CANCELLED).change(retry_failed=retry)
    assert (change.action, change.reason) == (Action.NO_OP, Reason.CANCELLED_BY_USER)


def test_a_cancelled_run_with_a_changed_config_is_created(world: Any) -> None:
    change = world.want(spec=OTHER).had(S.CANCELLED).change()
    assert (change.action, change.reason) == (Action.CREATE, Reason.CONFIG_CHANGED)


@pytest.mark.parametrize("state", [S.SUCCEEDED, S.FAILED, S.CANCELLED, S.LOST])
def test_a_rerun_creates_whatever_the_last_attempt_was(world: Any, state: S) -> None:
    change = world.want().had(state).change(rerun=frozenset({TRAIN}))
    assert (change.action, change.reason) == (Action.CREATE, Reason.REQUESTED_RERUN)


def test_a_rerun_of_an_active_run_is_subject_to_on_active(world: Any) -> None:
    world.want().had(S.RUNNING)
    assert errors(world.plan(rerun=frozenset({TRAIN}))) == ["active_run"]
    change = world.change(rerun=frozenset({TRAIN}), on_active="replace")
    assert (change.action, change.reason) == (Action.REPLACE, Reason.REQUESTED_RERUN)


def test_until_always_creates_each_time(world: Any) -> None:
    change = world.want(until="always").had(S.SUCCEEDED).change()
    assert (change.action, change.reason) == (Action.CREATE, Reason.REQUESTED_RERUN)


def test_a_changed_limit_is_an_update_and_no_launch(world: Any) -> None:
    change = world.want(spec={**SPEC, "timeout": "6h"}).had(S.SUCCEEDED).change()
    assert (change.action, change.reason) == (Action.UPDATE, Reason.CONFIG_CHANGED)
    assert (change.fields[0].effect, change.launch.token) == (FieldEffect.NEXT_ATTEMPT, None)
    assert change.unchanged == 4


def test_a_changed_tag_is_recorded_only(world: Any) -> None:
    change = world.want(spec={**SPEC, "tags": {"team": "a"}}).had(S.SUCCEEDED).change()
    assert change.action is Action.UPDATE
    assert [(f.path, f.effect) for f in change.fields] == [("tags.team", FieldEffect.STATE_ONLY)]


def test_a_changed_limit_of_an_active_run_is_an_update_that_names_the_run(world: Any) -> None:
    change = world.want(spec={**SPEC, "timeout": "6h"}).had(S.RUNNING).change()
    assert (change.action, change.reason) == (Action.UPDATE, Reason.ALREADY_RUNNING)
    assert change.attempt == 7


def test_a_backend_that_can_changes_a_limit_in_place(world: Any) -> None:
    world.want(spec={**SPEC, "timeout": "6h"}).had(S.RUNNING)
    made = world.plan(capabilities={"local": Capabilities(in_place=frozenset({"timeout"}))})
    assert made.changes[0].fields[0].effect is FieldEffect.IN_PLACE


def test_ignored_paths_never_launch(world: Any) -> None:
    change = world.want(spec=OTHER, ignore_changes=("args",)).had(S.SUCCEEDED).change()
    assert change.action is Action.NO_OP


def test_a_run_taken_out_of_its_project_is_forgotten(world: Any) -> None:
    change = world.had(S.SUCCEEDED).change()
    assert (change.action, change.reason) == (Action.FORGET, Reason.REMOVED_FROM_CONFIG)
    assert not change.destructive


def test_an_active_run_taken_out_of_its_project_is_destroyed(world: Any) -> None:
    made = world.had(S.RUNNING).plan()
    (change,) = made.changes
    assert (change.action, change.destructive, change.launch.stop) == (Action.DESTROY, True, (7,))
    assert [check.code for check in made.checks] == ["work_lost"]


@pytest.mark.parametrize("destroy", [False, True])
def test_what_a_project_lets_go_is_forgotten_and_not_stopped(world: Any, destroy: bool) -> None:
    world.had(S.RUNNING).had(S.RUNNING, "sweep", key="n=1").had(S.RUNNING, "other")
    let_go = frozenset({Address.run("train"), Address.run("sweep")})
    made = world.plan(let_go=let_go, destroy=destroy)
    assert [(str(one.address), one.action, one.launch.stop) for one in made.changes] == [
        ("run.other", Action.DESTROY, (7,)),
        ('run.sweep["n=1"]', Action.FORGET, ()),
        ("run.train", Action.FORGET, ()),
    ]
    assert [one.destructive for one in made.changes] == [True, False, False]
    assert [str(check.address) for check in made.checks] == ["run.other"]


def test_what_another_file_declares_is_left_alone(world: Any) -> None:
    assert world.had(S.RUNNING, owner="other.yaml").plan().changes == ()


def test_a_run_file_never_removes_a_run_of_another_name(world: Any) -> None:
    world.want("new").had(S.RUNNING, "old")
    made = world.plan(whole_project=False)
    assert [change.address.name for change in made.changes] == ["new"]
    assert made.complete


def test_a_run_file_removes_matrix_cells_that_it_no_longer_lists(world: Any) -> None:
    world.want(key="n=1").had(S.SUCCEEDED, key="n=1").had(S.SUCCEEDED, key="n=2")
    made = world.plan(whole_project=False)
    assert [change.action for change in made.changes] == [Action.NO_OP, Action.FORGET]


def test_a_protected_active_run_cannot_be_removed_or_replaced(world: Any) -> None:
    kept = {**SPEC, "lifecycle": {"prevent_destroy": True}}
    world.had(S.RUNNING, spec=kept)
    assert errors(world.plan()) == ["prevent_destroy"]
    world.want(spec={**kept, "gpus": 4}, prevent_destroy=True, on_active="replace")
    assert errors(world.plan()) == ["prevent_destroy"]


def test_a_run_that_moved_to_another_file_changes_its_owner(world: Any) -> None:
    made = world.want().had(S.SUCCEEDED, owner="old.yaml").plan()
    assert made.changes[0].action is Action.UPDATE
    assert made.checks == ()
    assert made.changes[0].launch.owner == "sgpu.yml"


def test_what_the_backend_says_wins_over_what_was_recorded(world: Any) -> None:
    world.want().had(S.RUNNING)
    ref = AttemptRef(TRAIN, 7)
    world.observed[ref] = AttemptView(ref=ref, backend="local", state=S.FAILED, failure=F.NODE_LOST)
    change = world.change()
    assert (change.action, change.reason) == (Action.CREATE, Reason.PREVIOUS_FAILED)
    assert change.prior.state is S.FAILED


def test_what_is_not_selected_is_left_out_and_said(world: Any) -> None:
    world.want("a").want("b").had(S.SUCCEEDED, "c")
    made = world.plan(select=frozenset({Address.run("a")}))
    assert [str(change.address) for change in made.changes] == ["run.a"]
    assert not made.complete


def test_destroy_ends_all_that_stands_and_nothing_that_is_gone(world: Any) -> None:
    world.want("a").had(S.RUNNING, "a").had(S.SUCCEEDED, "b").had(S.SUCCEEDED, "c", gone=True)
    made = world.plan(destroy=True)
    assert [(str(c.address), c.action, c.destructive) for c in made.changes] == [
        ("run.a", Action.DESTROY, True),
        ("run.b", Action.DESTROY, False),
    ]
    assert made.complete
    assert world.record(made).plan(destroy=True).changes == ()


def test_destroy_of_a_run_file_needs_no_list_of_its_runs(world: Any) -> None:
    world.had(S.RUNNING, owner="run.yaml").had(S.RUNNING, "b", owner="other.yaml")
    made = world.plan(owner="run.yaml", request=PlanRequest(destroy=True, whole_project=False))
    assert [change.address.name for change in made.changes] == ["train"]


def test_findings_become_checks_and_errors_stop_the_plan(world: Any) -> None:
    finding = Diagnostic(code="missing_file", summary="there is no `a.py`", hint="make it")
    made = world.want(findings=(finding,)).plan()
    assert errors(made) == ["missing_file"]
    assert not made.applyable


def test_a_finding_of_every_cell_is_said_once(world: Any) -> None:
    finding = Diagnostic(code="outside", summary="s", severity=Severity.WARNING)
    for n in range(3):
        world.want(key=f"n={n}", findings=(finding,))
    (check,) = world.plan().checks
    assert check.address == 'run.train["n=0"]'


def test_a_change_names_the_place_in_the_file(world: Any) -> None:
    place = Place("run.yaml", 5, 3)
    change = world.want(spec=OTHER, places={"args.n": place}).had(S.SUCCEEDED).change()
    assert change.fields[0].origin == place


def test_a_removed_field_has_no_place(world: Any) -> None:
    fewer = {key: value for key, value in SPEC.items() if key != "args"}
    change = world.want(spec=fewer, places={"args": Place("f", 1, 1)}).had(S.SUCCEEDED).change()
    assert (change.fields[0].after, change.fields[0].origin) == (None, None)


def test_changes_are_sorted_by_address(world: Any) -> None:
    for name in ("b", "a-b", "a"):
        world.want(name)
    world.want("a", key="n=1")
    addresses = [str(change.address) for change in world.plan().changes]
    assert addresses == sorted(addresses)


def test_a_field_updated_earlier_is_not_shown_again(world: Any) -> None:
    world.had(S.SUCCEEDED).want(spec={**SPEC, "timeout": "6h"})
    world.record(world.plan())
    assert world.change().action is Action.NO_OP
    world.want(spec={**OTHER, "timeout": "6h"})
    assert [field.path for field in world.change().fields] == ["args.n"]


def test_ages_do_not_depend_on_the_clock(world: Any) -> None:
    made = world.want().had(S.SUCCEEDED).plan()
    assert made.changes[0].prior.ended_at == made.created_at - timedelta(days=3)
    assert made == world.plan()
    assert replace(made, serial=6) != made


def test_a_changed_list_points_to_the_member_that_differs(world: Any) -> None:
    places = {"command": Place("run.yaml", 4, 1), "command.1": Place("run.yaml", 6, 5)}
    spec = {"gpus": 1, "type": "CPU", "command": ["echo", "a"]}
    world.had(AttemptState.SUCCEEDED, spec=spec)
    for command, named in (
        (["echo", "b"], "command.1"),
        (["echo", "a", "b"], "command"),
        (["echo"], "command"),
    ):
        world.want(spec={**spec, "command": command}, places=places)
        (field,) = world.change().fields
        assert field.origin == places[named]


def test_several_active_attempts_are_told_together(world: Any) -> None:
    world.want(spec=OTHER).had(S.RUNNING, number=6).had(S.RUNNING, number=7)
    (check,) = world.plan().checks
    assert check.summary == "`train#6`, `train#7` are active, and `on_active` is `error`"
    assert check.hint is not None
    assert check.hint.startswith("wait for them or cancel them, ")
