"""What a plan makes of `renamed_from`."""

from dataclasses import replace

import pytest

from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.desired import Rename
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.plan import Action, Cause, Plan, Reason
from sgpu_decl.planner.causes import with_causes
from sgpu_decl.planner.plan_json import saved_from_json, saved_text
from tests.planner.conftest import CODE, SPEC, World
from tests.support import some

S = AttemptState
OLD, NEW = Address.run("old"), Address.run("new")
RENAMED = (Rename(address=NEW, before=OLD),)


@pytest.fixture
def renamed(world: World) -> World:
    return world.had(S.SUCCEEDED, "old").want("new")


def shown(plan: Plan) -> list[tuple[str, str | None, Action]]:
    return [
        (str(one.address), str(one.moved_from) if one.moved_from else None, one.action)
        for one in plan.changes
    ]


def test_a_renamed_run_keeps_its_history_and_is_not_launched(renamed: World) -> None:
    made = renamed.plan(renames=RENAMED)
    assert shown(made) == [("run.new", "run.old", Action.NO_OP)]
    (change,) = made.changes
    assert change.reason is Reason.UP_TO_DATE
    assert change.prior is not None
    assert change.prior.attempt == 7
    assert made.summary.no_op == 1
    assert made.applyable
    assert made.complete


def test_a_rename_that_was_carried_out_changes_nothing(renamed: World) -> None:
    made = renamed.record(renamed.plan(renames=RENAMED)).plan(renames=RENAMED)
    assert shown(made) == [("run.new", None, Action.NO_OP)]
    assert not made.applyable


def test_a_change_beside_a_rename_makes_the_next_attempt(world: World) -> None:
    world.had(S.SUCCEEDED, "old").want("new", {**SPEC, "gpus": 4})
    (change,) = world.plan(renames=RENAMED).changes
    assert (change.action, change.moved_from, change.attempt) == (Action.CREATE, OLD, 8)
    assert [field.path for field in change.fields] == ["gpus"]


def test_the_cells_of_a_matrix_move(world: World) -> None:
    for key in ("n=1", "n=2"):
        world.had(S.SUCCEEDED, "old", key=key).want("new", key=key)
    world.had(S.SUCCEEDED, "old", key="n=3")
    assert shown(world.plan(renames=RENAMED)) == [
        ('run.new["n=1"]', 'run.old["n=1"]', Action.NO_OP),
        ('run.new["n=2"]', 'run.old["n=2"]', Action.NO_OP),
        ('run.new["n=3"]', 'run.old["n=3"]', Action.FORGET),
    ]


def test_what_is_not_selected_moves_all_the_same(renamed: World) -> None:
    renamed.want("other")
    made = renamed.plan(renames=RENAMED, select=frozenset({Address.run("other")}))
    assert shown(made) == [
        ("run.new", "run.old", Action.NO_OP),
        ("run.other", None, Action.CREATE),
    ]
    assert not made.complete


def test_what_was_observed_of_an_active_run_goes_along_and_refuses_the_plan(world: World) -> None:
    world.had(S.RUNNING, "old").want("new")
    ref = AttemptRef(OLD, 7)
    world.observed[ref] = AttemptView(ref=ref, backend="local", state=S.STARTING)
    made = world.plan(renames=RENAMED)
    (change,) = made.changes
    assert change.action is Action.ADOPT
    assert change.prior is not None
    assert change.prior.state is S.STARTING
    (check,) = made.checks
    assert (check.code, check.address) == ("active_run", str(NEW))
    assert check.summary == "`old#7` is active: `old` cannot be renamed before it has ended"
    assert "sgpu wait 'old#7'" in str(check.hint)
    assert not made.applyable


def test_a_run_that_is_active_on_another_machine_is_refused_with_the_reason(world: World) -> None:
    world.had(S.RUNNING, "old").want("new")
    ref = AttemptRef(OLD, 7)
    world.observed[ref] = AttemptView(
        ref=ref, backend="local", state=S.RUNNING, unavailable="it was launched on gpu-1"
    )
    check, unseen = world.plan(renames=RENAMED).checks
    assert unseen.code == "attempt_not_visible"
    assert check.summary.startswith("`old#7` is active (it was launched on gpu-1): ")
    assert check.hint == (
        "after it has ended, `sgpu apply` where it was launched records that; then plan again"
    )


def test_a_run_whose_output_is_being_read_is_not_renamed(renamed: World) -> None:
    reader = AttemptRef(Address.run("evaluate"), 3)
    made = renamed.plan(renames=RENAMED, needed={AttemptRef(OLD, 7): reader})
    (check,) = made.checks
    assert check.code == "active_run"
    assert check.summary.startswith("`evaluate#3` is active and looks at a folder of `old`:")


