"""What was applied: the recorded side of every comparison."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState, AttemptStatus, FailureClass
from sgpu_decl.model.environment import PackageList

__all__ = ["Attempt", "Intent", "LockHolder", "Resource", "State"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A line of history. `state` is what was known when it was last recorded: while it is active
    the truth is the backend's. `environment_digest` is that of a declared environment;
    `packages_digest` names the list of what ranks found, declared or not. `pool` is the id of
    the pool that its GPUs come from, where they come from one."""

    ref: AttemptRef
    token: str
    backend: str
    state: AttemptState
    spec: str
    fingerprint: str
    code_digest: str | None
    created_at: datetime
    environment_digest: str | None = None
    packages_digest: str | None = None
    pool: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    failure: FailureClass | None = None
    plan_id: str | None = None

    def seen_as(self, status: AttemptStatus) -> "Attempt":
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
    """A run or an environment that was applied: `spec` is the canonical JSON last applied (launch
    and meta fields may be newer than those of `last`), `owner` the file that declares it, relative
    to the project.
    `gone` after destroy, forget or a move to another address. `numbered` is the highest attempt
    number that was ever given here: no number is given twice, since tokens are made of it.
    `remote` says where a backend keeps it, in the backend's own words."""

    address: Address
    backend: str
    owner: str
    spec: str
    last: Attempt | None
    gone: bool = False
    numbered: int = 0
    remote: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A side effect that was decided and may or may not have happened. `token` finds it again.

    `attempt_record` is what is remembered of a launch that happened, `resource_record` of a job
    that was made; the other is None."""

    token: str
    address: Address
    owner: str
    action: str
    attempt: int
    plan_id: str
    attempt_record: Attempt | None
    created_at: datetime
    resource_record: Resource | None = None


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
    package_lists: Mapping[str, PackageList] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """Who holds the state lock, for the message that refuses the next one."""

    id: str
    who: str
    host: str
    pid: int
    operation: str
    since: datetime
