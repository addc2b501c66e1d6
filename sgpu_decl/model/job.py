"""Jobs: what is wanted of one, what is remembered, and what is seen where it is kept.

A job's settings travel as a document: the platform's own settings as one JSON object, in which
lists whose members have names are mappings by name. So every setting has a path, in whatever order
a platform lists them. `permissions`, where they are said, map
kinds of principals to their names, and these to levels. `ownership` says of a job that is seen who
made it (`creator`), who owns it (`owner`) and whom its launches run as (`runs_as`).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from datetime import datetime
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeVar, cast

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import StateError
from sgpu_decl.frozen_dataclass import FLAT, UNWRITTEN, dataclass, written_as
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.attempt_details import FirstCause
from sgpu_decl.model.codec import to_json
from sgpu_decl.model.desired import NO_PLACES, DesiredRun
from sgpu_decl.model.jsonable import Json, Spec, canonical
from sgpu_decl.model.plan import Reason
from sgpu_decl.model.state import Resource


class Anything(Enum):
    """Whatever the platform says is as good."""

    ANYTHING = "anything"


@dataclass(frozen=True, slots=True)
class JobDefault:
    """The values that the platform adds by itself, and why."""

    values: tuple[Json | Anything, ...]
    why: str


@dataclass(frozen=True, slots=True)
class JobRule:
    """What a change of a setting is, and why."""

    reason: Reason
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStart:
    """What starts a job by itself: the clock, or a trigger as the platform has it. `paused` says
    whether that is suspended; `None` where nothing starts it."""

    schedule: str | None = None
    timezone: str | None = None
    trigger: Mapping[str, Json] | None = None
    paused: bool | None = field(default=None, metadata=UNWRITTEN)


@dataclass(frozen=True, slots=True)
class JobField:
    """A setting of a job as the YAML says it: the path of a field, and the value there. A setting
    that is `implied` goes without saying."""

    path: str
    value: Json
    implied: bool = False


def _field_alone(path: str, settings: Mapping[str, Json]) -> JobField:
    return JobField(path, settings[path])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobRules:
    """Attributes:
    defaults: the settings that the platform adds by itself, by their paths: where nobody asked for
        anything, they are no drift. One that expects anything holds for all below its path too.
    reasons: what a changed setting is, by its path, for it and all below it. What is not named is
        the config of the job.
    task: the block that says what is launched.
    of_run: the blocks that are made of the run which the job launches.
    of_notebook: the parts of a member of these blocks that only notebooks have.
    order: the parts of a task that say which tasks come before it, and how they must have ended.
    start: says what starts a job, of its document.
    where: words for where jobs are, after "it was edited".
    link: where a person looks at a job, of its workspace and its id.
    changing: the levels of permissions that let somebody change a job.
    field: a setting as the YAML says it, of its path and all settings by their paths.
    setting_paths: the paths of the settings that a field of the YAML leads to, of the field and the
        name of the job; a path of a setting leads to itself.
    staged_by: the user whose own staging folder a job is launched from, of its document; None where
        the folder is nobody's own.
    is_id: whether a text may be the id of a job.
    manager: says who else manages a job, of its document, in words for messages; None where nobody
        does.
    lacks: the fields of a job in the YAML that the platform has nothing for; those of any task as
        `tasks.*.FIELD`.
    """

    defaults: Mapping[str, JobDefault] = field(default_factory=lambda: MappingProxyType({}))
    reasons: Mapping[str, JobRule] = field(default_factory=lambda: MappingProxyType({}))
    task: str = ""
    of_run: frozenset[str] = frozenset()
    of_notebook: frozenset[str] = frozenset()
    order: frozenset[str] = frozenset()
    start: Callable[[Mapping[str, Json]], JobStart] = lambda document: JobStart()  # noqa: ARG005
    where: str = "in the workspace"
    link: Callable[[str, str], str] = lambda workspace, job_id: f"{workspace} {job_id}"
    changing: frozenset[str] = frozenset()
    field: Callable[[str, Mapping[str, Json]], JobField] = _field_alone
    setting_paths: Callable[[str, str], tuple[str, ...]] = lambda field, name: (field,)  # noqa: ARG005
    staged_by: Callable[[Mapping[str, Json]], str | None] = lambda document: None  # noqa: ARG005
    is_id: Callable[[str], bool] = bool
    manager: Callable[[Mapping[str, Json]], str | None] = lambda document: None  # noqa: ARG005
    lacks: tuple[str, ...] = ()

    def has(self, path: str) -> bool:
        """Whether the platform has something for a field."""
        return first_match([(pattern, True) for pattern in self.lacks], path) is None

    def is_default(self, path: str, value: Json) -> bool:
        """Whether the platform says so by itself where nobody asked for anything at `path`.
        Settings that are empty are never drift: a platform writes them, or leaves them out. What
        people named is there, even where it is empty."""
        named = value == "" and path.startswith(("parameters.", "tags."))
        if value in (None, "", [], {}) and not named:
            return True
        default = _default(self, path)
        if default is None:
            return False
        return Anything.ANYTHING in default.values or any(
            not isinstance(one, Anything) and canonical(one) == canonical(value)
            for one in default.values
        )


@lru_cache(maxsize=4096)
def _default(rules: JobRules, path: str) -> JobDefault | None:
    parts = path.split(".")
    for pattern, default in rules.defaults.items():
        names = pattern.split(".")
        above = Anything.ANYTHING in default.values
        if (len(names) == len(parts) or above) and _fits(names, parts):
            return default
    return None


_Found = TypeVar("_Found")


def first_match(patterns: Iterable[tuple[str, _Found]], path: str) -> _Found | None:
    """What belongs to the first pattern that holds for a path, or for what is above it."""
    parts = path.split(".")
    return next((found for pattern, found in patterns if _fits(pattern.split("."), parts)), None)


def _fits(names: list[str], parts: list[str]) -> bool:
    return len(names) <= len(parts) and all(
        name in ("*", part) for name, part in zip(names, parts, strict=False)
    )


OWNERSHIP, PERMISSIONS = "ownership", "permissions"
RUN, STAGED, TASKS = "run", "staged", "tasks"
KIND, SCRIPT, NOTEBOOK = "kind", "python", "notebook"
OURS = frozenset({"backend", "lifecycle", "notify", RUN, STAGED})
"""Keys of a job's spec that are no settings of the platform's: `run` is what is launched, as its
YAML says it, and `staged` the digests of what that takes along. `notify` says that this field of
the YAML has the mail addresses."""

OURS_IN_TASK = frozenset({KIND, RUN, STAGED, SCRIPT, NOTEBOOK})
"""The same of each task of a job that has several: `kind` is the field of the YAML that says what
it is, `python` and `notebook` a file of the repository with its arguments or parameters."""

ONE = ""
"""Stands for the name of the task where a job launches only one run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHandle:
    """Where a job is kept. `token` marks it there, so that it is known again."""

    id: str
    workspace: str
    token: str

    def __str__(self) -> str:
        return canonical({"id": self.id, "token": self.token, "workspace": self.workspace})

    @classmethod
    def parse(cls, text: str) -> "JobHandle":
        """Read the text form.

        Raises:
            ValueError: it is none.
        """
        value = json.loads(text)
        match value:
            case {"id": str(job_id), "workspace": str(workspace), "token": str(token)} if (
                job_id and workspace and token
            ):
                return cls(id=job_id, workspace=workspace, token=token)
        raise ValueError(f"`{text[:200]}` does not say where a job is kept")


