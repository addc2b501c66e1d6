"""Declared environments in a plan, and the packages of undeclared ones."""

from typing import Any

import pytest

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.desired import Interpreter
from sgpu_decl.model.environment import DesiredEnvironment, Package, PackageList
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.jsonable import digest as digest_of
from sgpu_decl.model.plan import Action, PackageChange, Reason
from sgpu_decl.planner.plan_inputs import PlanRequest
from sgpu_decl.planner.plan_json import saved_from_json, saved_text

OLD = {"numpy": "2.1.0", "torch": "2.7.1"}
NEW = {"peft": "0.17.1", "torch": "2.13.0", "numpy": "2.1.0"}
TRAIN = Address(Kind.ENVIRONMENT, "train")


def _packages(versions: dict[str, str]) -> PackageList:
    return PackageList.of(Package(name, version) for name, version in versions.items())


def _environment(versions: dict[str, str], digest: str = "", **other: Any) -> DesiredEnvironment:
    packages = _packages(versions)
    digest = digest or digest_of(f"env-{packages.digest}")
    return DesiredEnvironment(
        **{
            "address": TRAIN,
            "backend": "local",
            "owner": "sgpu.yml",
            "digest": digest,
            "spec": Spec.of({"digest": digest, "packages": packages.digest}),
            "packages": packages,
            "bytes": 100,
            "bytes_to_stage": 10,
            **other,
        }
    )


def _interpreter(versions: dict[str, str]) -> Interpreter:
    return Interpreter(executable="python", version="3.11.7", packages=_packages(versions))


def _by_address(plan: Any) -> dict[str, Any]:
    return {str(change.address): change for change in plan.changes}


def test_a_first_environment_is_created_with_all_of_its_packages(world: Any) -> None:
    changes = _by_address(world.want(environment=_environment(OLD)).plan())
    made, run = changes["environment.train"], changes["run.train"]
    assert (made.action, made.reason) == (Action.CREATE, Reason.FIRST_RUN)
    assert made.environment.packages == (
        PackageChange(name="numpy", before=None, after="2.1.0"),
        PackageChange(name="torch", before=None, after="2.7.1"),
    )
    assert run.depends_on == (TRAIN,)
    assert run.environment.packages == ()
    assert run.launch.inputs.environment_digest == made.environment.digest


def test_environments_are_shown_and_not_counted(world: Any) -> None:
    assert world.want(environment=_environment(OLD)).plan().summary.create == 1


def test_another_package_is_a_new_attempt_for_that_reason_alone(world: Any) -> None:
    world.record(world.want(environment=_environment(OLD)).plan())
    changes = _by_address(world.want(environment=_environment(NEW)).plan())
    made, run = changes["environment.train"], changes["run.train"]
    assert (made.action, made.reason) == (Action.UPDATE, Reason.ENVIRONMENT_CHANGED)
    assert (run.action, run.reason, run.attempt) == (Action.CREATE, Reason.ENVIRONMENT_CHANGED, 2)
    assert run.fields == ()
    assert (
        made.environment.packages
        == run.environment.packages
        == (
            PackageChange(name="peft", before=None, after="0.17.1"),
            PackageChange(name="torch", before="2.7.1", after="2.13.0"),
        )
    )


def test_equal_packages_with_other_files_are_another_environment(world: Any) -> None:
    world.record(world.want(environment=_environment(OLD, "one")).plan())
    changes = _by_address(world.want(environment=_environment(OLD, "two")).plan())
    assert changes["environment.train"].action is Action.UPDATE
    assert changes["environment.train"].environment.packages == ()
    assert changes["run.train"].reason is Reason.ENVIRONMENT_CHANGED


def test_plan_after_apply_changes_nothing(world: Any) -> None:
    world.record(world.want(environment=_environment(OLD)).plan())
    plan = world.want(environment=_environment(OLD)).plan()
    assert {change.action for change in plan.changes} == {Action.NO_OP}
    assert not plan.applyable


def test_declaring_one_for_a_run_that_had_none_launches_it(world: Any) -> None:
    world.had(AttemptState.SUCCEEDED).want(environment=_environment(OLD))
    assert _by_address(world.plan())["run.train"].reason is Reason.ENVIRONMENT_CHANGED


def test_one_that_nothing_declares_any_more_is_forgotten(world: Any) -> None:
    world.record(world.want(environment=_environment(OLD)).plan())
    changes = _by_address(world.want(environment=None).plan())
    assert changes["environment.train"].action is Action.FORGET
    assert changes["run.train"].action is Action.CREATE


def test_one_that_could_not_be_looked_at_is_not_forgotten(world: Any) -> None:
    world.record(world.want(environment=_environment(OLD)).plan())
    lost = Diagnostic(code="unresolvable", summary="no versions satisfy all requirements")
    plan = world.want(environment=None).plan(findings=[lost])
    assert set(_by_address(plan)) == {"run.train"}
    assert not plan.complete
    assert not plan.applyable


def test_one_of_a_run_that_is_left_out_is_neither_planned_nor_forgotten(world: Any) -> None:
    world.record(world.want(environment=_environment(OLD)).plan())
    other = _environment(NEW, address=Address(Kind.ENVIRONMENT, "other"))
    world.want("other", environment=other).want(environment=_environment(NEW))
    plan = world.plan(request=PlanRequest(project="/p", select=frozenset({Address.run("other")})))
    assert set(_by_address(plan)) == {"environment.other", "run.other"}
    assert not plan.complete


def test_runs_share_one_and_it_is_planned_once(world: Any) -> None:
    shared = _environment(OLD)
    plan = world.want(environment=shared).want("other", environment=shared).plan()
    assert [str(change.address) for change in plan.changes] == [
        "environment.train",
        "run.other",
        "run.train",
    ]
    assert plan.package_lists == (shared.packages,)


def test_a_saved_plan_holds_the_packages_that_its_launches_speak_of(world: Any) -> None:
    plan = world.want(environment=_environment(OLD)).plan()
    loaded, findings = saved_from_json(saved_text(plan))
    assert not findings
    assert loaded == plan


@pytest.mark.parametrize("state", [AttemptState.SUCCEEDED, AttemptState.FAILED])
def test_packages_of_an_undeclared_interpreter_force_nothing(
    world: Any, state: AttemptState
) -> None:
    world.record(world.want(interpreter=_interpreter(OLD)).plan(), state)
    plan = world.want(interpreter=_interpreter(NEW)).plan()
    assert [change.action for change in plan.changes] == [Action.NO_OP]


def test_what_changed_in_an_undeclared_interpreter_is_said_with_the_next_launch(world: Any) -> None:
    world.record(world.want(interpreter=_interpreter(OLD)).plan())
    world.want(interpreter=_interpreter(NEW))
    (check,) = world.plan(rerun=frozenset({Address.run("train")})).checks
    assert check.summary == (
        "ranks use Python 3.11.7, `python`; since `train#1`: + peft 0.17.1, ~ torch 2.7.1 -> 2.13.0"
    )
    assert "snapshot: true" in check.hint
