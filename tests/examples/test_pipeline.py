"""The pipeline, against a workspace that runs here."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from databricks.sdk import WorkspaceClient

from sgpu_decl.distribution import shipped_folder


@pytest.fixture
def pipeline(example: Callable[[str], Any], workspace: Any) -> Any:
    return example("pipeline")


def test_it_fits_its_schema(example: Callable[[str], Any]) -> None:
    text = (example("pipeline").source / "sgpu.yml").read_text()
    schema = json.loads((shipped_folder("schemas") / "project.v1.schema.json").read_text())
    jsonschema.validate(yaml.safe_load(text), schema)


def test_it_plans_as_its_golden_file_says(pipeline: Any) -> None:
    plan = pipeline.sgpu("plan", "-t", "dev")
    assert plan.returncode == 0, plan.stderr
    pipeline.golden("plan.txt", re.sub(r"user_[0-9a-f]{8}", "user", plan.stdout))


@pytest.mark.expensive
def test_it_is_started_with_a_parameter_and_an_edit_is_told(pipeline: Any) -> None:
    applied = pipeline.sgpu("apply", "-y", "-t", "prod")
    assert applied.returncode == 0, applied.stderr
    assert pipeline.sgpu("plan", "--detailed-exitcode", "-t", "prod").returncode == 0
    done = pipeline.sgpu("start", "nightly", "-t", "prod", "--param", "day=today", "--wait")
    assert done.returncode == 0, done.stderr
    assert "[prepare] 1000 samples of today" in done.stdout
    assert "[train] [rank 1] 500 samples" in done.stdout
    assert '[train] rank 1 returned {"samples": 500}' in done.stdout
    assert "[report] today: y = 3.0 x + 1.0" in done.stdout

    (job,) = WorkspaceClient().jobs.list(expand_tasks=True)
    settings = job.as_dict()["settings"]
    for task in settings["tasks"]:
        if task["task_key"] == "report":
            task["depends_on"] = [{"task_key": "train"}]
    client = WorkspaceClient().api_client
    body = {"job_id": job.job_id, "new_settings": {"tasks": settings["tasks"]}}
    client.do("POST", "/api/2.2/jobs/update", body=body)
    plan = pipeline.sgpu("plan", "--detailed-exitcode", "-t", "prod")
    assert plan.returncode == 2
    assert "tasks.report.after  -1 +1 elements" in plan.stdout
    assert pipeline.sgpu("apply", "-y", "-t", "prod").returncode == 0
    assert pipeline.sgpu("plan", "--detailed-exitcode", "-t", "prod").returncode == 0


def test_it_runs_on_this_machine_without_a_workspace(
    example: Callable[[str], Any], tmp_path: Path
) -> None:
    pipeline, data = example("pipeline"), ("--var", f"data={tmp_path / 'shared'}")
    applied = pipeline.sgpu("apply", "-y", "-t", "here", *data)
    assert applied.returncode == 0, applied.stderr
    assert "keeps no `schedule`, `health` and `notify` of a job" in applied.stderr + applied.stdout
    assert pipeline.sgpu("plan", "--detailed-exitcode", "-t", "here", *data).returncode == 0
    done = pipeline.sgpu("start", "nightly", "-t", "here", "--param", "day=today", "--wait")
    assert done.returncode == 0, done.stderr
    assert '[train] rank 1 returned {"samples": 500}' in done.stdout
    assert "[report] today: y = 3.0 x + 1.0" in done.stdout
    assert pipeline.sgpu("destroy", "-y", "-t", "here").returncode == 0
