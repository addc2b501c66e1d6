"""What a plan does about runs and jobs that its target leaves out."""

from dataclasses import replace

from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.attempt import AttemptState
from tests.planner.conftest import World

TRAIN, JOB = Address.run("train"), Address(Kind.JOB, "nightly")
LEFT_OUT = frozenset({TRAIN, JOB})


def test_an_active_run_goes_on_and_the_plan_says_so(world: World) -> None:
    plan = world.had(AttemptState.RUNNING).plan(left_out=LEFT_OUT, target="dev")
    assert plan.changes == ()
    assert plan.complete
    assert [one.code for one in plan.checks] == ["left_out_exists", "left_out"]
    assert "the target `dev` leaves it out, and `train#7` is active" in plan.checks[0].summary


def test_all_cells_of_a_matrix_stay(world: World) -> None:
    world.had(AttemptState.SUCCEEDED, key="lr=1").had(AttemptState.RUNNING, key="lr=2")
    assert world.plan(left_out=LEFT_OUT).changes == ()


def test_a_job_ends_and_the_plan_says_why(world: World) -> None:
    world.had(AttemptState.SUCCEEDED)
    run = world.resources.pop(TRAIN)
    world.resources[JOB] = replace(run, address=JOB, last=None)
    plan = world.plan(left_out=LEFT_OUT, target="dev")
    assert [(str(one.address), str(one.action)) for one in plan.changes] == [
        ("job.nightly", "destroy")
    ]
    assert "so it is deleted" in plan.checks[0].summary


def test_destroy_ends_both(world: World) -> None:
    plan = world.had(AttemptState.RUNNING).plan(left_out=LEFT_OUT, destroy=True)
    assert [str(one.action) for one in plan.changes] == ["destroy"]


def test_many_are_named_in_one_line(world: World) -> None:
    many = frozenset(Address.run(f"r{number}") for number in range(9))
    (check,) = world.plan(left_out=many).checks
    assert check.summary.endswith("`run.r4` and 4 more")
