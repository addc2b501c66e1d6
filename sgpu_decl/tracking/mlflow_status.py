"""The status of an MLflow run after the end of its attempt. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Status = Literal["FINISHED", "FAILED", "KILLED"]
_ENDED = frozenset({"succeeded", "failed", "cancelled", "lost"})
_STATUS: Mapping[str, Status] = {"succeeded": "FINISHED", "cancelled": "KILLED"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedOutcome:
    """`ended_at` is in milliseconds since the epoch, None if it is unknown."""

    status: Status
    ended_at: int | None
    tags: Mapping[str, str]


def outcome(truth: Mapping[str, object]) -> TrackedOutcome:
    """Return the end of an MLflow run for the status of an attempt (`agent/attempt/`).

    Anything but success and cancellation is a failure, also an attempt without a supervisor.
    """
    state = str(truth.get("state"))
    if state not in _ENDED:
        state = "lost"
    tags = {"sgpu.state": state}
    if truth.get("class"):
        tags["sgpu.failure_class"] = str(truth["class"])
    cause = truth.get("first_cause")
    if isinstance(cause, Mapping) and cause.get("kind"):
        tags["sgpu.failure_kind"] = str(cause["kind"])
    if isinstance(cause, Mapping) and cause.get("summary"):
        where = "" if cause.get("rank") is None else f"rank {cause['rank']}: "
        tags["sgpu.first_cause"] = f"{where}{cause['summary']}"[:6000]
    return TrackedOutcome(
        status=_STATUS.get(state, "FAILED"),
        ended_at=_milliseconds(truth.get("ended_at")),
        tags=tags,
    )


def _milliseconds(time: object) -> int | None:
    if isinstance(time, str):
        try:
            # Python 3.10, which a node may have, does not read the `Z`.
            moment = datetime.fromisoformat(time.replace("Z", "+00:00"))  # noqa: FURB162
            return int(moment.timestamp() * 1000)
        except ValueError:
            return None
    if isinstance(time, int | float):
        return int(time * 1000)
    return None
