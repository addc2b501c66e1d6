"""Runs that are repaired and exported, through the SDK."""

from typing import Any

import pytest
from databricks.sdk.errors import BadRequest, InvalidParameterValue
from databricks.sdk.service import jobs

from tests.testing.workspace.executing.conftest import User


def tasks(user: User) -> list[dict[str, Any]]:
    """Three in a row; the second fails until a file is there."""
    good = user.stage("good", command__sh="echo fine\n")
    bad = user.stage("bad", command__sh=f"test -e {user.home}/flag/mended.txt\n")
    return [
        user.task(good, task_key="first"),
        user.task(bad, task_key="second", depends_on=[{"task_key": "first"}]),
        user.task(good, task_key="third", depends_on=[{"task_key": "second"}]),
    ]


def attempts(run: Any) -> list[tuple[str, int, str]]:
    return [
        (one.task_key, one.attempt_number, one.state.result_state.value) for one in run.tasks
    ]  # fmt: skip


def test_failed_tasks_are_run_again_as_part_of_the_run(user: User) -> None:
    run_id = user.post("runs/submit", user.payload(*tasks(user)))["run_id"]
    before = user.ended(run_id)
    assert before.state.result_state.value == "FAILED"
    user.stage("flag", mended__txt="x")

    user.client.jobs.repair_run(run_id, rerun_all_failed_tasks=True)

    after = user.ended(run_id)
    assert after.state.result_state.value == "SUCCESS"
    assert attempts(after) == [
        ("first", 0, "SUCCESS"), ("second", 0, "FAILED"), ("third", 0, "UPSTREAM_FAILED"),
        ("second", 1, "SUCCESS"), ("third", 1, "SUCCESS"),
    ]  # fmt: skip
    assert after.start_time == before.start_time
    assert after.end_time > before.end_time
    history = user.client.jobs.get_run(run_id, include_history=True).repair_history
    assert [one.type for one in history] == [
        jobs.RepairHistoryItemType.ORIGINAL, jobs.RepairHistoryItemType.REPAIR,
    ]  # fmt: skip
    assert [one.state.result_state.value for one in history] == ["FAILED", "SUCCESS"]
    assert history[0].end_time == before.end_time
    assert [len(one.task_run_ids) for one in history] == [3, 2]


def test_tasks_are_chosen_by_name_and_with_those_after_them(user: User) -> None:
    user.stage("flag", mended__txt="x")
    run_id = user.post("runs/submit", user.payload(*tasks(user)))["run_id"]
    user.ended(run_id)

    first = user.client.jobs.repair_run(run_id, rerun_tasks=["first"]).response.repair_id
    user.ended(run_id)
    user.client.jobs.repair_run(
        run_id, rerun_tasks=["second"], rerun_dependent_tasks=True, latest_repair_id=first
    )

    run = user.ended(run_id)
    assert [key for key, _, _ in attempts(run)[3:]] == ["first", "second", "third"]
    history = user.client.jobs.get_run(run_id, include_history=True).repair_history
    assert [one.id for one in history][:2] == [None, first]


def test_a_repair_takes_the_settings_that_the_job_has_now(user: User) -> None:
    bad, good = (user.stage(name, command__sh=text) for name, text in (("a", "exit 1"), ("b", ":")))
    job_id = user.post("create", {**user.payload(user.task(bad)), "name": "j"})["job_id"]
    run_id = user.post("run-now", {"job_id": job_id})["run_id"]
    assert user.ended(run_id).state.result_state.value == "FAILED"
    user.post("update", {"job_id": job_id, "new_settings": {"tasks": [user.task(good)]}})

    user.client.jobs.repair_run(run_id, rerun_all_failed_tasks=True)

    assert user.ended(run_id).state.result_state.value == "SUCCESS"


def test_retries_of_a_repair_are_counted_anew(user: User) -> None:
    run_id = user.submit("exit 1\n", max_retries=1)
    user.ended(run_id)
    user.client.jobs.repair_run(run_id, rerun_all_failed_tasks=True)
    assert [number for _, number, _ in attempts(user.ended(run_id))] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "Exactly one of rerun_tasks and rerun_all_failed_tasks"),
        ({"rerun_tasks": ["nobody"]}, "has no task 'nobody'"),
        ({"rerun_all_failed_tasks": True}, "has no failed tasks"),
        ({"rerun_tasks": ["train"], "latest_repair_id": 3}, "that of the latest repair: None"),
    ],
)
def test_a_repair_that_makes_no_sense_is_refused(
    user: User, asked: dict[str, Any], message: str
) -> None:
    run_id = user.submit("true\n")
    user.ended(run_id)
    with pytest.raises(InvalidParameterValue, match=message):
        user.client.jobs.repair_run(run_id, **asked)


def test_a_run_in_progress_is_not_repaired(user: User) -> None:
    run_id = user.submit("sleep 1000\n")
    with pytest.raises(BadRequest, match="is in progress"):
        user.client.jobs.repair_run(run_id, rerun_tasks=["train"])
    user.client.jobs.cancel_run(run_id)
    user.ended(run_id)


def test_the_run_of_a_notebook_is_exported_as_html(user: User) -> None:
    where = user.stage("notes", main__py="# Databricks notebook source\nprint(1 < 2)\n")
    task = {"task_key": "n", "notebook_task": {"notebook_path": f"{where}/main"}}
    run_id = user.post("runs/submit", {"tasks": [task]})["run_id"]
    user.ended(run_id)
    (view,) = user.client.jobs.export_run(user.run(run_id).tasks[0].run_id).views
    assert (view.name, view.type) == ("main", jobs.ViewType.NOTEBOOK)
    assert "print(1 &lt; 2)" in view.content
    other = user.submit("true\n")
    user.ended(other)
    with pytest.raises(InvalidParameterValue, match="not the run of a notebook"):
        user.client.jobs.export_run(other)
