"""How the platform says that a run is going and how it ended, in our words: tables."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sgpu_decl.backends.remote.watching.remote_status import PlatformEnding
from sgpu_decl.model.attempt import AttemptState, FailureClass

_ACTIVE: Mapping[str, AttemptState] = MappingProxyType(
    {
        "BLOCKED": AttemptState.QUEUED,
        "PENDING": AttemptState.QUEUED,
        "QUEUED": AttemptState.QUEUED,
        "WAITING": AttemptState.QUEUED,
        "WAITING_FOR_RETRY": AttemptState.QUEUED,
        "RUNNING": AttemptState.RUNNING,
        "TERMINATING": AttemptState.STOPPING,
    }
)

_USER, _PLATFORM, _CAPACITY = (
    FailureClass.LAUNCH_FAILED_USER,
    FailureClass.PLATFORM,
    FailureClass.CAPACITY,
)
# Termination codes of the Jobs API. Those of a command that ran are in `_failure`.
_BY_CODE: Mapping[str, FailureClass] = MappingProxyType(
    {
        "BREAKING_CHANGE": _PLATFORM,
        "BUDGET_POLICY_LIMIT_EXCEEDED": _USER,
        "CLOUD_FAILURE": _PLATFORM,
        "CLUSTER_ERROR": _PLATFORM,
        "CLUSTER_REQUEST_LIMIT_EXCEEDED": _CAPACITY,
        "DISABLED": _USER,
        "DRIVER_ERROR": _PLATFORM,
        "FEATURE_DISABLED": _USER,
        "INTERNAL_ERROR": _PLATFORM,
        "INVALID_CLUSTER_REQUEST": _USER,
        "INVALID_RUN_CONFIGURATION": _USER,
        "LIBRARY_INSTALLATION_ERROR": _USER,
        "MAX_CONCURRENT_RUNS_EXCEEDED": _CAPACITY,
        "MAX_JOB_QUEUE_SIZE_EXCEEDED": _CAPACITY,
        "MAX_SPARK_CONTEXTS_EXCEEDED": _CAPACITY,
        "REPOSITORY_CHECKOUT_FAILED": _USER,
        "RESOURCE_NOT_FOUND": _USER,
        "RUN_EXECUTION_ERROR": FailureClass.EXIT_CODE,
        "SKIPPED": _PLATFORM,
        "STORAGE_ACCESS_ERROR": _USER,
        "UNAUTHORIZED_ERROR": _USER,
        "USER_CANCELED": FailureClass.PREEMPTED,
        "WORKSPACE_RUN_LIMIT_EXCEEDED": _CAPACITY,
    }
)
_NO_ROOM = re.compile(
    r"exceeded its GPU quota"
    r"|(insufficient|not enough|no|out of)( available| sufficient)?( GPU| compute)* capacity"
    r"|capacity (is )?(not available|unavailable|exhausted)",
    re.IGNORECASE,
)
"""The platform has no code for a quota that is used up: it says `INTERNAL_ERROR`, and this. Seen:
"Workspace has exceeded its GPU quota for GPU_8xH100"."""


_NEXT_STEPS: Mapping[FailureClass, str] = MappingProxyType(
    {
        _CAPACITY: "apply again later, or use another `type`, fewer `gpus` or a `pool`",
        FailureClass.NODE_LOST: "apply again, or let the platform bring new nodes by itself with "
        "`retry`",
    }
)


def attempt_number(task: Mapping[str, Any]) -> int:
    """Which attempt of the platform a task is: 0 is the first."""
    return int(task.get("attempt_number") or 0)


def has_ended(run: Mapping[str, Any]) -> bool:
    """Whether a run, or a task of one, has ended."""
    return bool((run.get("state") or {}).get("result_state"))


def state_of(run: Mapping[str, Any]) -> AttemptState | None:
    """The state of a run that has not ended, by its newest attempt; `None` where it has."""
    life = str((run.get("state") or {}).get("life_cycle_state") or "PENDING")
    if has_ended(run) or life in ("TERMINATED", "SKIPPED", "INTERNAL_ERROR"):
        return None
    newest = _newest(run)
    if life == "RUNNING" and newest is not None:
        own = str((newest.get("state") or {}).get("life_cycle_state") or life)
        life = own if own in _ACTIVE else "WAITING_FOR_RETRY"
    return _ACTIVE.get(life, AttemptState.RUNNING)


def termination_of(run: Mapping[str, Any]) -> PlatformEnding:
    """How a run has ended."""
    newest = _newest(run) or run
    states = [one.get("state") or {} for one in (newest, run)]
    message = next((str(one["state_message"]) for one in states if one.get("state_message")), "")
    statuses = [one.get("status") or {} for one in (newest, run)]
    details: Mapping[str, Any] = next(
        filter(None, (one.get("termination_details") for one in statuses)), {}
    )
    result = str(states[1].get("result_state") or "FAILED")
    # A command that ran took time beyond the set-up, or was seen to.
    ran = bool(newest.get("execution_duration"))
    if result in ("SUCCESS", "SUCCESS_WITH_FAILURES"):
        return PlatformEnding(state=AttemptState.SUCCEEDED, ran=True)
    if result == "CANCELED" and states[1].get("user_cancelled_or_timedout", True):
        return PlatformEnding(state=AttemptState.CANCELLED, message=message, ran=ran)
    failure = _failure(result, details, ran=ran)
    if failure is _PLATFORM and _NO_ROOM.search(message):
        failure = _CAPACITY
    if failure in _NEXT_STEPS:
        message = f"{(message or str(failure)).rstrip('.')}; {_NEXT_STEPS[failure]}"
    return PlatformEnding(state=AttemptState.FAILED, failure=failure, message=message, ran=ran)


def _failure(result: str, details: Mapping[str, Any], *, ran: bool) -> FailureClass:
    if result == "TIMEDOUT":  # the time in the queue counts
        return FailureClass.TIMEOUT if ran else FailureClass.CAPACITY
    if result == "CANCELED":
        return FailureClass.PREEMPTED
    if result in ("UPSTREAM_FAILED", "UPSTREAM_CANCELED"):
        return FailureClass.UPSTREAM_FAILED
    if result == "MAXIMUM_CONCURRENT_RUNS_REACHED":
        return FailureClass.CAPACITY
    code = str(details.get("code") or "")
    if details.get("type") == "CLOUD_FAILURE":
        return FailureClass.NODE_LOST if ran else FailureClass.CAPACITY
    if code == "RUN_EXECUTION_ERROR" and not ran:
        return FailureClass.LAUNCH_FAILED_USER
    other = FailureClass.EXIT_CODE if details.get("type") == "CLIENT_ERROR" else _PLATFORM
    return _BY_CODE.get(code, other)


def _newest(run: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return max(run.get("tasks") or (), key=attempt_number, default=None)