def handle_of(job: Resource | None) -> JobHandle | None:
    """Where a recorded job is kept; None where there is none, or it is gone.

    Raises:
        StateError: its record does not say it.
    """
    if job is None or job.gone or job.remote is None:
        return None
    return recorded_handle(job)


def recorded_handle(job: Resource) -> JobHandle:
    """Where a recorded job is kept, or was.

    Raises:
        StateError: its record does not say it.
    """
    try:
        return JobHandle.parse(job.remote or "null")
    except ValueError as error:
        raise StateError(
            f"the record of `{job.address}` is damaged: {error}",
            hint=f"`sgpu state rm {job.address}` removes it from the state, and "
            f"`sgpu adopt {job.address} ID` records the job again; it is not deleted",
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredJob:
    """One declared job.

    `spec` is the document, and what is `OURS`. `places` maps a path of it to where
    the user wrote what led to it. `title` is what the job is called where it is kept. `launches`
    are what it launches of the project, by the task: runs, and files of the repository, whose
    address is that of the job and the task. `rules` are those of the platform that keeps it.
    `kept` are its specs with the code that was staged earlier, where that differs in nothing
    that counts: the job is left with such code.
    """

    address: Address
    backend: str
    owner: str
    spec: Spec
    title: str
    launches: Mapping[str, DesiredRun] = field(default_factory=lambda: MappingProxyType({}))
    rules: JobRules = field(default_factory=JobRules, compare=False)
    kept: tuple[Spec, ...] = ()
    prevent_destroy: bool = False
    places: Mapping[str, Place] = field(
        default_factory=lambda: NO_PLACES, compare=False, hash=False
    )
    findings: tuple[Diagnostic, ...] = ()

    @property
    def runs(self) -> Iterator[DesiredRun]:
        """The runs of the project that it launches."""
        return (one for one in self.launches.values() if one.address.kind is Kind.RUN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedJob:
    """What is seen where a job is kept. `document` is None where there is no such job; `staged`
    says whether what its run took along is there yet; `namesakes` are others of its title,
    asked for before one is made: who manages them, None if nobody does, by their ids. `hidden`
    says why this user may not see it; `document` is then what was applied last.
    """

    workspace: str
    document: Spec | None = None
    staged: bool = True
    namesakes: Mapping[str, str | None] = field(default_factory=dict)
    hidden: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLaunch:
    """One launch of a job by its platform: not an attempt of ours."""

    id: str
    state: AttemptState
    started_at: datetime | None
    ended_at: datetime | None
    url: str = field(metadata=written_as("link"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLaunch:
    """One task of a launch, in its newest attempt. `skipped` says that it did not run, because of
    how the tasks before it ended. `output` is the value that a notebook ended with, the end of what
    a Python file or ranks printed, or why the task failed. For a run, `first_cause` says why it
    failed, and `results` what ranks returned. All three are set once the launch has ended."""

    name: str
    state: AttemptState
    skipped: bool = False
    started_at: datetime | None = None
    ended_at: datetime | None = None
    url: str = field(default="", metadata=written_as("link"))
    output: str | None = None
    first_cause: FirstCause | None = None
    results: tuple[Mapping[str, Json], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedJob:
    """A launch that somebody asked for: the job, the launch, and its tasks in the order in which
    they start. `again` says that an earlier, interrupted command started the launch. `behind` is
    the id of a launch that was active then."""

    address: Address
    launch: JobLaunch
    tasks: tuple[TaskLaunch, ...] = ()
    again: bool = False
    behind: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job. `state` is `scheduled`, `paused`, `manual` (nothing starts it by itself), `missing`
    or `unknown`; `error` says why it is unknown. `url` is where a person looks at it, `live` the
    settings that it has there, `spec` those that were applied."""

    address: Address
    backend: str
    owner: str
    title: str | None
    state: str
    handle: JobHandle | None = field(metadata=UNWRITTEN)
    start: JobStart = field(metadata=FLAT)
    spec: Mapping[str, Any]
    live: Mapping[str, Any] | None = None
    url: str | None = field(default=None, metadata=UNWRITTEN)
    last: JobLaunch | None = None
    error: str | None = None


def job_fields(job: JobView) -> dict[str, Json]:
    """What `status -o json` says of a job."""
    whole = whole_job_fields(job)
    return {key: whole[key] for key in whole if key not in ("owner", "spec", "live")}


def whole_job_fields(job: JobView) -> dict[str, Json]:
    """What `show -o json` says of a job."""
    return {
        "name": job.address.label,
        **cast("dict[str, Json]", to_json(job)),
        "id": job.handle.id if job.handle else None,
        "workspace": job.handle.workspace if job.handle else None,
        "links": {"job": job.url} if job.url else {},
    }
