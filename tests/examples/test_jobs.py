"""The example with jobs, against a workspace that runs here: plans read what is there."""

import json
import re
import time
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
import yaml

from sgpu_decl.distribution import shipped_folder


@pytest.fixture
def jobs(example: Callable[[str], Any], workspace: Any) -> Any:
    """The example, in a workspace that has its notebooks."""
    from databricks.sdk import WorkspaceClient

    client = WorkspaceClient()
    for name in ("evaluate", "report"):
        notebook = {"path": f"/Workspace/Shared/{name}", "language": "PYTHON", "content": "MQ=="}
        client.api_client.do("POST", "/api/2.0/workspace/import", body=notebook)
    return example("jobs")


def test_it_fits_its_schema(example: Callable[[str], Any]) -> None:
    first, text = (example("jobs").source / "sgpu.yml").read_text().split("\n", 1)
    assert first.endswith("schemas/project.v1.schema.json")
    schema = json.loads((shipped_folder("schemas") / "project.v1.schema.json").read_text())
    jsonschema.validate(yaml.safe_load(text), schema)


def test_it_plans_as_its_golden_files_say(jobs: Any) -> None:
    jobs.golden("plan.txt", _anybody(jobs.sgpu("plan", "-t", "dev").stdout))
    plan = jobs.data("plan", "-t", "dev")
    for changing in ("created_at", "lineage", "tool_version"):
        assert plan.pop(changing)
    jobs.golden("plan.json", _anybody(json.dumps(plan, indent=2, sort_keys=True) + "\n"))


@pytest.mark.expensive
def test_it_applies_is_up_to_date_and_goes(jobs: Any) -> None:
    applied = jobs.sgpu("apply", "-y", "-t", "prod")
    assert applied.returncode == 0, applied.stderr
    assert jobs.sgpu("plan", "--detailed-exitcode", "-t", "prod").returncode == 0
    told = {item["name"]: item["state"] for item in jobs.data("status", "-t", "prod")["jobs"]}
    assert told == {"evaluate": "scheduled", "nightly": "scheduled", "report": "scheduled"}
    assert _launched(jobs) == "succeeded"
    shown = jobs.sgpu("show", "job.report", "-t", "prod")
    assert "0 30 6 ? * MON-FRI Europe/Berlin" in shown.stdout
    adopted = jobs.sgpu("adopt", "job.report", "1", "-t", "prod")
    assert (adopted.returncode, "already" in adopted.stderr) == (1, True)
    assert jobs.sgpu("destroy", "-y", "-t", "prod").returncode == 0
    assert jobs.data("status", "-t", "prod")["runs"] == []


def _launched(jobs: Any) -> str:
    """How the job of a run goes, as our own status tells it, once it was started there."""
    from databricks.sdk import WorkspaceClient

    def nightly() -> Any:
        (found,) = [
            item for item in jobs.data("status", "-t", "prod")["jobs"] if item["name"] == "nightly"
        ]
        return found

    client = WorkspaceClient()
    run_id = client.jobs.run_now(int(nightly()["id"])).run_id
    while client.jobs.get_run(run_id).state.result_state is None:
        time.sleep(0.1)
    return str(nightly()["last"]["state"])


def _anybody(plan: str) -> str:
    """The plan as if it was anybody's: a token's user has a name of its own."""
    return re.sub(r"user_[0-9a-f]{8}", "user", plan)
