"""Jobs that are kept: `/api/2.2/jobs/…`. Schedules and triggers are kept, and never fire."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sgpu_decl.testing.workspace.clock import now_ms
from sgpu_decl.testing.workspace.executing.endings import TABLE, AttemptEnding
from sgpu_decl.testing.workspace.executing.records import JOB_RUN, Run, RunRecords
from sgpu_decl.testing.workspace.executing.runner import Runner
from sgpu_decl.testing.workspace.job_settings import checked_token, executable, kept_settings
from sgpu_decl.testing.workspace.pages import Paging
from sgpu_decl.testing.workspace.permissions import (
    asked_at_birth,
    given_at_birth,
    may_manage,
    may_view,
)
from sgpu_decl.testing.workspace.routes import (
    ApiError,
    JsonObject,
    Request,
    Response,
    Route,
    invalid,
)
from sgpu_decl.testing.workspace.runs import credential
from sgpu_decl.testing.workspace.tenant import Tenant

__all__ = ["JobsApi"]

_TASKS_SHOWN = 100
_MOST_LISTED = 100
_MERGED = {
    "tasks": "task_key",
    "environments": "environment_key",
    "job_clusters": "job_cluster_key",
}


@dataclass(frozen=True, slots=True)
class JobsApi:
    """The handlers; what they start is the runner's."""

    runner: Runner

    @property
    def routes(self) -> tuple[Route, ...]:
        """Its part of the API; version 2.1 has the same paths."""
        handlers = (
            ("POST", "create", self.create),
            ("GET", "get", self.get),
            ("GET", "list", self.list),
            ("POST", "reset", self.reset),
            ("POST", "update", self.update),
            ("POST", "delete", self.delete),
            ("POST", "run-now", self.run_now),
        )
        return tuple(
            Route(method, f"/api/{version}/jobs/{name}", handler)
            for version in ("2.1", "2.2")
            for method, name, handler in handlers
        )

    def create(self, request: Request) -> Response:
        """Make a job."""
        settings = kept_settings(request.json, request.server.terms)
        tenant = request.tenant
        entries = asked_at_birth(request, "jobs")
        with tenant.transaction():
            job_id = tenant.next_id()
            creator = tenant.user_name
            job = {"created": now_ms(), "creator": creator, "settings": settings, "runs": 0}
            _jobs(tenant).put(job_id, job)
        if entries:
            given_at_birth(tenant, "jobs", job_id, entries)
        return Response(json={"job_id": job_id})

    def get(self, request: Request) -> Response:
        """A job; of its tasks 100 a page."""
        job_id = request.integer("job_id")
        start = int(request.query.get("page_token") or 0)
        job = _job(request.tenant, job_id)
        if not _is_visible(request.tenant, job_id, job):
            raise _refused(request.tenant, "View", job_id)
        return Response(json=_shape(request.tenant, job_id, job, start))

    def list(self, request: Request) -> Response:
        """Jobs, the newest first."""
        tenant = request.tenant
        name = request.query.get("name", "").lower()
        found = [
            (int(job_id), job)
            for job_id, job in reversed(_jobs(tenant).items())
            if not name or str(_settings(job)["name"]).lower() == name
            if _is_visible(tenant, int(job_id), job)
        ]
        paging = Paging.of(request, most=_MOST_LISTED)
        shapes = [_shape(tenant, job_id, job) for job_id, job in paging.part(found)]
        if not request.flag("expand_tasks"):
            for shape in shapes:
                hidden = ("tasks", "environments", "job_clusters")
                settings = _settings(shape)
                shape["settings"] = {k: v for k, v in settings.items() if k not in hidden}
        return Response(json=paging.answer("jobs", shapes, len(found)))

    def reset(self, request: Request) -> Response:
        """Put settings in place of all old ones, but for `run_as`, which stays where none is
        given."""
        new = dict(_given(request))
        with request.tenant.transaction():
            old = _settings(_managed_job(request.tenant, request.integer("job_id")))
            if "run_as" in old:
                new.setdefault("run_as", old["run_as"])
            self._put(request, kept_settings(new, request.server.terms))
        return Response(json={})

    def update(self, request: Request) -> Response:
        """Change some settings. Tasks and environments are merged by their key."""
        new = _given(request)
        removed = request.json.get("fields_to_remove")
        gone = set(removed) if isinstance(removed, list) else set()
        with request.tenant.transaction():
            old = _settings(_managed_job(request.tenant, request.integer("job_id")))
            merged = {name: value for name, value in old.items() if name not in gone}
            for name, value in new.items():
                key = _MERGED.get(name)
                merged[name] = value if key is None else _merged(merged.get(name), value, key)
            self._put(request, kept_settings(merged, request.server.terms))
        return Response(json={})

    def delete(self, request: Request) -> Response:
        """Delete a job; one that is gone already is no mistake of the caller's to repair."""
        job_id = request.integer("job_id")
        _managed_job(request.tenant, job_id)
        _jobs(request.tenant).delete(job_id)
        return Response(json={})

    def run_now(self, request: Request) -> Response:
        """Run a job."""
        tenant, given = request.tenant, request.json
        token = checked_token(given)
        job_id = request.integer("job_id")
        only = given.get("only")
        with tenant.transaction():
            job = _managed_job(tenant, job_id)
            settings = _settings(job)
            executable(settings, request.server.terms)
            if isinstance(only, list):
                settings = _only(settings, only)
            if not settings.get("tasks"):
                raise invalid(f"Job {job_id} has no tasks.")
            active = sum(one.active and one.job_id == job_id for one in RunRecords(tenant).all())
            full = active >= int(str(settings["max_concurrent_runs"]))
            queues = bool((given.get("queue") or settings.get("queue") or {}).get("enabled"))  # type: ignore[union-attr]  # JSON

            def make(run_id: int) -> Run:
                return Run(
                    run_id=run_id, kind=JOB_RUN, job_id=job_id, creator=tenant.user_name,
                    name=str(settings["name"]), settings=settings, token=token,
                    parameters=given.get("job_parameters") or {},  # type: ignore[arg-type]  # JSON
                    number_in_job=int(str(job["runs"])) + 1, started=now_ms(),
                    life_cycle="QUEUED" if full else "PENDING",
                )  # fmt: skip

            run, new = RunRecords(tenant).add(token, make)
            if new:
                _jobs(tenant).put(job_id, {**job, "runs": run.number_in_job})
            if new and full and not queues:
                said = TABLE[AttemptEnding.SKIPPED].life_cycle
                why = "The job has as many active runs as it may have."
                RunRecords(tenant).update(
                    run.run_id, lambda one: one.broken_off(AttemptEnding.SKIPPED, said, why)
                )
        if new and (queues or not full):
            self.runner.launch(tenant, run, credential(request))
        return Response(json={"run_id": run.run_id, "number_in_job": run.number_in_job})

    def _put(self, request: Request, settings: JsonObject) -> None:
        job_id = request.integer("job_id")
        job = _job(request.tenant, job_id)
        _jobs(request.tenant).put(job_id, {**job, "settings": settings})