@pytest.mark.parametrize("gone", [False, True])
def test_two_histories_do_not_become_one(renamed: World, gone: bool) -> None:
    renamed.had(S.SUCCEEDED, "new", gone=gone)
    made = renamed.plan(renames=RENAMED)
    assert [(check.code, check.address) for check in made.checks] == [("move_refused", str(NEW))]
    assert all(change.moved_from is None for change in made.changes)
    assert not made.applyable


def test_a_run_of_another_file_may_have_the_old_name_again(world: World) -> None:
    world.had(S.SUCCEEDED, "new").want("new").had(S.SUCCEEDED, "old", owner="other.yaml")
    made = world.plan(renames=RENAMED)
    assert shown(made) == [("run.new", None, Action.NO_OP)]
    assert made.checks == ()


def test_an_old_name_that_is_misspelt_is_a_warning(world: World) -> None:
    world.had(S.SUCCEEDED, "train").had(S.SUCCEEDED, "trial").want("trial").want("new")
    made = world.plan(renames=(Rename(address=NEW, before=Address.run("trian")),))
    (check,) = made.checks
    assert (check.code, check.severity, check.address) == ("unknown_old_name", "warning", str(NEW))
    assert check.hint == "did you mean `renamed_from: train`?"
    assert made.applyable


@pytest.mark.parametrize("recorded", ["other", "old2", "new"])
def test_an_old_name_that_nothing_is_recorded_under_may_be_that_of_another_target(
    world: World, recorded: str
) -> None:
    world.had(S.SUCCEEDED, recorded).want("new")
    if recorded == "old2":
        world.want("old2")
    assert world.plan(renames=RENAMED).checks == ()


def test_an_address_that_was_moved_away_is_free_again(world: World) -> None:
    world.had(S.SUCCEEDED, "old").want("new")
    world.record(world.plan(renames=RENAMED))
    del world.desired[NEW]
    back = (Rename(address=OLD, before=NEW),)
    assert shown(world.want("old").plan(renames=back)) == [("run.old", "run.new", Action.NO_OP)]
    assert world.plan(renames=back).applyable


def reading(name: str) -> dict[str, Json]:
    return {"gpus": 1, "type": "CPU", "after": [name], "command": [f"${{run.{name}.output}}/w"]}


def test_a_run_that_reads_the_output_of_a_renamed_one_is_not_launched_again(renamed: World) -> None:
    pinned = {**reading("old"), "command": ["${run.old#7.output}/w"]}
    renamed.had(S.SUCCEEDED, "reader", pinned).want("reader", reading("new"), after=("new",))
    made = renamed.plan(renames=RENAMED)
    change = next(one for one in made.changes if one.address.name == "reader")
    assert change.action is Action.UPDATE
    assert [field.path for field in change.fields] == ["after"]
    after = renamed.record(made).plan(renames=RENAMED)
    assert [one.action for one in after.changes] == [Action.NO_OP] * 2


def test_an_environment_moves_without_being_counted(renamed: World) -> None:
    environment = replace(
        renamed.resources[OLD], address=Address(Kind.ENVIRONMENT, "old"), last=None
    )
    renamed.resources[environment.address] = environment
    renames = (
        *RENAMED,
        Rename(address=Address(Kind.ENVIRONMENT, "new"), before=Address(Kind.ENVIRONMENT, "old")),
    )
    made = renamed.plan(renames=renames)
    assert ("environment.new", "environment.old") in [one[:2] for one in shown(made)]
    assert made.summary.no_op == 1


def test_a_saved_plan_with_a_rename_comes_back_whole(renamed: World) -> None:
    made = renamed.plan(renames=RENAMED)
    assert saved_from_json(saved_text(made)) == (made, ())


def causes(world: World, base: World, *renames: Rename) -> dict[str, Cause | None]:
    here = world.plan(renames=RENAMED)
    made = with_causes(here, base.plan(renames=renames), selected=None)
    return {str(change.address): change.cause for change in made.changes}


def test_a_rename_is_a_change_of_the_branch_or_pending(renamed: World) -> None:
    base = World().had(S.SUCCEEDED, "old").want("old")
    assert causes(renamed, base) == {"run.new": Cause.CHANGE}
    assert causes(renamed, renamed, *RENAMED) == {"run.new": Cause.PENDING}


def test_what_the_base_would_do_under_the_old_name_is_not_withdrawn(renamed: World) -> None:
    changed: dict[str, Json] = {**SPEC, "gpus": 4}
    base = World().had(S.SUCCEEDED, "old").want("old", changed)
    assert causes(renamed, base) == {"run.new": Cause.CHANGE}


