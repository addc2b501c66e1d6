"""Jobs that are kept, through the SDK."""

import json
from dataclasses import replace
from typing import Any

import pytest
from databricks.sdk.errors import BadRequest, InvalidParameterValue, ResourceDoesNotExist
from databricks.sdk.service import jobs

from tests.testing.workspace.executing.conftest import User


def settings(user: User, text: str = "echo hi\n", **more: Any) -> dict[str, Any]:
    task = user.task(user.stage(command__sh=text))
    return {**user.payload(task), "name": "nightly", **more}


def test_a_job_comes_back_with_the_servers_defaults(user: User) -> None:
    schedule = {"quartz_cron_expression": "0 0 3 * * ?", "timezone_id": "UTC"}
    created = user.post("create", settings(user, schedule=schedule, tags={"a": "b"}))
    job = user.client.jobs.get(created["job_id"])
    assert job.creator_user_name == job.run_as_user_name
    kept = job.settings
    assert (kept.name, kept.max_concurrent_runs, kept.timeout_seconds) == ("nightly", 1, 0)
    assert kept.format is jobs.Format.MULTI_TASK
    assert kept.schedule.pause_status is jobs.PauseStatus.UNPAUSED
    assert kept.tags == {"a": "b"}
    (task,) = kept.tasks
    assert (task.run_if, task.timeout_seconds) == (jobs.RunIf.ALL_SUCCESS, 0)
    assert task.ai_runtime_task.deployments[0].compute.accelerator_count == 1


def test_what_was_read_can_be_written_back(user: User) -> None:
    job_id = user.post("create", settings(user))["job_id"]
    before = user.client.jobs.get(job_id)
    user.client.jobs.reset(job_id, before.settings)
    assert user.client.jobs.get(job_id).as_dict() == before.as_dict()


def test_reset_replaces_and_update_merges(user: User) -> None:
    job_id = user.post("create", settings(user, tags={"a": "b"}, description="long"))["job_id"]
    other = user.task(user.stage("two", command__sh="echo 2\n"), task_key="other")
    user.post("update", {
        "job_id": job_id, "new_settings": {"name": "renamed", "tasks": [other]},
        "fields_to_remove": ["description"],
    })  # fmt: skip
    kept = user.client.jobs.get(job_id).settings
    assert (kept.name, kept.description, kept.tags) == ("renamed", None, {"a": "b"})
    assert [task.task_key for task in kept.tasks] == ["train", "other"]
    user.post("reset", {"job_id": job_id, "new_settings": {"name": "bare"}})
    kept = user.client.jobs.get(job_id).settings
    assert (kept.name, kept.tags, kept.tasks or []) == ("bare", None, [])


def test_jobs_are_listed_newest_first_by_name_and_in_pages(user: User) -> None:
    for number in range(45):
        user.post("create", {"name": f"job-{number % 3}"})
    names = [job.settings.name for job in user.client.jobs.list(limit=10)]
    assert len(names) == 45
    assert names[:4] == ["job-2", "job-1", "job-0", "job-2"]
    assert len(list(user.client.jobs.list(name="JOB-1"))) == 15


def test_many_tasks_come_in_pages(user: User) -> None:
    where = user.stage(command__sh="echo\n")
    tasks = [user.task(where, task_key=f"t{number}") for number in range(250)]
    job_id = user.post("create", user.payload(*tasks, name="wide"))["job_id"]
    assert len(user.client.jobs.get(job_id).settings.tasks) == 250
    (listed,) = user.client.jobs.list(expand_tasks=True)
    assert len(listed.settings.tasks) == 250


def test_a_job_that_is_deleted_is_gone(user: User) -> None:
    job_id = user.post("create", {"name": "short"})["job_id"]
    user.client.jobs.delete(job_id)
    with pytest.raises(ResourceDoesNotExist, match=f"Job {job_id} does not exist"):
        user.client.jobs.get(job_id)