def _jobs(tenant: Tenant) -> Any:
    return tenant.table("jobs")


def _job(tenant: Tenant, job_id: int) -> JsonObject:
    job: JsonObject | None = _jobs(tenant).get(job_id)
    if job is None:
        raise invalid(f"Job {job_id} does not exist.")
    return job


def _managed_job(tenant: Tenant, job_id: int) -> JsonObject:
    """A job that the user may change and launch."""
    job = _job(tenant, job_id)
    if _creator(tenant, job) != tenant.user_name and not may_manage(tenant, job_id):
        raise _refused(tenant, "Manage", job_id)
    return job


def _is_visible(tenant: Tenant, job_id: int, job: JsonObject) -> bool:
    return _creator(tenant, job) == tenant.user_name or may_view(tenant, "jobs", job_id)


def _creator(tenant: Tenant, job: JsonObject) -> str:
    return str(job.get("creator") or tenant.user_name)  # older ones do not say it


def _runs_as(tenant: Tenant, job_id: int, job: JsonObject) -> str:
    """Whom `run_as` of the settings names, else who owns the job."""
    named = _settings(job).get("run_as") or {}
    owners = (
        who.partition(":")[2]
        for who, level in (tenant.table("permissions").get(f"jobs/{job_id}") or {}).items()
        if level == "IS_OWNER"
    )
    return str(next(iter(named.values()), None) or next(owners, _creator(tenant, job)))


def _refused(tenant: Tenant, what: str, job_id: int) -> ApiError:
    message = f"{tenant.user_name} does not have {what} permissions on job {job_id}."
    return ApiError(403, "PERMISSION_DENIED", message)


def _settings(job: JsonObject) -> dict[str, Any]:
    return job["settings"]  # type: ignore[return-value]  # our own table


def _given(request: Request) -> Mapping[str, Any]:
    new = request.json.get("new_settings") or {}
    if not isinstance(new, dict):
        raise ApiError(400, "MALFORMED_REQUEST", "new_settings is no JSON object")
    return new


def _shape(tenant: Tenant, job_id: int, job: JsonObject, start: int = 0) -> JsonObject:
    settings = dict(_settings(job))
    shape: JsonObject = {
        "job_id": job_id,
        "creator_user_name": _creator(tenant, job),
        "run_as_user_name": _runs_as(tenant, job_id, job),
        "run_as_owner": True,
        "created_time": job["created"],
        "settings": settings,
    }
    tasks = settings.get("tasks") or []
    if len(tasks) > start + _TASKS_SHOWN:
        shape |= {"has_more": True, "next_page_token": str(start + _TASKS_SHOWN)}
    if tasks:
        settings["tasks"] = tasks[start : start + _TASKS_SHOWN]
    return shape


def _merged(old: Any, new: Any, key: str) -> list[Any]:
    """Entries by key: those that are given anew in the place of the old ones, others added."""
    entries = {entry[key]: entry for entry in old or []}
    return list((entries | {entry[key]: entry for entry in new}).values())


def _only(settings: dict[str, Any], keys: list[Any]) -> dict[str, Any]:
    """The same with some tasks alone; what they depend on beside these does not count."""
    tasks = [
        {
            **task,
            "depends_on": [one for one in task.get("depends_on") or () if one["task_key"] in keys],
        }
        for task in settings["tasks"]
        if task["task_key"] in keys
    ]
    return {**settings, "tasks": tasks}
