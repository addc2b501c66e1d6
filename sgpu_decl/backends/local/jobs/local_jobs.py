"""The jobs that are kept on this machine: a folder each, beside the attempts of the target.

    jobs/<id>/job.json        its document, and the token that marks it
    jobs/<id>/launches/<n>/   its launches: see `launch_walker`
    jobs/<id>/runs/           the attempts of its tasks

Whoever starts a launch or deletes some holds the lock of the job.
"""

import fcntl
import os
import re
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgpu_decl.agent.attempt import staged_folder
from sgpu_decl.agent.attempt.attempt_files import numbers_in, read_json
from sgpu_decl.agent.attempt.attempt_status import request_cancel
from sgpu_decl.agent.system.locks import open_lock
from sgpu_decl.agent.system.safe_files import private_folder
from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.job_backend import (
    AppliedJob,
    JobBackend,
    JobDescription,
    ListedJob,
    WrittenJob,
    refuse_outputs,
)
from sgpu_decl.backends.launch_request import LaunchRequest, require_code
from sgpu_decl.backends.local.jobs.job_document import local_document, local_findings
from sgpu_decl.backends.local.jobs.launch_view import (
    TaskViews,
    is_active,
    job_launch,
    read_launch,
)
from sgpu_decl.backends.local.jobs.launch_walker import LAUNCHES
from sgpu_decl.backends.local.jobs.task_requests import task_requests, tasks_in
from sgpu_decl.backends.local.jobs.walker_start import ask_to_stop, start_walker
from sgpu_decl.backends.local.local_launcher import LocalLauncher
from sgpu_decl.backends.local.local_survey import LocalSurvey
from sgpu_decl.backends.secret_resolution import resolve_secrets
from sgpu_decl.config.job import Job
from sgpu_decl.diagnostics.amounts import read_duration
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.model.job import JobLaunch, TaskLaunch
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.owner import Owner
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.model.target import Mode
from sgpu_decl.system_errors import advice, error_text

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext

_FOLDER, _FILE, _LOCK = "jobs", "job.json", "lock"
_KEPT = 10  # launches, whose attempts stay too
_PATIENCE, _LOOK = 10.0, 0.05  # seconds that a delete waits for launches to end
_TAIL = 6  # characters of a token that tell jobs of one name apart