def test_a_run_of_a_job(user: User) -> None:
    job_id = user.post("create", settings(user))["job_id"]
    first = user.post("run-now", {"job_id": job_id, "idempotency_token": "once"})
    again = user.post("run-now", {"job_id": job_id, "idempotency_token": "once"})
    assert first["run_id"] == again["run_id"]
    run = user.ended(first["run_id"])
    assert (run.job_id, run.number_in_job, run.run_name) == (job_id, 1, "nightly")
    assert run.run_type is jobs.RunType.JOB_RUN
    assert run.state.result_state.value == "SUCCESS"
    listed = user.client.jobs.list_runs(job_id=job_id, expand_tasks=True)
    assert [(one.run_id, one.tasks[0].task_key) for one in listed] == [(run.run_id, "train")]


def test_one_run_too_many_is_skipped_or_waits(user: User) -> None:
    job_id = user.post("create", settings(user, "echo up; sleep 10000\n"))["job_id"]
    first = user.post("run-now", {"job_id": job_id})["run_id"]
    user.says(first, "up")
    skipped = user.run(user.post("run-now", {"job_id": job_id})["run_id"])
    assert skipped.state.life_cycle_state.value == "SKIPPED"
    assert skipped.state.result_state.value == "MAXIMUM_CONCURRENT_RUNS_REACHED"
    user.post("update", {"job_id": job_id, "new_settings": {"queue": {"enabled": True}}})
    queued = user.post("run-now", {"job_id": job_id})["run_id"]
    given_up = user.post("run-now", {"job_id": job_id})["run_id"]
    run = user.run(queued)
    assert run.state.life_cycle_state.value == "QUEUED"
    assert run.status.queue_details.code.value == "MAX_CONCURRENT_RUNS_REACHED"
    user.client.jobs.cancel_run(given_up)
    assert user.ended(given_up).state.result_state.value == "CANCELED"
    user.client.jobs.cancel_run(first)
    user.says(queued, "up")
    user.client.jobs.cancel_all_runs(job_id=job_id)
    assert user.ended(queued).state.result_state.value == "CANCELED"
    assert not list(user.client.jobs.list_runs(job_id=job_id, active_only=True))


def test_an_active_run_is_not_deleted(user: User) -> None:
    run_id = user.submit("echo up; sleep 10000\n")
    with pytest.raises(BadRequest, match="is active"):
        user.client.jobs.delete_run(run_id)
    user.client.jobs.cancel_run(run_id)
    user.ended(run_id)
    user.client.jobs.delete_run(run_id)
    with pytest.raises(ResourceDoesNotExist):
        user.run(run_id)


