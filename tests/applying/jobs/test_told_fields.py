"""Plans say the settings of a job as the YAML does; the public JSON has those of the platform."""

from typing import Any

import pytest

from sgpu_decl.config.job import Job
from sgpu_decl.model.plan import Action
from sgpu_decl.views.plan_job_fields import in_words_of_yaml
from tests.applying.jobs.conftest import JOB, NOTEBOOK, Shop

EVERY = "trigger: {every: 6h}"
VIEW = "permissions: [{level: view, group: users}]"


def told(shop: Shop) -> dict[str, tuple[Any, Any]]:
    (change,) = in_words_of_yaml(shop.plan()).changes
    return {field.path: (field.before, field.after) for field in change.fields}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("schedule: 0 0 2 * * ?", {"schedule": "0 0 2 * * ?", "paused": False}),
        ("schedule: 0 0 2 * * ?\n    paused: true", {"paused": True}),
        ("schedule: 0 0 2 * * ?\n    timezone: Europe/Berlin", {"timezone": "Europe/Berlin"}),
        (EVERY, {"trigger.every": "6h"}),
        ("trigger: {every: 90m}\n    on_overlap: queue", {"on_overlap": "queue"}),
        ("trigger: {every: 36h}", {"trigger.every": "1d12h", "on_overlap": "skip"}),
        ("trigger: {file_arrival: /Volumes/main/ml/in/}", {
            "trigger.file_arrival": "/Volumes/main/ml/in/"}),
        ("trigger: {table_update: [main.ml.a]}", {"trigger.table_update": ["main.ml.a"]}),
        ("trigger: {file_arrival: {url: /Volumes/main/ml/in/, min_time_between: 5m}}", {
            "trigger.file_arrival.min_time_between": "5m"}),
        ("name: a title\n    description: what for\n    timeout: 90m", {
            "name": "a title", "description": "what for", "timeout": "90m"}),
        ("tags: {a: b, 'c.d': e}", {"tags.a": "b"}),
        ("permissions: [{level: view, group: users}, {level: manage, user: a@b.c}]", {
            "permissions.group.users": "view", 'permissions.user."a@b.c"': "manage"}),
        ("on_finish: {success: [a@b.c], failure: [d@e.f]}", {
            "on_finish.success": ["a@b.c"], "on_finish.failure": ["d@e.f"]}),
        ("budget: 0e9bbd6f-2cb4-4c8b-8c0b-1f2ad1b0c7a1", {
            "budget": "0e9bbd6f-2cb4-4c8b-8c0b-1f2ad1b0c7a1"}),
        ("lifecycle: {ignore_changes: [tags]}", {"lifecycle.ignore_changes": ["tags"]}),
    ],
)  # fmt: skip
def test_a_new_job_is_told_in_the_words_of_the_file(
    shop: Shop, fields: str, expected: dict[str, Any]
) -> None:
    shop.write(f"mode: production\njobs:\n  j:\n    {NOTEBOOK}\n    {fields}\n")
    said = told(shop)
    assert {path: after for path, (_, after) in said.items() if path in expected} == expected
    assert {path.partition(".")[0] for path in said} <= Job.model_fields.keys()


@pytest.mark.parametrize(
    ("notebook", "expected"),
    [
        ("type: gpu_8xh100", {"notebook.type": "GPU_8xH100"}),
        ("type: A10, base: gpu-4", {"notebook.type": "A10", "notebook.base": "gpu-4"}),
        ("base: gpu-4, dependencies: [einops==0.8.1], parameters: {day: today}, retries: 2", {
            "notebook.base": "gpu-4", "notebook.dependencies": ["einops==0.8.1"],
            "notebook.parameters.day": "today", "notebook.retries": 2}),
    ],
)  # fmt: skip
def test_a_notebook_is_told_in_the_words_of_the_file(
    shop: Shop, notebook: str, expected: dict[str, Any]
) -> None:
    shop.write(f"jobs:\n  j:\n    notebook: {{path: /Workspace/x, {notebook}}}\n")
    said = told(shop)
    assert {path: after for path, (_, after) in said.items() if path in expected} == expected
    assert {path.partition(".")[0] for path in said} <= Job.model_fields.keys()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (EVERY, "trigger: {every: 12h}", {"trigger.every": ("6h", "12h")}),
        (EVERY, "trigger: {every: 6d}", {"trigger.every": ("6h", "6d")}),
        ("timeout: 1h", "timeout: 90m", {"timeout": ("1h", "90m")}),
        ("timeout: 1h", "tags: {}", {"timeout": ("1h", None)}),
        ("on_overlap: queue", "on_overlap: skip", {"on_overlap": ("queue", "skip")}),
        (EVERY, "schedule: 0 0 2 * * ?\n    timezone: UTC", {
            "trigger.every": ("6h", None), "schedule": (None, "0 0 2 * * ?"),
            "timezone": (None, "UTC")}),
        (VIEW, VIEW.replace("view", "run"), {"permissions.group.users": ("view", "run")}),
    ],
)  # fmt: skip
def test_a_changed_job_is_told_in_the_words_of_the_file(
    shop: Shop, before: str, after: str, expected: dict[str, Any]
) -> None:
    text = f"mode: production\njobs:\n  j:\n    {NOTEBOOK}\n    "
    shop.write(f"{text}{before}\n")
    shop.apply()
    shop.write(f"{text}{after}\n")
    assert told(shop) == expected


def test_an_edit_without_a_field_keeps_the_path_of_the_platform(shop: Shop) -> None:
    shop.apply()
    shop.edit(max_concurrent_runs=7, timeout_seconds=60)
    assert told(shop) == {"max_concurrent_runs": (7, 1), "timeout": ("1m", None)}
    (check,) = [one for one in shop.plan().checks if one.code == "live_drifted"]
    assert "`max_concurrent_runs`, `timeout`" in check.summary


@pytest.mark.parametrize("ignored", ["paused", "schedule.pause_status", "schedule"])
def test_a_field_is_ignored_by_its_name_in_the_file(shop: Shop, ignored: str) -> None:
    shop.write(JOB + f"    lifecycle: {{ignore_changes: [{ignored}, timeout, on_overlap]}}\n")
    shop.apply()
    _, settings = shop.job()
    schedule = {**settings["schedule"], "pause_status": "PAUSED"}
    shop.edit(schedule=schedule, timeout_seconds=60, queue={"enabled": True})
    (change,) = shop.plan().changes
    assert change.action is Action.NO_OP


def test_the_json_has_the_settings_of_the_platform(shop: Shop) -> None:
    (change,) = shop.plan().changes
    assert "schedule.quartz_cron_expression" in {field.path for field in change.fields}