class LocalJobs(JobBackend):
    """A `JobBackend`."""

    def __init__(self, context: "BackendContext", survey: LocalSurvey) -> None:
        self._context = context
        self._survey = survey
        self._jobs = context.state_dir / _FOLDER

    @property
    def workspace(self) -> str:
        if not self._context.shared_state():
            return "this machine"
        return f"{os.uname().nodename}:{self._context.project}"

    def describe(
        self,
        job: Job,
        name: str,
        mode: Mode,  # noqa: ARG002  nobody else sees the job
        requests: Mapping[str, LaunchRequest],
        applied: AppliedJob | None = None,  # noqa: ARG002  nothing depends on the user
    ) -> JobDescription:
        refuse_outputs(requests)
        return local_document(job, name)

    def findings(self, job: Job) -> Iterator[Diagnostic]:
        return local_findings(job)

    def stage(
        self,
        requests: Mapping[str, LaunchRequest],
        spec: Mapping[str, Json],  # noqa: ARG002  it lies in the stores of this machine
    ) -> None:
        for request in requests.values():
            require_code(self._context.store(), request)

    def staged(self, applied: AppliedJob) -> bool:
        digests = {one.inputs.code_digest for one in applied.requests.values()}
        store = self._context.store()
        return all(one is None or store.manifest(one) is not None for one in digests)

    def busy(self, job_id: str) -> bool:
        """A task may outlive the walker of its launch."""
        active = any(launch.state.active for launch in self._seen(job_id))
        return active or any(map(staged_folder.active, self._attempts(job_id)))

    def last(self, job_id: str) -> JobLaunch | None:
        return next(self._seen(job_id), None)

    def _seen(self, job_id: str) -> Iterator[JobLaunch]:
        for folder in self._launches(job_id):
            if (launch := read_launch(folder)) is not None:
                yield job_launch(folder, launch)

    def start(
        self,
        job_id: str,
        applied: AppliedJob,
        parameters: Mapping[str, str],
        tasks: Sequence[str],
        token: str,
    ) -> str:
        folder = self._jobs / job_id
        with _explained(f"the job `{job_id}` cannot be started"), _locked(folder) as lock:
            for launched in self._launches(job_id):
                if (read_launch(launched) or {}).get("token") == token:
                    return f"{job_id}.{launched.name}"
            number = max(numbers_in(folder / LAUNCHES), default=0) + 1
            spec: Any = applied.spec
            values = {**spec.get("parameters", {}), **parameters}
            requests = task_requests(applied, number, values, tasks, token)
            self._stage(requests.values(), self._layout(job_id))
            environments = {
                digest for one in requests.values() if (digest := one.inputs.environment_digest)
            }
            self._keep(job_id, environments)
            launch = {
                "token": token,
                "number": number,
                "owner": next(iter(requests.values())).record.owner,
                "parameters": values,
                "environments": sorted(environments),
                "queue": spec.get("on_overlap") == "queue",
                "most": spec.get("max_concurrent_runs", 1),
                "timeout": read_duration(spec.get("timeout", "")),
                "tasks": tasks_in(applied, requests, self._layout(job_id)),
            }
            secrets = {
                name: resolve_secrets(
                    one.config.secrets, os.environ, one.folder(self._context.project)
                )
                for name, one in requests.items()
            }
            start_walker(folder, lock, {"launch": launch, "secrets": secrets})
        return f"{job_id}.{number}"

    def _keep(self, job_id: str, environments: Collection[str]) -> None:
        """Have the store of environments keep those of the active launches and of one to come, also
        if no declared job has them any more. The caller holds the lock of the job."""
        active = [read_launch(one) or {} for one in self._launches(job_id) if is_active(one)]
        needed = {
            *environments,
            *(digest for one in active for digest in one.get("environments", ())),
        }
        store = self._context.environments()
        if needed or store.objects.is_dir():
            store.refer(Owner(path=os.fspath(self._jobs / job_id / _FILE)), needed)

    def _stage(self, requests: Collection[LaunchRequest], layout: AttemptLayout) -> None:
        """Build the folders of attempts, as an apply does. Raises SgpuError."""
        launcher = LocalLauncher(self._context, self._survey, os.environ, layout)
        for request in requests:
            launcher.check(request)
        launcher.prepare(list(requests), Quiet())
        try:
            for request in requests:
                launcher.stage(request)
        except SgpuError:
            for request in requests:
                staged_folder.give_up(layout.attempt(request.ref))
            raise

    def launch(
        self,
        launch_id: str,
        applied: AppliedJob,  # noqa: ARG002  the launch may be one of an older version
    ) -> tuple[JobLaunch, tuple[TaskLaunch, ...]]:
        job_id, _, number = launch_id.rpartition(".")
        folder = self._jobs / job_id / LAUNCHES / number
        if (launch := read_launch(folder)) is None:
            raise BackendError(
                f"the launch `{launch_id}` is not there any more",
                hint="`sgpu gc` deletes what old launches left",
            )
        shown = job_launch(folder, launch)
        views = TaskViews(self._layout(job_id), self._context.project, os.environ)
        return shown, tuple(views.of(launch, shown.state))

    def _layout(self, job_id: str) -> AttemptLayout:
        return AttemptLayout(self._jobs / job_id)

    def _launches(self, job_id: str) -> list[Path]:
        """The folders of the launches of a job, the newest first."""
        folder = self._jobs / job_id / LAUNCHES
        return [folder / str(number) for number in reversed(numbers_in(folder))]

    def cancel(self, job_id: str) -> None:
        for folder in filter(is_active, self._launches(job_id)):
            ask_to_stop(folder)
        for attempt in self._attempts(job_id):  # of a launch whose walker died
            if staged_folder.active(attempt):
                request_cancel(attempt)

    def free(
        self,
        job_id: str,
        requests: Mapping[str, LaunchRequest],  # noqa: ARG002  all of it lies in one folder
        *,
        gone: bool,
    ) -> None:
        folder = self._jobs / job_id
        if not folder.is_dir():
            return
        with _explained(f"what `{job_id}` left cannot be deleted"), _locked(folder):
            with suppress(SgpuError):  # what is not needed stays until the next time
                self._keep(job_id, ())
            kept = set()
            for number, launch in enumerate(self._launches(job_id)):
                if not gone and number < _KEPT and read_launch(launch) is not None:
                    kept.add(launch.name)
            active = {one.name for one in self._launches(job_id) if is_active(one)}
            for attempt in self._attempts(job_id):
                if attempt.name in active or staged_folder.active(attempt):
                    active.add(attempt.name)
                elif attempt.name not in kept:
                    staged_folder.discard(attempt)
            for launch in self._launches(job_id):
                if launch.name not in kept | active:
                    shutil.rmtree(launch)
            if gone and not active:
                shutil.rmtree(folder)

    def _attempts(self, job_id: str) -> list[Path]:
        """The folders of all attempts of a job."""
        return [
            run / str(number)
            for run in (self._jobs / job_id / "runs").glob("*")
            for number in numbers_in(run)
        ]

    def named(self, title: str) -> tuple[ListedJob, ...]:
        jobs = {file.parent.name: _read(file.parent) for file in self._jobs.glob(f"*/{_FILE}")}
        return tuple(
            ListedJob(id=job_id, token=job["token"], settings=job["document"])
            for job_id, job in sorted(jobs.items())
            if job is not None and job["document"].get("name") == title
        )

    def read(self, job_id: str) -> dict[str, Json] | None:
        job = _read(self._jobs / job_id)
        return None if job is None else dict(job["document"])

    def written(self, document: Mapping[str, Json], name: str) -> WrittenJob:  # noqa: ARG002
        raise BackendError("a job of this machine is in the file that declares it already")

    def create(self, document: Mapping[str, Json], token: str) -> str:
        name = re.sub(r"[^A-Za-z0-9_]+", "-", str(document["name"])).strip("-")[:40]
        job_id = f"{name}-{token[-_TAIL:]}".lstrip("-")
        self.reset(job_id, document, token)
        return job_id

    def reset(self, job_id: str, document: Mapping[str, Json], token: str) -> None:
        folder = self._jobs / job_id
        with _explained(f"the job `{job_id}` cannot be written"):
            private_folder(folder)
            content: dict[str, Json] = {"token": token, "document": dict(document)}
            write_atomic(folder / _FILE, canonical(content).encode())

    def delete(self, job_id: str) -> None:
        """Its launches are stopped. What takes longer to end is left to gc."""
        with _explained(f"the job `{job_id}` cannot be deleted"):
            (self._jobs / job_id / _FILE).unlink(missing_ok=True)
            deadline = time.monotonic() + _PATIENCE
            while self.busy(job_id) or any(map(is_active, self._launches(job_id))):
                if time.monotonic() > deadline:
                    break
                self.cancel(job_id)
                time.sleep(_LOOK)
            self.free(job_id, {}, gone=True)

    def url(self, job_id: str) -> str:
        return str(self._jobs / job_id)


def _read(folder: Path) -> dict[str, Any] | None:
    """What was written of a job; None where there is none."""
    job = read_json(os.fspath(folder), _FILE)
    match job:
        case {"token": str(), "document": dict()}:
            return job
    return None


@contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """Hold the lock of a job; gives its descriptor. A process that inherits it holds it too."""
    private_folder(folder)
    descriptor = open_lock(os.fspath(folder / _LOCK))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _explained(doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BackendError(f"{doing}: {error_text(error)}", hint=advice(error)) from error
