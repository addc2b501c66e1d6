"""How attempts and runs end, as the Jobs API says it: a table."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["GOOD", "TABLE", "AttemptEnding", "Said"]


class AttemptEnding(StrEnum):
    """How something that ran has ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # the command's exit code
    UNPREPARED = "unprepared"  # what the task names could not be made ready on the node
    NOT_INSTALLED = "not_installed"  # a dependency of the environment
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    NODE_LOST = "node_lost"
    NO_CAPACITY = "no_capacity"  # the emulator's own limit on waiting, not the task's timeout
    PLATFORM = "platform"
    DRIVER = "driver"
    UPSTREAM_FAILED = "upstream_failed"
    UPSTREAM_CANCELLED = "upstream_cancelled"
    EXCLUDED = "excluded"
    WITH_FAILURES = "with_failures"  # of a run: of the tasks at its end, none has failed
    SKIPPED = "skipped"  # as many runs of the job were active as there may be


GOOD = frozenset({AttemptEnding.SUCCEEDED, AttemptEnding.EXCLUDED})
"""What lets the tasks after it run, and needs no repair."""


@dataclass(frozen=True, slots=True)
class Said:
    """The words of the API: old and new state, termination code and type; and whether a further
    attempt is made while some are left."""

    life_cycle: str
    result: str
    code: str
    type: str
    again: bool = False


TABLE = {
    AttemptEnding.SUCCEEDED: Said("TERMINATED", "SUCCESS", "SUCCESS", "SUCCESS"),
    AttemptEnding.FAILED: Said(
        "TERMINATED", "FAILED", "RUN_EXECUTION_ERROR", "CLIENT_ERROR", again=True
    ),
    AttemptEnding.UNPREPARED: Said(
        "INTERNAL_ERROR", "FAILED", "RUN_EXECUTION_ERROR", "CLIENT_ERROR", again=True
    ),
    AttemptEnding.NOT_INSTALLED: Said(
        "INTERNAL_ERROR", "FAILED", "LIBRARY_INSTALLATION_ERROR", "CLIENT_ERROR", again=True
    ),
    # Tried again only where the task says `retry_on_timeout`.
    AttemptEnding.TIMED_OUT: Said("TERMINATED", "TIMEDOUT", "RUN_EXECUTION_ERROR", "CLIENT_ERROR"),
    AttemptEnding.CANCELLED: Said("TERMINATED", "CANCELED", "USER_CANCELED", "CLIENT_ERROR"),
    AttemptEnding.NODE_LOST: Said(
        "INTERNAL_ERROR", "FAILED", "CLOUD_FAILURE", "CLOUD_FAILURE", again=True
    ),
    AttemptEnding.NO_CAPACITY: Said("INTERNAL_ERROR", "FAILED", "CLOUD_FAILURE", "CLOUD_FAILURE"),
    # With retries left it is tried again, whatever was wrong (evidence: A4).
    AttemptEnding.PLATFORM: Said(
        "INTERNAL_ERROR", "FAILED", "INTERNAL_ERROR", "INTERNAL_ERROR", again=True
    ),
    AttemptEnding.DRIVER: Said(
        "INTERNAL_ERROR", "FAILED", "DRIVER_ERROR", "INTERNAL_ERROR", again=True
    ),
    AttemptEnding.UPSTREAM_FAILED: Said("SKIPPED", "UPSTREAM_FAILED", "SKIPPED", "CLIENT_ERROR"),
    AttemptEnding.UPSTREAM_CANCELLED: Said(
        "SKIPPED", "UPSTREAM_CANCELED", "SKIPPED", "CLIENT_ERROR"
    ),
    AttemptEnding.EXCLUDED: Said("SKIPPED", "EXCLUDED", "SKIPPED", "SUCCESS"),
    AttemptEnding.WITH_FAILURES: Said("TERMINATED", "SUCCESS_WITH_FAILURES", "SUCCESS", "SUCCESS"),
    AttemptEnding.SKIPPED: Said(
        "SKIPPED", "MAXIMUM_CONCURRENT_RUNS_REACHED", "MAX_CONCURRENT_RUNS_EXCEEDED", "CLIENT_ERROR"
    ),
}
