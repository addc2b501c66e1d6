"""One launch of a run, and the states it goes through."""

from enum import StrEnum

from sgpu_decl.agent.retry_rule import BLAME
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address


class AttemptState(StrEnum):
    QUEUED = "queued"
    STAGING = "staging"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"

    @property
    def active(self) -> bool:
        return self in ACTIVE


ACTIVE = frozenset(
    {
        AttemptState.QUEUED,
        AttemptState.STAGING,
        AttemptState.STARTING,
        AttemptState.RUNNING,
        AttemptState.STOPPING,
    }
)
BACKOFF = "backoff"
"""What an attempt waits for before its ranks are started again."""

ENDED = frozenset(AttemptState) - ACTIVE


class Blame(StrEnum):
    """Who is to blame for a failure: `retry.on` and the planner decide by it."""

    ERROR = "error"
    INFRA = "infra"


class FailureClass(StrEnum):
    EXCEPTION = "exception"
    EXIT_CODE = "exit_code"
    SIGNAL_SELF = "signal_self"
    OOM = "oom"
    TIMEOUT = "timeout"
    HUNG = "hung"
    LAUNCH_FAILED_USER = "launch_failed_user"
    KILLED = "killed"
    LAUNCH_FAILED = "launch_failed"
    NODE_LOST = "node_lost"
    SUPERVISOR_LOST = "supervisor_lost"
    STAGING_FAILED = "staging_failed"
    CAPACITY = "capacity"
    PREEMPTED = "preempted"
    PLATFORM = "platform"
    UPSTREAM_FAILED = "upstream_failed"


NOT_STARTED = frozenset(
    {
        FailureClass.LAUNCH_FAILED_USER,
        FailureClass.LAUNCH_FAILED,
        FailureClass.STAGING_FAILED,
        FailureClass.CAPACITY,
        FailureClass.UPSTREAM_FAILED,
    }
)
"""The failures that come before ranks run."""


def blame_of(failure: FailureClass) -> Blame:
    return Blame(BLAME[failure])


@dataclass(frozen=True, slots=True, order=True)
class AttemptRef:
    """`run.train` and 8: written `train#8`."""

    address: Address
    number: int

    def __str__(self) -> str:
        return f"{self.address.label}#{self.number}"
