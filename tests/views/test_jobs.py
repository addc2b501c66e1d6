"""How people see jobs: pictures as golden files."""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import jsonschema

from sgpu_decl.backends.databricks.jobs.lakeflow_rules import RULES
from sgpu_decl.config.schemas import documents
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.event import ApplyEvent, Step
from sgpu_decl.model.job import DesiredJob, JobHandle, JobLaunch, JobStart, JobView, ObservedJob
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.plan import Plan
from sgpu_decl.model.state import Resource, State
from sgpu_decl.planner.plan_inputs import PlanInputs, PlanRequest
from sgpu_decl.planner.plan_json import plan_to_json, saved_from_json, saved_text
from sgpu_decl.planner.planner import plan
from sgpu_decl.views import plan_html, plan_markdown, plan_text
from sgpu_decl.views.jobs_text import job_details, job_table
from sgpu_decl.views.progress_text import event_line

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
HOST = "https://work.example.com"
Golden = Callable[[str, str], None]

SETTINGS: dict[str, Any] = {
    "name": "nightly",
    "max_concurrent_runs": 1,
    "queue": {"enabled": False},
    "schedule": {
        "quartz_cron_expression": "0 30 2 * * ?",
        "timezone_id": "Europe/Berlin",
        "pause_status": "UNPAUSED",
    },
    "tasks": {"nightly": {"notebook_task": {"notebook_path": "/Workspace/Shared/report"}}},
    "tags": {"team": "ml"},
}


class AllAtLine(Mapping[str, Place]):
    def __init__(self, line: int) -> None:
        self._place = Place("sgpu.yml", line, 5)

    def __getitem__(self, path: str) -> Place:
        return self._place

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def wanted(name: str, line: int, **settings: Any) -> DesiredJob:
    spec = {**SETTINGS, "name": name, **settings, "backend": {"kind": "databricks"}}
    return DesiredJob(
        address=Address(Kind.JOB, name),
        backend="databricks",
        owner="sgpu.yml",
        spec=Spec.of(spec),
        title=name,
        rules=RULES,
        places=AllAtLine(line),
    )


def recorded(name: str, **settings: Any) -> Resource:
    handle = JobHandle(id=str(len(name)), workspace=HOST, token="t")
    return Resource(
        address=Address(Kind.JOB, name),
        backend="databricks",
        owner="sgpu.yml",
        spec=wanted(name, 1, **settings).spec,
        last=None,
        numbered=1,
        remote=str(handle),
    )


def seen(name: str, **settings: Any) -> ObservedJob:
    document = {**SETTINGS, "name": name, "format": "MULTI_TASK", **settings}
    return ObservedJob(workspace=HOST, document=Spec.of(document))


def a_plan() -> Plan:
    jobs = {
        "changed": (wanted("changed", 9, tags={"team": "web"}), seen("changed")),
        "deleted": (wanted("deleted", 12), ObservedJob(workspace=HOST)),
        "edited": (
            wanted("edited", 15),
            seen("edited", max_concurrent_runs=3, tags={"team": "ml", "x": "y"}),
        ),
        "moved": (wanted("moved", 18), ObservedJob(workspace="https://other.example.com")),
        "new": (wanted("new", 21), ObservedJob(workspace=HOST, namesakes={"77": None})),
        "same": (wanted("same", 24), seen("same")),
    }
    names = [name for name in (*jobs, "unwanted") if name != "new"]
    resources = {Address(Kind.JOB, name): recorded(name) for name in names}
    inputs = PlanInputs(
        state=State(lineage="l", serial=4, resources=resources),
        observed={},
        request=PlanRequest(project="/p", owner="sgpu.yml"),
        now=NOW,
        tool_version="0.1.0",
        config_digest="sha256:0",
        capabilities={},
        jobs=tuple(job for job, _ in jobs.values()),
        seen_jobs={job.address: item for job, item in jobs.values()},
    )
    return plan(inputs)


def test_plans_of_jobs_are_as_drawn(golden: Golden) -> None:
    made = a_plan()
    golden("plan_jobs.txt", plan_text.render(made, now=NOW))
    golden("plan_jobs.md", "".join(plan_markdown.render(made, now=NOW)))
    golden("plan_jobs.html", plan_html.render(made, now=NOW) + "\n")
    value = plan_to_json(made)
    jsonschema.validate(value, documents()["plan"])
    golden("plan_jobs.json", json.dumps(value, indent=2) + "\n")


def test_a_saved_plan_of_jobs_comes_back_whole() -> None:
    made = a_plan()
    back, found = saved_from_json(saved_text(made))
    assert found == ()
    assert back == made


def job(name: str, state: str, start: JobStart | None = None, **fields: Any) -> JobView:
    values = {
        "address": Address(Kind.JOB, name), "backend": "databricks", "owner": "", "title": name,
        "state": state, "handle": None, "start": start or JobStart(), "spec": {},
        "url": f"{HOST}/jobs/1", **fields,
    }  # fmt: skip
    return JobView(**values)


LAST = JobLaunch(
    id="7",
    state=AttemptState.FAILED,
    started_at=datetime(2026, 1, 30, 2, tzinfo=UTC),
    ended_at=datetime(2026, 1, 30, 2, 10, tzinfo=UTC),
    url=f"{HOST}/jobs/1/runs/7",
)


def test_the_status_of_jobs_is_as_drawn(golden: Golden) -> None:
    def every(interval: int) -> JobStart:
        return JobStart(trigger={"periodic": {"interval": interval, "unit": "HOURS"}})

    files = JobStart(trigger={"file_arrival": {"url": "/Volumes/a/b/c/"}})
    tables = JobStart(trigger={"table_update": {"table_names": ["a.b.c", "a.b.d"]}})
    nightly = JobStart(schedule="0 30 2 * * ?", timezone="UTC")
    jobs = [
        job("nightly", "scheduled", nightly, last=LAST, live={"name": "nightly"}),
        job("hourly", "paused", every(1)),
        job("by-hand", "manual"),
        job("gone", "missing", owner="sgpu.yml", spec={"name": "gone"}),
        job("dark", "unknown", error="`work.example.com` does not answer"),
        job("often", "paused", every(6)),
        job("fed", "scheduled", files),
        job("late", "scheduled", tables),
    ]
    whole, went = (job_details(jobs[at], now=NOW) for at in (3, 0))
    golden("jobs_status.txt", f"{job_table(jobs, now=NOW)}\n\n{whole}\n\n{went}\n")


def test_what_is_done_to_a_job_is_a_line() -> None:
    address = Address(Kind.JOB, "nightly")
    lines = {
        step: event_line(ApplyEvent(step=step, address=address, message="why"))
        for step in (Step.CREATED, Step.UPDATED, Step.DESTROYED, Step.FAILED)
    }
    assert list(lines.values()) == [
        "job.nightly created: why", "job.nightly updated: why", "job.nightly destroyed: why",
        "job.nightly failed: why",
    ]  # fmt: skip
