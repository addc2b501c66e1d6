"""The API of AI Runtime that the SDK does not know."""

from datetime import datetime
from typing import Any

import pytest
from databricks.sdk.errors import NotFound

from tests.testing.workspace.executing.conftest import User


def validate(user: User, **body: Any) -> list[tuple[str, str]]:
    answer = user.client.api_client.do("POST", "/api/2.0/ai-training/config:validate", body=body)
    return [(one["path"], one["code"]) for one in answer.get("errors", [])]


def test_all_that_is_wrong_is_said_at_once(user: User) -> None:
    task = user.task("/Workspace/x", kind="GPU_9", count=2000)
    options = {
        "idempotency_token": "x" * 65, "max_retries": -1, "timeout_minutes": 0,
        "env_variables": {"1INVALID": "x", "FINE": "y"}, "secrets": {"FINE": "no-slash"},
    }  # fmt: skip
    spec = {"environment_version": "5", "base_environment": "b"}
    found = validate(user, task=task, run_options=options, environment=spec)
    assert {path for path, _ in found} == {
        "deployments[0].compute.accelerator_type", "deployments[0].compute.accelerator_count",
        "environment", "idempotency_token", "max_retries", "timeout_minutes",
        "env_variables[1INVALID]", "secrets[FINE]",
    }  # fmt: skip
    assert {code for _, code in found} == {"INVALID_PARAMETER_VALUE"}


def test_nothing_is_said_of_what_is_fine(user: User) -> None:
    options = {"timeout_minutes": 60, "max_retries": 3, "secrets": {"A": "scope/key"}}
    assert validate(user, task=user.task("/Workspace/x"), run_options=options) == []


def test_workflows_are_the_callers_runs(user: User) -> None:
    ids = [user.submit("true\n") for _ in range(3)]
    for run_id in ids:
        user.ended(run_id)

    def ask(**query: Any) -> Any:
        return user.client.api_client.do("GET", "/api/2.0/ai-training/workflows", query=query)

    first = ask(page_size=2)
    rest = ask(page_token=first["next_page_token"])
    listed = first["training_workflows"] + rest["training_workflows"]
    assert [one["job_run_id"] for one in listed] == [str(run_id) for run_id in reversed(ids)]
    assert datetime.fromisoformat(listed[0]["submit_time"]).utcoffset() is not None
    assert ask(active_only="true")["training_workflows"] == []


def test_logs_of_what_is_not_there(user: User) -> None:
    with pytest.raises(NotFound, match="does not exist"):
        user.page(12)
    run_id = user.submit("true\n")
    with pytest.raises(NotFound, match="no attempt 4"):
        user.page(run_id, ref__attempt_number=4)
    user.ended(run_id)