def test_runs_are_listed_in_pages(user: User) -> None:
    task = user.task(f"{user.home}/nowhere")
    ids = [user.post("runs/submit", user.payload(task))["run_id"] for _ in range(7)]
    for run_id in ids:
        user.ended(run_id)
    listed = user.client.jobs.list_runs(limit=3, completed_only=True)
    assert [run.run_id for run in listed] == ids[::-1]
    with pytest.raises(InvalidParameterValue, match="limit"):
        list(user.client.jobs.list_runs(limit=100))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": []}, "at least one task"),
        ({"idempotency_token": "x" * 65}, "at most 64"),
        ({"environments": []}, "Environment 'default' is not defined"),
        ({"spec": {"environment_version": "5", "base_environment": "b"}}, "Only one of"),
        ({"spec": {"environment_version": "99"}}, "version 99 is not supported"),
        (
            {"spec": {"base_environment": "workspace-base-environments/databricks_ai_v99"}},
            "databricks_ai_v99 does not exist",
        ),
        ({"budget_policy_id": "notauuid"}, "not a valid policy id"),
        ({"pool": "", "priority": "HUGE"}, "Unknown value 'HUGE'"),
        ({"pool": "nope"}, "Provisioned capacity nope does not exist"),
        ({"spec": {"base_environment": "/Workspace/x.yaml"}}, "databricks-ai base environment"),
        ({"deployments": []}, "Exactly one deployment"),
        ({"deployments": 2}, "Exactly one deployment"),
        ({"directory": "/Shared/team"}, "must start with /Workspace"),
        ({"directory": "team"}, "must start with /Workspace"),
        ({"kind": "GPU_2xA10"}, "Unsupported accelerator type"),
        ({"kind": "GPU_8xB300", "count": 8}, "not available"),
        ({"count": 0}, "at least 1"),
        ({"count": 1025}, "at most 1024"),
        ({"kind": "GPU_8xH100", "count": 12}, "multiple of 8"),
        ({"task_key": "a b"}, "Invalid task key"),
        ({"environment_key": None}, "An environment is required"),
        ({"timeout_seconds": -1}, "timeout_seconds"),
        ({"depends_on": [{"task_key": "nobody"}]}, "depends on"),
        ({"notebook_task": {"notebook_path": "/x"}}, "Exactly one task type"),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, dict) else "",
)
def test_what_makes_no_sense_is_refused(user: User, change: dict[str, Any], message: str) -> None:
    compute = {name: change.pop(name) for name in ("kind", "count") if name in change}
    task = user.task("/Workspace/Users/x", **compute)
    payload = user.payload(task)
    asked = task["ai_runtime_task"]
    if "pool" in change:
        asked["deployments"][0]["compute"]["provisioned_capacity_id"] = change.pop("pool")
        asked |= {"priority_class": change.pop("priority")} if "priority" in change else {}
    if "directory" in change:
        task["ai_runtime_task"]["mlflow_experiment_directory"] = change.pop("directory")
    deployments = change.pop("deployments", None)
    if deployments is not None:
        asked = task["ai_runtime_task"]
        asked["deployments"] = asked["deployments"] * deployments if deployments else []
    if "spec" in change:
        payload["environments"][0]["spec"] = change.pop("spec")
    for name, value in change.items():
        of_run = name in (
            "tasks", "idempotency_token", "environments", "timeout_seconds", "budget_policy_id",
        )  # fmt: skip
        (payload if of_run else task)[name] = value
    with pytest.raises(InvalidParameterValue, match=message):
        user.post("runs/submit", payload)
    assert not list(user.client.jobs.list_runs())


@pytest.mark.parametrize("change", [
    {"spec": {"environment_version": "99"}},
    {"spec": {"base_environment": "workspace-base-environments/databricks_ai_v99"}},
    {"compute": {"provisioned_capacity_id": "nope"}},
    {"compute": {"accelerator_type": "GPU_8xB300", "accelerator_count": 8}},
    {"compute": {"accelerator_type": "GPU_9"}},
    {"ai": {"unity_catalog_image_path": "trainer"}},
    {"ai": {"priority_class": "HUGE"}},
    {"ai": {"mlflow_experiment_directory": "/Shared/team"}},
], ids=str)  # fmt: skip
def test_jobs_runs_and_validation_refuse_the_same(user: User, change: dict[str, Any]) -> None:
    task = user.task("/Workspace/Users/x", ai=change.get("ai", {}))
    task["ai_runtime_task"]["deployments"][0]["compute"] |= change.get("compute", {})
    payload = user.payload(task, name="refused")
    payload["environments"][0]["spec"] = change.get("spec", {"environment_version": "5"})
    whole = {"new_settings": payload, "job_id": user.post("create", {"name": "kept"})["job_id"]}

    refused = []
    for path, body in (("runs/submit", payload), ("create", payload), ("reset", whole)):
        with pytest.raises(InvalidParameterValue) as caught:
            user.post(path, body)
        refused.append(str(caught.value))
    answer = user.client.api_client.do(
        "POST", "/api/2.0/ai-training/config:validate",
        body={"task": task["ai_runtime_task"], "environment": payload["environments"][0]["spec"]},
    )  # fmt: skip

    assert len(set(refused)) == 1
    said = answer["errors"][0]
    message, _, path = refused[0].removesuffix(")").rpartition(" (")
    assert said["message"] == message
    field = path.removeprefix("tasks[0].ai_runtime_task.")
    assert said["path"] == field.replace("environments[0].spec", "environment")
    assert [item.settings.name for item in user.client.jobs.list()] == ["kept"]


