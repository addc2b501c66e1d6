"""The jobs of one workspace, through the Jobs API."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from sgpu_decl.backends.base import Launching
from sgpu_decl.backends.databricks.api.sdk_errors import Rejected
from sgpu_decl.backends.databricks.jobs.creation import create_once
from sgpu_decl.backends.databricks.jobs.documents import (
    acl_of,
    document_of,
    mark_of,
    permissions_of,
    settings_of,
)
from sgpu_decl.backends.databricks.jobs.folders import JobFolders
from sgpu_decl.backends.databricks.jobs.job_settings import JobRun, describe
from sgpu_decl.backends.databricks.launching.submit import StagedLaunch
from sgpu_decl.backends.databricks.planning.catalog import policy_of
from sgpu_decl.backends.databricks.watching.termination import state_of, termination_of
from sgpu_decl.backends.databricks.workspace import Workspace
from sgpu_decl.backends.job_backend import JobDescription, JobLaunch, ListedJob
from sgpu_decl.backends.remote.files import RemoteMissing
from sgpu_decl.config.job import Job
from sgpu_decl.model.job import PERMISSIONS
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.target import Mode

__all__ = ["WorkspaceJobs"]

_API = "/api/2.2/jobs"
_PAGE = 100


class WorkspaceJobs:
    """A `JobBackend`. Cheap to make; connects when something is asked first."""

    def __init__(self, workspace: Workspace, folders: JobFolders) -> None:
        self._connection = workspace.connection
        self._workspace = workspace
        self._folders = folders

    @property
    def workspace(self) -> str:
        return self._connection.host

    def describe(
        self, job: Job, name: str, mode: Mode, launching: Launching | None
    ) -> JobDescription:
        user = self._connection.user if mode is Mode.DEVELOPMENT else ""
        if job.budget is not None:
            policy = policy_of(self._connection, job.budget)
            job = job.model_copy(update={"budget": policy})
        return describe(job, name, mode, user, self._run(launching) if launching else None)

    def stage(self, launching: Launching) -> None:
        self._folders.stage(launching)

    def staged(self, launching: Launching) -> bool:
        return self._folders.staged(launching)

    def free(self, launching: Launching, *, gone: bool) -> None:
        self._folders.free(launching, gone=gone)

    def busy(self, job_id: str) -> bool:
        return self._newest(job_id, active_only="true") is not None

    def last(self, job_id: str) -> JobLaunch | None:
        run = self._newest(job_id, expand_tasks="true")
        if run is None:
            return None
        return JobLaunch(
            id=str(run["run_id"]),
            state=state_of(run) or termination_of(run).state,
            started_at=_moment(run.get("start_time")),
            ended_at=_moment(run.get("end_time")),
            url=str(run.get("run_page_url") or self.url(job_id)),
        )

    def named(self, title: str) -> tuple[ListedJob, ...]:
        return tuple(self._named(title))

    def read(self, job_id: str) -> dict[str, Json] | None:
        try:
            document = document_of(self._settings(job_id))
            answer = self._connection.ask(f"reading the job {job_id}", _acl(job_id))
        except RemoteMissing:
            return None
        given, _ = permissions_of(answer)
        return {**document, PERMISSIONS: given} if given else document

    def create(self, document: Mapping[str, Json], token: str) -> str:
        body = settings_of(document, token)
        acl = acl_of(document)
        if acl is not None:
            body["access_control_list"] = acl
        return create_once(
            self._connection,
            body,
            lambda: next(
                (item.id for item in self._named(str(document["name"])) if item.token == token),
                None,
            ),
        )

    def reset(self, job_id: str, document: Mapping[str, Json], token: str) -> None:
        doing = f"updating the job {job_id}"
        settings = settings_of(document, token)
        body: dict[str, Json] = {"job_id": int(job_id), "new_settings": settings}
        self._connection.tell(doing, f"{_API}/reset", body)
        answer = self._connection.ask(doing, _acl(job_id))
        given, owner = permissions_of(answer)
        acl = acl_of(document)
        if acl is not None and document.get(PERMISSIONS) != given:
            client = self._connection.client
            with self._connection.explained(doing):
                client.api_client.do(
                    "PUT",
                    _acl(job_id),
                    body={"access_control_list": [*([owner] if owner else []), *acl]},
                )

    def delete(self, job_id: str) -> None:
        try:
            self._connection.tell(
                f"deleting the job {job_id}", f"{_API}/delete", {"job_id": int(job_id)}
            )
        except RemoteMissing:
            return
        except Rejected:
            # What is refused for a job that is gone is no refusal.
            if self.read(job_id) is not None:
                raise

    def url(self, job_id: str) -> str:
        return f"{self.workspace}/jobs/{job_id}"

    def _newest(self, job_id: str, **query: Json) -> dict[str, Any] | None:
        """The newest launch of a job of those that are asked for."""
        try:
            answer: dict[str, Any] = self._connection.ask(
                f"looking for launches of the job {job_id}",
                f"{_API}/runs/list",
                job_id=job_id,
                limit=1,
                **query,
            )
        except (Rejected, RemoteMissing):
            return None  # there is no such job any more
        return next(iter(answer.get("runs") or ()), None)

    def _run(self, launching: Launching) -> JobRun:
        config = launching.config
        code = launching.inputs.code_digest
        return JobRun(
            config=config,
            placement=launching.inputs.placement,
            staged=StagedLaunch(
                folder=self._workspace.layout.commands(self._folders.of(launching)),
                experiments=self._workspace.experiments,
                code=self._workspace.layout.code(code) if code is not None else None,
                policy=policy_of(self._connection, config.budget) if config.budget else None,
                dependencies=tuple(config.env.dependencies or ()),
            ),
        )

    def _settings(self, job_id: str) -> dict[str, Any]:
        """Of a job with many tasks, page by page."""
        settings: dict[str, Any] = {}
        query: dict[str, Json] = {"job_id": job_id}
        while True:
            answer: dict[str, Any] = self._connection.ask(
                f"reading the job {job_id}", f"{_API}/get", **query
            )
            page = answer.get("settings") or {}
            tasks = [*settings.get("tasks", ()), *page.get("tasks", ())]
            settings = {**page, **settings, **({"tasks": tasks} if tasks else {})}
            token = answer.get("next_page_token")
            if not token:
                return settings
            query["page_token"] = token

    def _named(self, title: str) -> Iterator[ListedJob]:
        query: dict[str, Json] = {"name": title, "limit": _PAGE}
        while True:
            answer: dict[str, Any] = self._connection.ask(
                f"looking for jobs called `{title}`", f"{_API}/list", **query
            )
            for job in answer.get("jobs") or ():
                settings = job.get("settings") or {}
                if settings.get("name") == title:  # the list knows no case
                    yield ListedJob(id=str(job["job_id"]), token=mark_of(settings))
            token = answer.get("next_page_token")
            if not token:
                return
            query["page_token"] = token


def _moment(ms: object) -> datetime | None:
    return datetime.fromtimestamp(ms / 1000, UTC) if isinstance(ms, int) and ms else None


def _acl(job_id: str) -> str:
    return f"/api/2.0/permissions/jobs/{job_id}"
