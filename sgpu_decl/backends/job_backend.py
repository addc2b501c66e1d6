"""The optional protocol of a backend that keeps jobs, beside the four of `base`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import BackendError
from sgpu_decl.model.job import ONE, TASKS, JobLaunch, TaskLaunch
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.run_outputs import references

if TYPE_CHECKING:
    from sgpu_decl.config.job import Job
    from sgpu_decl.model.target import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDescription:
    """A declared job as its backend wants it.

    `origins` maps a path of the document to the field of the YAML that led to it; a path below one
    has its origin below it too.
    """

    title: str
    document: dict[str, Json]
    origins: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedJob:
    """A job as a list shows it. `token` is its mark, None where it has none of ours; `settings`
    those that a list has."""

    id: str
    token: str | None
    settings: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenJob:
    """A job of a platform as a block of the YAML, and the paths of the settings that the YAML has
    no field for. `files` are those that its tasks execute, by their paths beside the YAML."""

    block: Mapping[str, Json]
    lost: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedJob:
    """A job as it was applied last: its spec, and what it launches of the project, by the task.
    Users who plan it later leave it where it is."""

    spec: Mapping[str, Json]
    requests: Mapping[str, LaunchRequest]


class JobDescriber(Protocol):
    """Says what declared jobs mean. Every method may raise BackendError."""

    @property
    def workspace(self) -> str:
        """The URL of the workspace; empty where none is known."""

    def describe(
        self,
        job: "Job",
        name: str,
        mode: "Mode",
        requests: Mapping[str, LaunchRequest],
        applied: AppliedJob | None = None,
    ) -> JobDescription:
        """What a declared job means here. What depends on the user who plans stays as it was
        `applied`.

        Args:
            name: what it is called in the file.
            requests: what it launches of the project, by the task.
        """

    def findings(self, job: "Job") -> Iterable[Diagnostic]:
        """What a plan says of a declared job, with the path of a field for a place; nothing is
        executed to find out."""


class JobBackend(JobDescriber, Protocol):
    """One workspace. Documents are those of `model.job`; a token marks a job that is ours.

    Every method may raise BackendError.
    """

    def located(
        self,
        spec: Mapping[str, Json],
        requests: Mapping[str, LaunchRequest],  # noqa: ARG002  a default
        applied: AppliedJob | None,  # noqa: ARG002  a default
    ) -> dict[str, Json]:
        """The spec of a job that another user may have planned, with the places from which this
        user launches it, unless it was `applied` with others."""
        return dict(spec)

    def stage(self, requests: Mapping[str, LaunchRequest], spec: Mapping[str, Json]) -> None:
        """Have there what a job takes along, unless its spec says that it lies in the
        staging folder of another user; does nothing if it is there.

        Raises:
            SgpuError: it is missing here, or is not taken there.
        """

    def busy(self, job_id: str) -> bool:
        """Whether a launch of a job is active; nothing is where there is no such job."""

    def last(self, job_id: str) -> JobLaunch | None:
        """The newest launch of a job; None where it was never launched, or is none."""

    def start(
        self,
        job_id: str,
        applied: AppliedJob,
        parameters: Mapping[str, str],
        tasks: Sequence[str],
        token: str,
    ) -> str:
        """Launch a job now, once for each token, and return the id of the launch.

        Args:
            applied: the job, for a backend that starts its tasks itself.
            parameters: values in the place of the defaults.
            tasks: those that run; all where none is named.

        Raises:
            OutcomeUnknown: it may have been launched.
        """

    def launch(
        self, launch_id: str, applied: AppliedJob
    ) -> tuple[JobLaunch, tuple[TaskLaunch, ...]]:
        """A launch and its tasks, in the order in which they start. Once it has ended, they have
        what they left."""

    def staged(self, applied: AppliedJob) -> bool:
        """Whether it is there, as far as this user sees."""

    def cancel(self, job_id: str) -> None:
        """Ask the active launches of a job to stop, those that wait included."""

    def free(self, job_id: str, requests: Mapping[str, LaunchRequest], *, gone: bool) -> None:
        """Delete what earlier versions of a job took along, and this one too where the job is
        `gone`. No launch of the job may be active."""

    def named(self, title: str) -> tuple[ListedJob, ...]:
        """The jobs that are called so."""

    def namesakes(self, titles: Sequence[str]) -> Mapping[str, Sequence[ListedJob]]:
        """The same of several titles, asked at once. Titles that no job has may be left out."""
        return {title: self.named(title) for title in titles}

    def read(self, job_id: str) -> dict[str, Json] | None:
        """The document of a job with its permissions, None where there is no such job."""

    def written(self, document: Mapping[str, Json], name: str) -> WrittenJob:
        """A job that was read, as the YAML would say it, with the files that this user may read.

        Args:
            name: what it is called in the file.
        """

    def create(self, document: Mapping[str, Json], token: str) -> str:
        """Make a job, unless there is one with that token, and return its id.

        Raises:
            OutcomeUnknown: it may have been made.
        """

    def reset(self, job_id: str, document: Mapping[str, Json], token: str) -> None:
        """Put a document in the place of what a job has; permissions too, where it says them."""

    def delete(self, job_id: str) -> None:
        """Delete a job; does nothing if there is none."""

    def url(self, job_id: str) -> str:
        """Where a person looks at it."""


def refuse_outputs(requests: Mapping[str, LaunchRequest]) -> None:
    """Refuse a run that reads the output of another one: an apply says which attempt that is, and
    not each launch of the job."""
    for task, request in requests.items():
        for name in sorted(references(request.inputs.spec.text)):
            raise BackendError(
                f"a job does not know which output `${{run.{name}.output}}` is",
                hint=f"let `{name}` write to a volume or a folder, and name its path in the run",
                code="run_refused",
                field="after" if task == ONE else f"{TASKS}.{task}.run",
            )
