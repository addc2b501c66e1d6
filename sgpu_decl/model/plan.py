"""The plan: every change, its reason, and all that apply needs. Field names are the public JSON
contract (`schemas/plan.v1.schema.json`); `planner/plan_json` has what differs there."""

from collections.abc import Sequence
from dataclasses import field, fields
from datetime import datetime
from enum import StrEnum

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import FLAT, PRIVATE, SOMETIMES, UNWRITTEN, dataclass
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.attempt import NOT_STARTED, AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.environment import PackageList
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchInputs, Reason
from sgpu_decl.model.project_home import ProjectIdentity

__all__ = [
    "FORMAT_VERSION",
    "Action",
    "Cause",
    "Change",
    "CodeChange",
    "EnvironmentChange",
    "Estimate",
    "FieldChange",
    "FieldDifference",
    "FieldEffect",
    "FieldOrigin",
    "GitFacts",
    "OriginRole",
    "PackageChange",
    "Plan",
    "PlanPlatform",
    "PlannedLaunch",
    "Prior",
    "Reason",
    "Summary",
    "Upstream",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDifference:
    """One path whose value differs: `added` where the old side lacks it, `removed` where the new
    one does."""

    path: str
    before: Json
    after: Json
    added: bool
    removed: bool


class OriginRole(StrEnum):
    """What a place has to do with the value."""

    VALUE = "value"
    FILLED = "filled"
    REFERENCE = "reference"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldOrigin:
    """`layer` is what the place belongs to, if that is not the run or job itself: `target prod`,
    `defaults`, `presets`."""

    place: Place
    role: OriginRole
    layer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GitFacts:
    """The checkout that a plan was made from; what git cannot say is `None`. `tree` is the id of
    the project's folder: it stays the same through a merge, a squash or a rebase, where `commit`
    does not. `base` is the commit that the plan was compared with. `dirty` says whether a tracked
    file differs from the commit; a plan that changes something learns it when it is saved or
    applied."""

    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    base: str | None = None
    tree: str | None = None

    @property
    def of_launch(self) -> dict[str, str]:
        """What an attempt keeps: the known ones of `commit`, `branch` and `dirty`, as text."""
        dirty = None if self.dirty is None else str(self.dirty).lower()
        facts = {"commit": self.commit, "branch": self.branch, "dirty": dirty}
        return {name: text for name, text in facts.items() if text is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPlatform:
    """Where runs of a plan go, other than this machine: the backend, the address that it is asked
    at, and who asks, where the platform knows users."""

    backend: str
    host: str
    user: str | None = None


FORMAT_VERSION = "1.4"
"""Of the plans that are written. Any 1.x is read."""


class Action(StrEnum):
    """In order of severity: a resource's action is the greatest of those its fields ask for."""

    NO_OP = "no_op"
    FORGET = "forget"
    ADOPT = "adopt"
    UPDATE = "update"
    CREATE = "create"
    REPLACE = "replace"
    DESTROY = "destroy"

    @property
    def severity(self) -> int:
        return tuple(Action).index(self)


class Cause(StrEnum):
    """Why a change stands in a plan that is compared with a base (`--base`)."""

    CHANGE = "change"  # this branch does it
    PENDING = "pending"  # the base would do the same: it is merged, and not applied yet
    DRIFT = "drift"  # the base would do the same, and nobody changed a file
    WITHDRAWN = "withdrawn"  # the base would do it, and this branch does not


class FieldEffect(StrEnum):
    """What a changed field does."""

    NEW_ATTEMPT = "new_attempt"
    IN_PLACE = "in_place"
    NEXT_ATTEMPT = "next_attempt"
    STATE_ONLY = "state_only"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """`path` is dotted and relative to the resource (`args.n`). A side that is not there is `None`,
    as one that holds `null`: `added` and `removed` tell them apart. `drifted` says that nobody
    changed it but in the workspace."""

    path: str
    before: Json
    after: Json
    effect: FieldEffect
    origin: Place | None = None
    added: bool = field(default=False, metadata=UNWRITTEN)
    removed: bool = field(default=False, metadata=UNWRITTEN)
    drifted: bool = field(default=False, metadata=UNWRITTEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeChange:
    digest: str
    files: int
    bytes: int
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageChange:
    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentChange:
    digest: str | None
    packages: tuple[PackageChange, ...] = field(default=(), metadata=UNWRITTEN)
    bytes: int | None = None
    bytes_to_stage: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    attempt: int
    state: AttemptState
    ended_at: datetime | None
    failure: FailureClass | None = None

    @property
    def not_started(self) -> bool:
        """Whether its ranks did not run."""
        return self.failure in NOT_STARTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """An attempt of another run that must succeed before the ranks of a launch start (`after`)."""

    address: Address
    attempt: int

    @property
    def ref(self) -> AttemptRef:
        return AttemptRef(self.address, self.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLaunch:
    """All that apply needs to carry a change out: never decided again.

    `wait_for` names the attempts of the same run that must end first (`on_active: queue`),
    `stop` those that are cancelled first (replace) or at all (destroy), `beside` those that go on
    meanwhile (parallel). `made` is the number of jobs that were ever created at this address,
    with the one that is created now.
    """

    owner: str
    inputs: LaunchInputs = field(metadata=FLAT)
    token: str | None = None
    stop: tuple[int, ...] = ()
    wait_for: tuple[int, ...] = ()
    beside: tuple[int, ...] = ()
    made: int | None = field(default=None, metadata=SOMETIMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What becomes of one resource. `moved_from` is the address that its history has until then.
    `unavailable` says why `prior` cannot be asked now: it is as it was known last."""

    address: Address
    kind: Kind
    backend: str
    action: Action
    reason: Reason
    destructive: bool = False
    depends_on: tuple[Address, ...] = ()
    after: tuple[Upstream, ...] = ()
    attempt: int | None = None
    prior: Prior | None = None
    fields: Sequence[FieldChange] = ()
    unchanged: int = field(default=0, metadata=PRIVATE)
    code: CodeChange | None = None
    environment: EnvironmentChange | None = None
    launch: PlannedLaunch | None = field(default=None, metadata=PRIVATE)
    cause: Cause | None = None
    moved_from: Address | None = None
    unavailable: str | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing is done."""
        return self.action is Action.NO_OP and self.moved_from is None

    @property
    def launches(self) -> bool:
        """Whether ranks start by it; the token of a job marks what is made."""
        return self.kind is Kind.RUN and self.launch is not None and self.launch.token is not None

    @property
    def stages(self) -> bool:
        """Whether it takes code and an environment to where ranks look for them."""
        made = self.action in (Action.CREATE, Action.UPDATE)
        return self.launches or (self.kind is Kind.JOB and made)

    @property
    def waits_for(self) -> tuple[AttemptRef, ...]:
        """The older attempts that must end before the ranks of the new one start."""
        if self.launch is None or self.launch.token is None:
            return ()
        numbers = sorted({*self.launch.wait_for, *self.launch.stop})
        return tuple(AttemptRef(self.address, number) for number in numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Unknown amounts are `None`, never 0. Hours of GPU time; cost in `currency`."""

    gpu_hours_expected: float | None = None
    gpu_hours_worst: float | None = None
    cost_expected: float | None = None
    cost_worst: float | None = None
    currency: str | None = None
    price_source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Counts of runs and jobs by action."""

    create: int = 0
    update: int = 0
    replace: int = 0
    destroy: int = 0
    adopt: int = 0
    no_op: int = 0
    forget: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`project` is the absolute folder that the plan was made for, `project_name` the name that a
    project file gives it; `destroy` says that the end of
    all was asked for. `changes` is sorted by address and holds every resource. `applyable` is false
    when nothing would be done or an error stands in the way; `complete` is false when something was
    left out of it (`--select`, an unreadable backend). `package_lists` are those that its launches
    speak of. `values_left_out` are files, relative to the project, that are no part of the code
    because the command of the plan named them with `--var-file`. `platforms` are those that its
    runs go to. `git` says which commit its files are from, and `identity`, of a saved plan, which
    project of which repository it is: both are `None` outside of a checkout."""

    tool_version: str
    target: str | None
    project: str = field(metadata=PRIVATE)
    destroy: bool = field(metadata=PRIVATE)
    lineage: str
    serial: int
    created_at: datetime
    config_digest: str
    complete: bool
    applyable: bool
    changes: tuple[Change, ...]
    checks: tuple[Diagnostic, ...]
    estimate: Estimate
    summary: Summary
    package_lists: tuple[PackageList, ...] = field(default=(), metadata=UNWRITTEN)
    project_name: str | None = None
    values_left_out: tuple[str, ...] = field(default=(), metadata=PRIVATE)
    platforms: tuple[PlanPlatform, ...] = ()
    git: GitFacts | None = field(default=None, compare=False)
    identity: ProjectIdentity | None = field(default=None, compare=False, metadata=PRIVATE)

    @property
    def launches(self) -> bool:
        """Whether ranks start by it."""
        return any(change.launches for change in self.changes)

    def __repr__(self) -> str:
        """Short: a notebook or a debugger shows it."""
        counts = [
            f"{count} {item.name}"
            for item in fields(Summary)
            if (count := getattr(self.summary, item.name))
        ]
        return f"<{type(self).__name__}: {', '.join(counts) or 'nothing to do'}>"
