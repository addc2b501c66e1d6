"""The jobs of one workspace, through the Jobs API."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.backends.databricks.api.sdk_errors import Rejected, without_refusals
from sgpu_decl.backends.databricks.api.workspace_files import WorkspacePlace
from sgpu_decl.backends.databricks.jobs.documents import (
    acl_of,
    document_of,
    mark_of,
    permissions_of,
    settings_of,
)
from sgpu_decl.backends.databricks.jobs.job_findings import job_findings
from sgpu_decl.backends.databricks.jobs.job_folders import JobFolders
from sgpu_decl.backends.databricks.jobs.job_launches import launch_in, read_launch, start_once
from sgpu_decl.backends.databricks.jobs.job_settings import describe
from sgpu_decl.backends.databricks.jobs.job_yaml import files_of, name_of, written_job
from sgpu_decl.backends.databricks.jobs.run_tasks import StagedRun, with_what_is_left
from sgpu_decl.backends.databricks.jobs.task_settings import (
    Staged,
    StagedFile,
    places_in,
    with_places,
)
from sgpu_decl.backends.databricks.launching.experiment import home_in
from sgpu_decl.backends.databricks.launching.submit import StagedLaunch, present
from sgpu_decl.backends.databricks.planning.catalog import (
    policy_of,
)
from sgpu_decl.backends.databricks.workspace import Workspace
from sgpu_decl.backends.job_backend import (
    AppliedJob,
    JobDescription,
    ListedJob,
    WrittenJob,
    refuse_outputs,
)
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.remote.launching.launch_hosts import LaunchHosts
from sgpu_decl.backends.remote.staging.remote_layout import RemoteLayout
from sgpu_decl.config.job import Job
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import BackendError, OutcomeUnknown
from sgpu_decl.model.job import ONE, OWNERSHIP, PERMISSIONS, JobLaunch, TaskLaunch
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.target import USER, Mode
from sgpu_decl.places.file_place import PlaceMissing

_API = "/api/2.2/jobs"
_PAGE = 100
_REFUSED = "permission_denied"
_BUSY = frozenset({"limit_reached", "throttled", "unavailable"})
_TRIES = 6
_LONGEST = 60.0  # seconds to wait for a busy workspace, whatever it asks for
_DOING = "creating the job"


class WorkspaceJobs:
    """A `JobBackend`. Cheap to make; connects when something is asked first."""

    def __init__(
        self, workspace: Workspace, folders: JobFolders, launch_hosts: LaunchHosts
    ) -> None:
        self._launch_hosts = launch_hosts
        self._connection = workspace.connection
        self._workspace = workspace
        self._folders = folders

    @property
    def workspace(self) -> str:
        return self._connection.host

    def describe(
        self,
        job: Job,
        name: str,
        mode: Mode,
        requests: Mapping[str, LaunchRequest],
        applied: AppliedJob | None = None,
    ) -> JobDescription:
        named = mode is Mode.DEVELOPMENT or USER in (job.name or "")
        user = self._connection.person if named else ""
        if job.budget is not None:
            policy = policy_of(self._connection, job.budget)
            job = job.model_copy(update={"budget": policy})
        refuse_outputs(requests)
        staged = self._launched_from(requests, applied)
        title = str(applied.spec.get("name", "")) if applied is not None else ""
        return describe(job, name, mode, user, staged, title)

    def findings(self, job: Job) -> Iterator[Diagnostic]:
        return job_findings(self._connection, job)

    def located(
        self,
        spec: Mapping[str, Json],
        requests: Mapping[str, LaunchRequest],
        applied: AppliedJob | None,
    ) -> dict[str, Json]:
        return with_places(spec, self._launched_from(requests, applied))

    def _launched_from(
        self, requests: Mapping[str, LaunchRequest], applied: AppliedJob | None
    ) -> dict[str, Staged]:
        """What a job launches, and from where: the staging folder of this user, or that of whoever
        applied this version of it. Its experiments stay where they are, too: whoever applied the
        job first owns it, and its launches run as its owner."""
        return {task: self._staged(task, one, applied) for task, one in requests.items()}

    def _staged(self, task: str, request: LaunchRequest, applied: AppliedJob | None) -> Staged:
        staged = self._staged_here(request)
        if applied is None or task not in applied.requests:
            return staged
        places = places_in(applied.spec, task)
        before = applied.requests[task]
        if isinstance(staged, StagedLaunch) and not before.of_file:
            home = home_in(before.config, places.experiments)
            if home is not None:
                staged = replace(staged, experiments=home)
        layout = self._layout_elsewhere(request, places.commands)
        if layout is None:
            return staged
        code = request.inputs.code_digest
        return replace(
            staged, folder=places.commands, code=layout.code(code) if code is not None else None
        )

    def _staged_here(self, request: LaunchRequest) -> Staged:
        folder = self._folders.of(request)
        if not request.of_file:
            return self._workspace.staged_launch(request, folder)
        layout, code = self._workspace.area.layout, request.inputs.code_digest
        return StagedFile(
            folder=layout.commands(folder), code=layout.code(code) if code is not None else None
        )

    def _layout_elsewhere(self, request: LaunchRequest, commands: str) -> RemoteLayout | None:
        """The layout of the staging folder of another user that a job is launched from; None where
        it is seen to be gone there."""
        layout = self._folders.layout_elsewhere(request, commands)
        if layout is None:
            return None
        try:
            there = self._folders.may_be_staged(request, layout)
        except BackendError as error:
            if error.code != _REFUSED:
                raise
            there = True  # that user sees whether it is
        return layout if there else None

    def stage(self, requests: Mapping[str, LaunchRequest], spec: Mapping[str, Json]) -> None:
        for task, request in requests.items():
            places = places_in(spec, task)
            if not request.of_file:
                home = home_in(request.config, places.experiments)
                if home is None or home == self._workspace.experiments:
                    self._workspace.make_experiment_folder(request.config)
            if places.commands == self._folders.commands(request):
                self._folders.stage(request)

    def staged(self, applied: AppliedJob) -> bool:
        return all(
            self._is_staged(request, places_in(applied.spec, task).commands)
            for task, request in applied.requests.items()
        )

    def _is_staged(self, request: LaunchRequest, commands: str) -> bool:
        if self._folders.layout_elsewhere(request, commands) is None:
            return self._folders.staged(request)
        return self._layout_elsewhere(request, commands) is not None

    def cancel(self, job_id: str) -> None:
        """Source: https://docs.databricks.com/api/workspace/jobs/cancelallruns"""
        doing = f"stopping the launches of the job {job_id}"
        self._connection.tell(doing, f"{_API}/runs/cancel-all", {"job_id": int(job_id)})

    def free(
        self,
        job_id: str,  # noqa: ARG002  folders are named after what is launched
        requests: Mapping[str, LaunchRequest],
        *,
        gone: bool,
    ) -> None:
        self._folders.free(requests.values(), gone=gone)

    def busy(self, job_id: str) -> bool:
        return self._newest(job_id, active_only="true") is not None

    def last(self, job_id: str) -> JobLaunch | None:
        run = self._newest(job_id, expand_tasks="true")
        return None if run is None else launch_in(run, self.url(job_id))

    def start(
        self,
        job_id: str,
        applied: AppliedJob,  # noqa: ARG002  the platform has it
        parameters: Mapping[str, str],
        tasks: Sequence[str],
        token: str,
    ) -> str:
        return start_once(self._connection, job_id, parameters, tasks, token)

    def launch(
        self, launch_id: str, applied: AppliedJob
    ) -> tuple[JobLaunch, tuple[TaskLaunch, ...]]:
        launch, tasks = read_launch(self._connection, launch_id)
        if launch.state.active:
            return launch, tasks
        return launch, tuple(self._with_left(launch, task, applied) for task in tasks)

    def _with_left(self, launch: JobLaunch, task: TaskLaunch, applied: AppliedJob) -> TaskLaunch:
        """A task of a launch that has ended, with what its ranks left if it is a run."""
        key = ONE if ONE in applied.requests else task.name
        request = applied.requests.get(key)
        if request is None or request.of_file or task.skipped:
            return task
        commands = places_in(applied.spec, key).commands
        layout = self._folders.layout_elsewhere(request, commands) or self._workspace.area.layout
        run = StagedRun(request=request, folder=layout.launch(request.record))
        return with_what_is_left(self._workspace, run, launch, task)

    def named(self, title: str) -> tuple[ListedJob, ...]:
        return tuple(self._named(title))

    def namesakes(self, titles: Sequence[str]) -> Mapping[str, Sequence[ListedJob]]:
        """One list has all jobs of a small workspace. In a large one, each title is looked for."""
        if len(titles) > 1:
            answer = self._connection.ask("listing the jobs", f"{_API}/list", limit=_PAGE)
            if not answer.get("next_page_token"):
                return {title: tuple(_called(title, answer)) for title in titles}
        return {title: self.named(title) for title in titles}

    def read(self, job_id: str) -> dict[str, Json] | None:
        try:
            job = self._job(job_id)
            answer = self._connection.ask(f"reading the job {job_id}", _acl(job_id))
        except PlaceMissing:
            return None
        granted, owner = permissions_of(answer)
        names = {
            "creator": job.get("creator_user_name"),
            "owner": next((name for key, name in owner.items() if key != "permission_level"), None),
            "runs_as": job.get("run_as_user_name"),
        }
        document = document_of(job["settings"]) | {OWNERSHIP: present(names)}
        return {**document, PERMISSIONS: granted} if granted else document

    def written(self, document: Mapping[str, Json], name: str) -> WrittenJob:
        files: dict[str, bytes] = {}
        copied: dict[str, str] = {}
        for path in dict.fromkeys(files_of(document)):
            with without_refusals(), suppress(PlaceMissing):  # then it stays where it is
                content = WorkspacePlace(self._connection).get(path)
                file = f"{name}/{name_of(path, content) or ''}"
                if not file.endswith("/") and file not in files:
                    copied[path] = file
                    files[file] = content
        return replace(written_job(document, name, copied), files=files)

    def create(self, document: Mapping[str, Json], token: str) -> str:
        if self._workspace.account.host is not None:
            self._launch_hosts.add(self._workspace.account.host)
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
        granted, owner = permissions_of(self._connection.ask(doing, _acl(job_id)))
        acl = acl_of(document)
        if acl is not None and document.get(PERMISSIONS) != granted:
            entries = [*([owner] if owner else []), *acl]
            body = {"access_control_list": entries}
            self._connection.tell(doing, _acl(job_id), body, method="PUT")

    def delete(self, job_id: str) -> None:
        self._connection.tell_unless_gone(
            f"deleting the job {job_id}",
            f"{_API}/delete",
            {"job_id": int(job_id)},
            look=f"{_API}/get",
        )

    def url(self, job_id: str) -> str:
        return f"{self.workspace}/jobs/{job_id}"

    def _newest(self, job_id: str, **query: Json) -> dict[str, Any] | None:
        """The newest launch of a job that fits the query."""
        try:
            answer = self._connection.ask(
                f"looking for launches of the job {job_id}",
                f"{_API}/runs/list",
                job_id=job_id,
                limit=1,
                **query,
            )
        except (Rejected, PlaceMissing):
            return None  # the job was deleted
        return next(iter(answer.get("runs") or ()), None)

    def _job(self, job_id: str) -> dict[str, Any]:
        """One with many tasks is read page by page."""
        job: dict[str, Any] = {}
        settings: dict[str, Any] = {}
        for answer in self._connection.pages(
            f"reading the job {job_id}", f"{_API}/get", job_id=job_id
        ):
            page = answer.get("settings") or {}
            tasks = [*settings.get("tasks", ()), *page.get("tasks", ())]
            settings = {**page, **settings, **({"tasks": tasks} if tasks else {})}
            job = {**answer, "settings": settings}
        return job

    def _named(self, title: str) -> Iterator[ListedJob]:
        doing = f"looking for jobs called `{title}`"
        for page in self._connection.pages(doing, f"{_API}/list", name=title, limit=_PAGE):
            yield from _called(title, page)  # the list ignores case