def test_a_job_is_not_launched_once_what_it_asks_for_is_gone(
    user: User, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = user.post("create", user.payload(user.task("/Workspace/Users/x"), name="kept"))
    monkeypatch.setattr(server, "offers", replace(server.offers, environment_versions=("6",)))

    with pytest.raises(InvalidParameterValue, match="version 5 is not supported"):
        user.post("run-now", job_id)


def test_an_image_needs_an_environment_as_everything_else(user: User) -> None:
    folder = user.stage(command__sh="true\n")
    task = user.task(folder, ai={"unity_catalog_image_path": "main.ml.trainer:3"})
    payload = user.payload(task)
    assert user.ended(user.post("runs/submit", payload)["run_id"]).state.result_state
    del task["environment_key"], payload["environments"]
    with pytest.raises(InvalidParameterValue, match="An environment is required"):
        user.post("runs/submit", payload)


def test_what_nobody_executes_is_said_so(user: User) -> None:
    task = {"task_key": "t", "sql_task": {"warehouse_id": "w"}}
    with pytest.raises(Exception, match="this emulator executes ai_runtime_task"):
        user.post("runs/submit", user.payload(task))
    job_id = user.post("create", user.payload(task, name="kept"))["job_id"]
    assert user.client.jobs.get(job_id).settings.tasks[0].sql_task.warehouse_id == "w"


def test_who_may_see_a_run_comes_with_it(user: User) -> None:
    listed = [{"group_name": "users", "permission_level": "CAN_VIEW"}]
    payload = user.payload(user.task(user.stage(command__sh="true\n")), access_control_list=listed)
    run = user.ended(user.post("runs/submit", payload)["run_id"])
    found = user.client.permissions.get("jobs", str(run.job_id)).access_control_list
    assert {one.group_name or one.user_name for one in found} == {"users", run.creator_user_name}


def test_a_run_says_when_it_began_and_ended(user: User) -> None:
    run_id = user.submit("true\n")
    run = user.ended(run_id)
    assert run.start_time <= run.tasks[0].start_time <= run.end_time
    assert run.run_duration == run.end_time - run.start_time
    history = user.client.jobs.get_run(run_id, include_history=True).repair_history
    assert history[0].task_run_ids == [run.tasks[0].run_id]
    assert f"#job/{run.job_id}/run/{run_id}" in run.run_page_url


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"schedule": {"quartz_cron_expression": "0 0 * * *", "timezone_id": "UTC"}}, "quartz"),
        ({"schedule": {"quartz_cron_expression": "0 0 25 * * ?", "timezone_id": "UTC"}}, "quartz"),
        ({"schedule": {"quartz_cron_expression": "0 0 2 * * *", "timezone_id": "UTC"}}, "quartz"),
        ({"schedule": {"quartz_cron_expression": "0 0 2 * * ?", "timezone_id": "CEST"}}, "zone_id"),
        ({"trigger": {"pause_status": "LATER"}}, "trigger.pause_status"),
        (
            {
                "trigger": {"periodic": {"interval": 1, "unit": "HOURS"}},
                "schedule": {"quartz_cron_expression": "0 0 2 * * ?", "timezone_id": "UTC"},
            },
            "trigger",
        ),
    ],
)
def test_what_never_starts_is_refused(user: User, more: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidParameterValue, match=path):
        user.client.api_client.do("POST", "/api/2.2/jobs/create", body=settings(user, **more))


@pytest.mark.parametrize(
    "cron", ["0 0 2 * * ?", "0 */15 8-18 ? * MON-FRI", "0 0 0 L * ? 2030", "0 0 12 ? * 2#1"]
)
def test_what_quartz_knows_is_taken(user: User, cron: str) -> None:
    schedule = {"quartz_cron_expression": cron, "timezone_id": "Europe/Berlin"}
    assert user.post("create", settings(user, schedule=schedule))["job_id"]
