"""Runs: `/api/2.2/jobs/runs/…`."""

import shutil
from dataclasses import dataclass

from sgpu_decl.testing.workspace import run_shapes
from sgpu_decl.testing.workspace.clock import now_ms
from sgpu_decl.testing.workspace.executing.records import (
    SUBMIT_RUN,
    Run,
    RunRecords,
    TaskAttempt,
    attempt_folder,
)
from sgpu_decl.testing.workspace.executing.runner import Runner
from sgpu_decl.testing.workspace.job_settings import checked_token, run_settings
from sgpu_decl.testing.workspace.pages import Paging
from sgpu_decl.testing.workspace.permissions import (
    asked_at_birth,
    given_at_birth,
    may_manage,
    may_view,
)
from sgpu_decl.testing.workspace.routes import (
    ApiError,
    Request,
    Response,
    Route,
    invalid,
)

__all__ = ["RunsApi", "credential", "page_url"]

_MOST_LISTED = 25


@dataclass(frozen=True, slots=True)
class RunsApi:
    """The handlers; what they start is the runner's."""

    runner: Runner

    @property
    def routes(self) -> tuple[Route, ...]:
        """Its part of the API; version 2.1 has the same paths."""
        handlers = (
            ("POST", "submit", self.submit),
            ("GET", "get", self.get),
            ("GET", "get-output", self.get_output),
            ("GET", "list", self.list),
            ("POST", "cancel", self.cancel),
            ("POST", "cancel-all", self.cancel_all),
            ("POST", "delete", self.delete),
        )
        return tuple(
            Route(method, f"/api/{version}/jobs/runs/{name}", handler)
            for version in ("2.1", "2.2")
            for method, name, handler in handlers
        )

    def submit(self, request: Request) -> Response:
        """Run something once. The same token finds the same run, whatever else is asked."""
        given = request.json
        token = checked_token(given)
        known_by = token
        if token and not request.server.profile.flag("token-of-another-user"):  # evidence: D5
            known_by = f"{request.tenant.user_name} {token}"
        settings = run_settings(given, request.server.terms)
        tenant = request.tenant

        def make(run_id: int) -> Run:
            asked_at_birth(request, "jobs")  # nothing is made where that is refused
            return Run(
                run_id=run_id, kind=SUBMIT_RUN, job_id=tenant.next_id(), creator=tenant.user_name,
                name=str(given.get("run_name") or "Untitled"), settings=settings, token=token,
                parameters={}, number_in_job=run_id, started=now_ms(),
            )  # fmt: skip

        run, new = RunRecords(tenant).add(known_by, make)
        if new:
            entries = asked_at_birth(request, "jobs")
            if entries:
                given_at_birth(tenant, "jobs", run.job_id, entries)
            self.runner.launch(tenant, run, credential(request))
        return Response(json={"run_id": run.run_id})

    def get(self, request: Request) -> Response:
        """A run, or an attempt of a task by its run id."""
        run, attempt = self._found(request)
        url = page_url(request, run)
        if attempt is not None:
            return Response(json=run_shapes.attempt_as_run(run, attempt, url))
        start = int(request.query.get("page_token") or 0)
        history = request.flag("include_history")
        return Response(json=run_shapes.run_shape(run, url, history=history, start=start))

    def get_output(self, request: Request) -> Response:
        """What an attempt of a task gave, by its run id."""
        run, attempt = self._found(request)
        if attempt is None:
            raise invalid(
                "Retrieving the output of runs with multiple tasks is not supported. "
                "Please retrieve the output of each individual task run instead."
            )
        return Response(json=run_shapes.output_of(run, attempt, page_url(request, run)))

    def list(self, request: Request) -> Response:
        """Runs, the newest first."""
        query = request.query
        active, ended = request.flag("active_only"), request.flag("completed_only")
        if active and ended:
            raise invalid("active_only and completed_only cannot both be true.")
        found = [
            run
            for run in RunRecords(request.tenant).all()
            if _is_visible(request, run)
            and (not active or run.active)
            and (not ended or not run.active)
            and query.get("job_id") in (None, str(run.job_id))
            and query.get("run_type") in (None, run.kind)
            and run.started >= request.integer("start_time_from", 0)
            and ("start_time_to" not in query or run.started <= request.integer("start_time_to"))
        ]
        paging = Paging.of(request, most=_MOST_LISTED)
        expand = request.flag("expand_tasks")
        shapes = [
            run_shapes.run_shape(run, page_url(request, run), tasks=expand)
            for run in paging.part(found)
        ]
        return Response(json=paging.answer("runs", shapes, len(found)))

    def cancel(self, request: Request) -> Response:
        """Stop a run, or one of its tasks by the run id of an attempt; what has ended stays as it
        is."""
        run, attempt = self._found(request)
        own = run.creator == request.tenant.user_name
        if not own and not may_manage(request.tenant, run.job_id):
            who = request.tenant.user_name
            message = f"{who} does not have Manage Run permissions on run {run.run_id}."
            raise ApiError(403, "PERMISSION_DENIED", message)
        if attempt is not None and len(run.tasks) > 1:
            self.runner.cancel_task(request.tenant, run.run_id, attempt.task_key)
        else:
            self.runner.cancel(request.tenant, run.run_id)
        return Response(json={})

    def cancel_all(self, request: Request) -> Response:
        """Stop all runs of a job, or with `all_queued_runs` those that have not begun."""
        job = request.json.get("job_id")
        queued = request.flag("all_queued_runs")
        if job is None and not queued:
            raise invalid("Missing required field: job_id")
        for run in RunRecords(request.tenant).all():
            waiting = not queued or run.life_cycle == "QUEUED"
            if run.active and job in (None, run.job_id) and waiting:
                self.runner.cancel(request.tenant, run.run_id)
        return Response(json={})

    def delete(self, request: Request) -> Response:
        """Forget a run that has ended."""
        run, _ = self._found(request)
        if run.active:
            message = f"Cannot delete run {run.run_id}: it is active. Cancel it first."
            raise ApiError(400, "INVALID_STATE", message)
        RunRecords(request.tenant).delete(run.run_id)
        for one in run.attempts:
            folder = attempt_folder(request.tenant, one.run_id)
            shutil.rmtree(folder, ignore_errors=True)  # one that never ran has none
        return Response(json={})

    def _found(self, request: Request) -> tuple[Run, TaskAttempt | None]:
        run_id = request.integer("run_id")
        runs = RunRecords(request.tenant)
        owner = runs.owner(run_id)
        run = owner or runs.need(run_id)
        if not _is_visible(request, run):
            code = request.server.profile.text("hidden-run")  # evidence: D4
            if code == "RESOURCE_DOES_NOT_EXIST":
                raise ApiError(404, code, f"Run {run_id} does not exist.")
            message = f"{request.tenant.user_name} does not have View permissions on run {run_id}."
            raise ApiError(403, code, message)
        return run, run.attempt(run_id) if owner is not None else None


def _is_visible(request: Request, run: Run) -> bool:
    """Whether the user made a run, or its list names the user."""
    tenant = request.tenant
    return run.creator == tenant.user_name or may_view(tenant, "jobs", run.job_id)


def page_url(request: Request, run: Run) -> str:
    """Where a browser would find it."""
    server = request.server
    return f"{server.url}/?o={server.org_id}#job/{run.job_id}/run/{run.run_id}"


def credential(request: Request) -> str:
    """The token of whoever asks; what is run acts as they do."""
    return (request.headers.get("Authorization") or "").removeprefix("Bearer ")