def _called(title: str, page: Mapping[str, Any]) -> Iterator[ListedJob]:
    """The jobs of a page with exactly that title."""
    for job in page.get("jobs") or ():
        settings = job.get("settings") or {}
        if settings.get("name") == title:
            yield ListedJob(id=str(job["job_id"]), token=mark_of(settings), settings=settings)


def _acl(job_id: str) -> str:
    return f"/api/2.0/permissions/jobs/{job_id}"


def create_once(
    connection: Connection, body: Mapping[str, Json], find: Callable[[], str | None]
) -> str:
    """Make a job once, and return its id. The API has no idempotency token for that, so this looks
    for the job by its mark before it sends the request, and before it sends it again.

    Args:
        find: looks for the job by its mark.

    Raises:
        OutcomeUnknown: the answer was lost, and the job is not to be seen yet.
        BackendError: it was not made.
    """
    for attempt in range(1, _TRIES + 1):
        job_id = find()
        if job_id is not None:
            return job_id
        try:
            return _create(connection, body)
        except BackendError as error:
            busy = error.code in _BUSY
            if not error.retryable or (busy and attempt == _TRIES):
                raise
            if busy:
                seconds = getattr(error.__cause__, "retry_after_secs", None)
                pause = attempt if seconds is None else min(seconds, _LONGEST)
                connection.client.config.clock.sleep(pause)
                continue
            job_id = find()
            if job_id is not None:
                return job_id
            raise OutcomeUnknown(
                f"{error.message}; whether it was made is not known",
                hint="apply again: it is looked for before another one is made",
            ) from error
    raise AssertionError("the last try returns or raises")


def _create(connection: Connection, body: Mapping[str, Json]) -> str:
    with connection.explained(_DOING):
        answer: Any = connection.client.api_client.do(
            "POST",
            "/api/2.2/jobs/create",
            headers={"Content-Type": "application/json"},
            data=_SentOnce(json.dumps(body).encode()),
        )
    return str(answer["job_id"])


class _SentOnce:
    """A body that cannot be rewound. The SDK sends such a request once; it would send any other
    again after a lost answer."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __len__(self) -> int:
        return len(self._content)

    def __iter__(self) -> Iterator[bytes]:
        yield self._content

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        end = len(self._content) if size < 0 else size
        data, self._content = self._content[:end], self._content[end:]
        return data
