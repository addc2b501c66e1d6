"""Jobs: what is wanted of one, what is remembered, and what is seen where it is kept.

A job's settings travel as a document: the platform's own settings as one JSON object, in which
lists whose members have names are mappings by name. So every setting has a path, in whatever order
a platform lists them. `permissions`, where they are said, map
kinds of principals to their names, and these to levels. `ownership` says of a job that is seen who
made it (`creator`), who owns it (`owner`) and whom its launches run as (`runs_as`).
"""

import json
from collections.abc import Mapping
from dataclasses import field

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import StateError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address
from sgpu_decl.model.canonical_spec import Spec
from sgpu_decl.model.desired import NO_PLACES, DesiredRun
from sgpu_decl.model.job_rules import JobRules
from sgpu_decl.model.jsonable import canonical
from sgpu_decl.model.state import Resource

OWNERSHIP, PERMISSIONS = "ownership", "permissions"
RUN, STAGED = "run", "staged"
OURS = frozenset({"backend", "lifecycle", RUN, STAGED})
"""Keys of a job's spec that are no settings of the platform's: `run` is what is launched, as its
YAML says it, and `staged` the digests of what that takes along."""


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
    the user wrote what led to it. `title` is what the job is called where it is kept. `run` is what
    it launches, where that is a run of the project. `rules` are those of the platform that keeps
    it. `kept` are its specs with the code that was staged earlier, where that differs in nothing
    that counts: the job is left with such code.
    """

    address: Address
    backend: str
    owner: str
    spec: Spec
    title: str
    run: DesiredRun | None = None
    rules: JobRules = field(default_factory=JobRules, compare=False)
    kept: tuple[Spec, ...] = ()
    prevent_destroy: bool = False
    ignore_changes: tuple[str, ...] = ()
    places: Mapping[str, Place] = field(
        default_factory=lambda: NO_PLACES, compare=False, hash=False
    )
    findings: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedJob:
    """What is seen where a job is kept. `document` is None where there is no such job; `staged`
    says whether what its run took along is there yet; `namesakes` are the ids of others of its
    title, asked for before one is made.
    """

    workspace: str
    document: Spec | None = None
    staged: bool = True
    namesakes: tuple[str, ...] = ()
