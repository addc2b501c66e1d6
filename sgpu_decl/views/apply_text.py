"""What happens while a plan is applied and its runs are followed, as lines for stderr."""

from collections.abc import Mapping, Sequence

from sgpu_decl.model.address import Kind
from sgpu_decl.model.attempt import AttemptRef, AttemptStatus
from sgpu_decl.model.event import ApplyEvent, Step
from sgpu_decl.model.jsonable import Json

__all__ = ["event_line", "state_line", "waiting_line"]

_WORDS = {
    Step.STOPPED: "asked to stop",
    Step.LAUNCHED: "launched",
    Step.CREATED: "created",
    Step.ADOPTED: "is running already: attached",
    Step.UPDATED: "updated",
    Step.STAGED: "is staged",
    Step.FORGOTTEN: "forgotten",
    Step.DESTROYED: "destroyed",
}


def event_line(event: ApplyEvent, *, waits_for: Sequence[AttemptRef] = ()) -> str | None:
    """One line, or `None` for a step that is not worth one. What was launched is queued while it
    waits for older attempts."""
    words = _WORDS.get(event.step)
    if event.step is Step.FAILED:
        words = "failed" if event.address.kind is Kind.JOB else "could not be launched"
    if words is None:
        return None
    if event.step is Step.LAUNCHED and waits_for:
        older = ", ".join(map(str, waits_for))
        have = "has" if len(waits_for) == 1 else "have"
        words = f"queued: it starts when {older} {have} ended"
    # Only runs go by their name alone.
    whole = str(event.address) if event.address.kind is not Kind.RUN else event.address.label
    name = str(event.attempt) if event.attempt else whole
    return f"{name} {words}" + (f": {event.message}" if event.message else "")


def state_line(status: AttemptStatus) -> str:
    return f"{status.ref} {status.state}"


_WAITS = {
    "gpus": "GPUs that are free",
    "max_parallel": "others to end: as many as `max_parallel` allows are active",
    "earlier attempts": "earlier attempts to end",
}


def waiting_line(ref: AttemptRef, run: Mapping[str, Json]) -> str:
    """Why an attempt is queued, as far as its status object says it."""
    reason = str(run.get("waiting_for") or "")
    return f"{ref} queued" + (f": waiting for {_WAITS.get(reason, reason)}" if reason else "")