def likely(world: World, **asked: object) -> list[tuple[str, str, str]]:
    made = world.plan(**asked)  # type: ignore[arg-type]
    return [
        (str(one.address), one.summary, one.hint or "")
        for one in made.checks
        if one.code == "likely_rename"
    ]


def test_what_is_the_same_but_for_its_name_was_probably_renamed(renamed: World) -> None:
    ((address, summary, hint),) = likely(renamed)
    assert address == "run.new"
    assert summary == "`run.old` is declared no more, and has the same code and config"
    assert hint == (
        "did you mean `renamed_from: old`? The history then moves along, and nothing is launched "
        "for it"
    )
    assert renamed.plan().applyable
    assert likely(renamed, renames=RENAMED) == []


def test_how_a_launch_differs_is_named(world: World) -> None:
    world.had(S.SUCCEEDED, "old").want("new", {**SPEC, "timeout": "1h", "tags": {"a": "b"}})
    ((_, summary, _),) = likely(world)
    assert summary.endswith("has the same code and config but for `tags.a`, `timeout`")


def test_code_that_differs_in_nothing_that_counts_is_the_same(renamed: World) -> None:
    attempt = some(renamed.resources[OLD].last)
    inputs = replace(attempt.inputs, code_digest="sha256:other", counted="1:abc")
    renamed.resources[OLD] = replace(renamed.resources[OLD], last=replace(attempt, inputs=inputs))
    assert likely(renamed) == []
    code = some(renamed.desired[NEW].code)
    renamed.desired[NEW] = replace(renamed.desired[NEW], code=replace(code, counted="1:abc"))
    assert len(likely(renamed)) == 1


def test_what_the_last_attempt_was_decides_what_the_hint_promises(world: World) -> None:
    world.had(S.FAILED, "old").want("new")
    assert likely(world)[0][2].endswith("? The history then moves along")
    world.had(S.RUNNING, "old")
    assert likely(world)[0][2].endswith(
        "`old#7` is active: this plan cancels it, and it can be renamed once it has ended"
    )


@pytest.mark.parametrize(
    "other",
    ["declared", "gone", "of another file", "other config", "other code", "let go", "used", "call"],
)
def test_what_differs_or_stays_was_not_renamed(world: World, other: str) -> None:
    spec = {**SPEC, "gpus": 4} if other == "other config" else SPEC
    owner = "other.yaml" if other == "of another file" else "sgpu.yml"
    code = "sha256:other" if other == "other code" else CODE
    world.had(S.SUCCEEDED, "old", spec, owner=owner, gone=other == "gone", code=code).want("new")
    if other == "declared":
        world.want("old")
    if other == "used":  # destroyed once: its history cannot become that of another
        world.had(S.SUCCEEDED, "new", gone=True)
    let_go = frozenset({OLD}) if other == "let go" else frozenset()
    assert likely(world, let_go=let_go, removes=other != "call") == []


def test_each_old_name_is_offered_once_to_the_new_one_that_is_most_like_it(world: World) -> None:
    world.had(S.SUCCEEDED, "train").had(S.SUCCEEDED, "sweep")
    world.want("sweeps").want("training").want("third")
    assert [(address, hint.split("`")[1]) for address, _, hint in likely(world)] == [
        ("run.sweeps", "renamed_from: sweep"),
        ("run.training", "renamed_from: train"),
    ]


def test_the_cells_of_a_matrix_are_one_rename(world: World) -> None:
    cells: dict[str, dict[str, Json]] = {f"n={n}": {**SPEC, "args": {"n": n}} for n in (1, 2, 3)}
    for key, spec in cells.items():
        world.had(S.SUCCEEDED, "old", spec, key=key).want("new", spec, key=key)
    world.want("new", {**SPEC, "args": {"n": 4}}, key="n=4")
    ((address, summary, _),) = likely(world)
    assert (address, summary) == (
        "run.new",
        "`run.old` is declared no more, and has the same code and config",
    )
    world.had(S.SUCCEEDED, "old", {**SPEC, "args": {"n": 9}}, key="n=3")
    ((_, summary, _),) = likely(world)
    assert summary.endswith("2 of its 3 runs have the same code and config")


def test_a_run_that_reads_the_output_of_a_renamed_one_is_recognised_after_it(
    renamed: World,
) -> None:
    pinned = {**reading("old"), "command": ["${run.old#7.output}/w"]}
    renamed.had(S.SUCCEEDED, "reader", pinned).want("reads", reading("new"), after=("new",))
    assert [address for address, _, _ in likely(renamed)] == ["run.new", "run.reads"]
