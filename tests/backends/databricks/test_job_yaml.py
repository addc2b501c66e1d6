"""A job of a workspace is written as YAML, and that means the same job."""

from typing import Any

import pytest
import yaml

from sgpu_decl.backends.databricks.jobs.documents import document_of, settings_of
from sgpu_decl.backends.databricks.jobs.job_fields import job_field
from sgpu_decl.backends.databricks.jobs.job_settings import describe
from sgpu_decl.backends.databricks.jobs.job_yaml import files_of, name_of, written_job
from sgpu_decl.backends.databricks.jobs.lakeflow_rules import RULES
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.target import Mode
from sgpu_decl.planner.jobs.ignored_settings import without_defaults
from tests.config.conftest import outcome

NIGHTLY: dict[str, Any] = {
    "name": "the nightly job",
    "description": "what for",
    "format": "MULTI_TASK",
    "max_concurrent_runs": 2,
    "queue": {"enabled": True},
    "timeout_seconds": 7200,
    "tags": {"team": "ml"},
    "run_as": {"service_principal_name": "sp"},
    "parameters": [{"name": "day", "default": "today"}],
    "health": {"rules": [{"metric": "RUN_DURATION_SECONDS", "op": "GREATER_THAN", "value": 10800}]},
    "email_notifications": {"on_failure": ["a@b.c"], "on_start": ["d@e.f"]},
    "webhook_notifications": {"on_failure": [{"id": "hook"}]},
    "environments": [
        {"environment_key": "e", "spec": {"environment_version": "4", "dependencies": ["einops"]}}
    ],
    "tasks": [
        {"task_key": "ask", "condition_task": {"op": "EQUAL_TO", "left": "1", "right": "2"}},
        {
            "task_key": "wheel",
            "python_wheel_task": {"package_name": "p", "entry_point": "e"},
            "environment_key": "e",
            "depends_on": [{"task_key": "ask", "outcome": "true"}],
            "max_retries": 2,
        },
        {
            "task_key": "report",
            "notebook_task": {
                "notebook_path": "/Shared/report",
                "base_parameters": {"k": "v"},
                "source": "WORKSPACE",
            },
            "depends_on": [{"task_key": "wheel"}],
            "run_if": "ALL_DONE",
            "timeout_seconds": 60,
        },
        {
            "task_key": "query",
            "sql_task": {"warehouse_id": "w", "query": {"query_id": "q"}},
            "depends_on": [{"task_key": "report"}, {"task_key": "wheel"}],
        },
    ],
}
STARTS: list[dict[str, Any]] = [
    {},
    {"schedule": {"quartz_cron_expression": "0 0 2 * * ?", "timezone_id": "Europe/Berlin",
                  "pause_status": "PAUSED"}},
    {"trigger": {"periodic": {"interval": 6, "unit": "HOURS"}, "pause_status": "UNPAUSED"}},
    {"trigger": {"file_arrival": {"url": "/Volumes/a/b/c/",
                                  "min_time_between_triggers_seconds": 300},
                 "pause_status": "UNPAUSED"}},
    {"trigger": {"file_arrival": {"url": "/Volumes/a/b/c/"}, "pause_status": "PAUSED"}},
    {"trigger": {"table_update": {"table_names": ["a.b.c"], "condition": "ALL_UPDATED"},
                 "pause_status": "UNPAUSED"}},
]  # fmt: skip


def meant(block: Any) -> dict[str, Any]:
    """The document of a job that YAML declares."""
    loaded, found = outcome(yaml.safe_dump({"jobs": {"nightly": dict(block)}}), "sgpu.yml")
    assert loaded is not None, found
    (job,) = loaded.jobs
    return describe(job.config, "nightly", Mode.PRODUCTION, "me", {}).document


@pytest.mark.parametrize("start", STARTS)
def test_what_is_written_means_the_same_job(start: dict[str, Any]) -> None:
    document = document_of({**NIGHTLY, **start})
    written = written_job(document, "nightly")
    assert written.lost == ()
    again = Spec.of(meant(written.block))
    live = without_defaults(Spec.of(document), RULES, again)
    expected: dict[str, Any] = dict(live.fields)
    wheel = expected["tasks"]["wheel"]
    assert wheel.pop("environment_key") == "e"
    wheel["environment_key"] = "wheel"
    expected["environments"] = {"wheel": expected["environments"]["e"]}
    assert again.fields == expected


def test_a_gpu_task_in_the_words_of_the_platform_means_the_same_task() -> None:
    deployment = {"command_path": "/x/command.sh", "compute": {"accelerator_count": 1}}
    task = {"experiment": "e", "deployments": [deployment]}
    sent = {"name": "nightly", "tasks": [{"task_key": "train", "ai_runtime_task": task}]}
    document = document_of(sent)
    again = meant(written_job(document, "nightly").block)
    assert again["tasks"]["train"]["ai_runtime_task"] == {**task, "deployments": {"0": deployment}}
    assert settings_of(again, "token")["tasks"] == sent["tasks"]


def test_a_task_that_somebody_added_is_told_at_its_own_path() -> None:
    path = "tasks.extra.notebook_task.notebook_path"
    settings = {"tasks.train.kind": "run", path: "/Shared/extra"}
    assert job_field(path, settings).path == path


def test_what_the_yaml_has_no_field_for_is_named() -> None:
    more = {"job_clusters": [{"job_cluster_key": "c", "new_cluster": {"num_workers": 1}}]}
    written = written_job(document_of({**NIGHTLY, **more}), "nightly")
    assert written.lost == ("job_clusters.c.new_cluster.num_workers",)


def test_files_that_were_copied_are_named_beside_the_yaml() -> None:
    script = {"python_file": "/Shared/prepare.py", "parameters": ["{{job.parameters.day}}"]}
    elsewhere = {**script, "source": "GIT"}
    tasks = [
        {"task_key": key, "spark_python_task": one, "environment_key": "e", "timeout_seconds": 90}
        for key, one in (("prepare", script), ("git", elsewhere))
    ]
    document = document_of({**NIGHTLY, "tasks": [*NIGHTLY["tasks"], *tasks]})
    assert list(files_of(document)) == ["/Shared/report", "/Shared/prepare.py"]
    copied = {"/Shared/report": "nightly/report.ipynb", "/Shared/prepare.py": "nightly/prepare.py"}
    block: Any = written_job(document, "nightly", copied).block
    written = block["tasks"]
    assert written["report"]["notebook"]["path"] == "nightly/report.ipynb"
    assert written["prepare"] == {
        "python": "nightly/prepare.py",
        "args": ["{{job.parameters.day}}"],
        "base": "gpu-4",
        "dependencies": ["einops"],
        "timeout": "1m30s",
    }
    assert written["git"]["task"]["spark_python_task"] == elsewhere


@pytest.mark.parametrize(
    ("path", "content", "name"),
    [
        ("/Shared/report", b"# Databricks notebook source\n1", "report.py"),
        ("/Shared/report", b'{"cells": []}', "report.ipynb"),
        ("/Shared/query", b"-- Databricks notebook source\nselect 1", None),
        ("/Shared/prepare.py", b"print(1)", "prepare.py"),
    ],
)
def test_what_a_file_of_the_workspace_is_called(
    path: str, content: bytes, name: str | None
) -> None:
    assert name_of(path, content) == name
