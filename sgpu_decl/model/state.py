"""What was applied: the recorded side of every comparison."""

from collections.abc import Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from sgpu_decl.frozen_dataclass import FLAT, UNWRITTEN, dataclass, written_as
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.launch import LaunchInputs, LaunchRecord, Provenance

if TYPE_CHECKING:  # `sgpu status` reads no package list
    from sgpu_decl.model.attempt_view import AttemptView
    from sgpu_decl.model.environment import PackageList

KEEP_LAST = 3  # attempts of each run that gc keeps unless it is told otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A line of history. `state` is what was known when it was last recorded: while it is active
    the truth is the backend's. `reference`, `formerly` and `provenance` are those of its
    `LaunchRecord`."""

    ref: AttemptRef = field(metadata=UNWRITTEN)
    state: AttemptState
    token: str
    backend: str
    inputs: LaunchInputs = field(metadata=FLAT)
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    failure: FailureClass | None = field(default=None, metadata=written_as("class"))
    plan_id: str | None = None
    reference: str | None = None
    formerly: tuple[Address, ...] = field(default=(), metadata=UNWRITTEN)
    provenance: Provenance = field(default=Provenance(), metadata=FLAT)

    @property
    def recorded_at(self) -> datetime:
        """When the state was recorded, at the earliest: an attempt is recorded when it is launched,
        and once it has ended."""
        return self.created_at if self.ended_at is None else max(self.created_at, self.ended_at)

    def seen_as(self, status: "AttemptView") -> "Attempt":
        """The same attempt as its backend sees it now."""
        return replace(
            self,
            state=status.state,
            started_at=status.started_at or self.started_at,
            ended_at=status.ended_at or self.ended_at,
            exit_code=status.exit_code,
            failure=status.failure,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A run or an environment that was applied: `spec` is what was applied last (launch
    and meta fields may be newer than those of `last`), `owner` the file that declares it, relative
    to the project.
    `gone` after destroy, forget or a move to another address. `numbered` is the highest attempt
    number that was ever given here: no number is given twice, since tokens are made of it.
    `remote` says where a backend keeps it, in the backend's own words."""

    address: Address
    backend: str
    owner: str
    spec: Spec
    last: Attempt | None
    gone: bool = False
    numbered: int = 0
    remote: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A side effect that was decided and may or may not have happened. `token` finds it again.

    `launch` is the launch that was decided, `job` the job that was to be made; the other is None.
    """

    token: str
    address: Address
    owner: str
    action: str
    attempt: int
    plan_id: str
    created_at: datetime
    launch: LaunchRecord | None = None
    job: Resource | None = None

    @property
    def attempt_record(self) -> Attempt | None:
        """The attempt that is recorded once its launch is known to have happened."""
        if self.launch is None:
            return None
        return Attempt(
            ref=self.launch.ref,
            token=self.launch.token,
            backend=self.launch.backend,
            inputs=self.launch.inputs,
            state=AttemptState.QUEUED,
            created_at=self.created_at,
            plan_id=self.plan_id,
            reference=self.launch.reference,
            provenance=self.launch.provenance,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentEnd:
    """What came of the intent of a launch: the resource and the attempt, or nothing."""

    intent: Intent
    resource: Resource | None = None
    attempt: Attempt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """`active` lists every attempt that is recorded as active, older ones of a resource included
    (`on_active: parallel` leaves several); `package_lists` maps digests to the lists that resources
    and their last attempts speak of."""

    lineage: str
    serial: int
    resources: Mapping[Address, Resource]
    active: tuple[Attempt, ...] = ()
    intents: tuple[Intent, ...] = ()
    package_lists: "Mapping[str, PackageList]" = field(default_factory=dict)

    def launch_of(self, attempt: Attempt) -> LaunchRecord:
        """What is remembered of the launch of a recorded attempt. What its ranks waited for is
        not."""
        resource = self.resources.get(attempt.ref.address)
        return LaunchRecord(
            ref=attempt.ref,
            backend=attempt.backend,
            token=attempt.token,
            lineage=self.lineage,
            owner=resource.owner if resource is not None else "",
            inputs=attempt.inputs,
            reference=attempt.reference,
            formerly=attempt.formerly,
            provenance=attempt.provenance,
        )

    def launches(self) -> dict[AttemptRef, LaunchRecord]:
        """The launches of all active attempts, of the last one of each resource, and of intents."""
        last = (resource.last for resource in self.resources.values() if resource.last is not None)
        known = {item.ref: self.launch_of(item) for item in (*last, *self.active)}
        begun = (intent.launch for intent in self.intents if intent.launch is not None)
        return known | {item.ref: item for item in begun}

    def earlier(self, launch: LaunchRecord) -> tuple[LaunchRecord, ...]:
        """The launches that the ranks of another wait for, as far as they are active."""
        return tuple(
            self.launch_of(item)
            for item in self.active
            if item.ref.address == launch.ref.address and item.ref.number in launch.wait_for
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """Who holds the state lock, for the message that refuses the next one."""

    id: str
    who: str
    host: str
    pid: int
    operation: str
    since: datetime
