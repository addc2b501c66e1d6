"""What a workspace adds by itself is no drift; what somebody did is."""

import re

import pytest

from sgpu_decl.backends.databricks.jobs.lakeflow_rules import RULES
from sgpu_decl.model.jsonable import NO_FIELDS, Spec
from sgpu_decl.model.plan import Reason
from sgpu_decl.planner.jobs.ignored_settings import without_defaults
from sgpu_decl.planner.jobs.job_policy import POLICY, reason_of


def test_every_entry_has_a_reason() -> None:
    assert all(len(rule.why) > 5 for rule in RULES.defaults.values())
    assert all(len(rule.why) > 5 for rule in (*POLICY.values(), *RULES.reasons.values()))
    assert all(
        re.fullmatch(r"[a-z_*]+(\.[a-z_*]+)*", path)
        for path in (*RULES.defaults, *RULES.reasons, *POLICY)
    )


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("max_concurrent_runs", 1, True),
        ("max_concurrent_runs", 2, False),
        ("max_concurrent_runs", True, False),
        ("timeout_seconds", 0, True),
        ("timeout_seconds", False, False),
        ("tasks.any.run_if", "ALL_SUCCESS", True),
        ("tasks.any.run_if", "ALL_DONE", False),
        ("tasks.any.other.run_if", "ALL_SUCCESS", False),
        ("run_as.user_name", "me@example.com", True),
        ("anything.at.all", {}, True),
        ("anything.at.all", [], True),
        ("anything.at.all", 0, False),
    ],
)
def test_a_value_is_a_default_where_the_table_says_so(
    path: str, value: object, expected: bool
) -> None:
    assert RULES.is_default(path, value) is expected  # type: ignore[arg-type]


def test_what_was_asked_for_is_compared_even_where_it_is_the_default() -> None:
    live = Spec.of({"max_concurrent_runs": 1, "timeout_seconds": 0, "format": "MULTI_TASK"})
    assert without_defaults(live, RULES, Spec.of({"max_concurrent_runs": 5})) == Spec.of(
        {"max_concurrent_runs": 1}
    )


def test_permissions_that_nobody_asked_for_are_left_out() -> None:
    live = Spec.of({"permissions": {"group_name": {"users": "CAN_VIEW"}}})
    assert without_defaults(live, RULES, NO_FIELDS) == NO_FIELDS
    asked = Spec.of({"permissions": {"group_name": {"admins": "CAN_VIEW"}}})
    assert without_defaults(live, RULES, asked) == live


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("schedule.pause_status", Reason.CONFIG_CHANGED),
        ("tasks.train.ai_runtime_task.code_source_path", Reason.CODE_CHANGED),
        ("tasks.train.ai_runtime_task.experiment", Reason.CONFIG_CHANGED),
        ("environments.default.spec.dependencies", Reason.ENVIRONMENT_CHANGED),
    ],
)
def test_a_reason_is_that_of_the_longest_path_that_is_named(path: str, reason: Reason) -> None:
    assert reason_of(path, RULES) is reason
