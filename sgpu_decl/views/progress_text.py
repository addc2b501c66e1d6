"""What an apply does, how far its long steps are, and how its runs stand: lines for stderr."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.amounts import duration
from sgpu_decl.model.address import Kind
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.event import ApplyEvent, Step
from sgpu_decl.views.status_text import cause_words, dashboard_words, waits
from sgpu_decl.views.terminal import age, size

if TYPE_CHECKING:
    from sgpu_decl.model.attempt_details import Restart

_ATTEMPTS_SHOWN = 4
_WORDS = {
    Step.STOPPED: "asked to stop",
    Step.LAUNCHED: "launched",
    Step.CREATED: "created",
    Step.ADOPTED: "is running already: attached",
    Step.UPDATED: "updated",
    Step.STAGED: "is staged",
    Step.MOVED: "renamed",
    Step.FORGOTTEN: "forgotten",
    Step.DESTROYED: "destroyed",
}
_COUNTED = {
    "resolving": "packages",
    "building": "packages",
    "hashing": "files",
}
"""What the phases count that do not count bytes."""


_CODE = frozenset({"hashing", "storing", "staging", "archiving", "uploading"})
"""The phases that are about the code of a run; the others are about its environment."""

_FETCHING = "fetching"
CONNECTING = "connecting"
_WAITS = {
    CONNECTING: "the workspace to log in and answer: {} s of {} s",
    "listing": "git to say which files it tracks: {} s of {} s",
    "stopping": "attempts that are replaced to stop: {} s, at most {} s",
    "queueing": "another process that builds the same environment: {} s",
    "sharing": "another process that fetches the same files: {} s",
    "collecting": "an `sgpu gc` that deletes from the store of this machine: {} s",
    "freeing": "an `sgpu gc` that deletes from the staging folder, last seen {} s ago: if it was "
    "killed, this goes on {} s after it was seen",
}
"""What the phases wait for that count seconds."""


def event_line(event: ApplyEvent, *, after: Sequence[AttemptRef] = ()) -> str | None:
    """One line, or `None` for a step that is not worth one. What was launched is queued while it
    waits for older attempts, or for those of other runs."""
    words = _WORDS.get(event.step)
    if event.step is Step.FAILED:
        words = "failed" if event.address.kind is Kind.JOB else "could not be launched"
    if event.step is Step.ADOPTED and event.message:
        words = "is left as it is"  # it cannot be asked, and the message says why
    if words is None:
        return None
    if event.step is Step.LAUNCHED and (event.waits_for or after):
        ends = (_having(event.waits_for, "ended"), _having(after, "succeeded"))
        words = f"queued: it starts when {' and '.join(filter(None, ends))}"
    # Only runs go by their name alone.
    whole = str(event.address) if event.address.kind is not Kind.RUN else event.address.label
    name = str(event.attempt) if event.attempt else whole
    return f"{name} {words}" + (f": {event.message}" if event.message else "")


def _having(refs: Sequence[AttemptRef], done: str) -> str:
    if not refs:
        return ""
    shown = [str(ref) for ref in refs[:_ATTEMPTS_SHOWN]]
    more = len(refs) - len(shown)
    names = ", ".join([*shown, f"{more:,} more"] if more else shown)
    return f"{names} {'has' if len(refs) == 1 else 'have'} {done}"


def state_line(status: AttemptView) -> str:
    """The state of an active attempt, and what it waits for."""
    words = f"{status.ref} {status.state}"
    if status.waiting_for is not None:
        words += f": waiting for {waits(status.waiting_for)}"
    words += f" (restart {status.restart})" if status.restart else ""
    dashboard = dashboard_words(status)
    return f"{words}; {dashboard}" if dashboard else words


def restart_line(ref: AttemptRef, restart: "Restart", *, now: datetime) -> str:
    """When and why ranks are started again."""
    seconds = (restart.starts_at - now).total_seconds()
    how = f"restarts in {duration(seconds)}" if seconds > 0 else "restarted"
    why = cause_words(restart.rank, restart.summary)
    return f"{ref} {how} (restart {restart.number}): {why}"


def silence_line(view: AttemptView, *, now: datetime) -> str:
    """That nobody knows how an attempt stands, since when and why, or that it is known again."""
    if view.unavailable is None:
        return f"{view.ref} answers again: {view.state}"
    since = f" since {age(view.unknown_since, now)}" if view.unknown_since is not None else ""
    return f"{view.ref} unknown{since}, asked again until it answers: {view.unavailable}"


def phase_line(phase: str, done: int, total: int, *, seconds: float) -> str:
    """Return `copying the environment: 412 MB of 1.2 GB, 180 MB/s`.

    Args:
        done, total: bytes, or what the phase counts; a total of 0 is not known yet.
        seconds: since the phase began.
    """
    if phase in _WAITS:
        return f"waiting for {_WAITS[phase].format(done, total)}"
    what = "files" if phase == _FETCHING else "the code" if phase in _CODE else "the environment"
    unit = _COUNTED.get(phase)
    if unit is not None:
        of = f" of {total:,}" if total else ""
        return f"{phase} {what}: {done:,}{of} {unit}"
    of = f" of {size(total)}" if total else ""
    rate = f", {size(int(done / seconds))}/s" if seconds >= 1 and done else ""
    return f"{phase} {what}: {size(done)}{of}{rate}"
