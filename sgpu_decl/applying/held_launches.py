"""Launches that replace attempts on a backend that cannot let a launch wait: they are staged under
the state lock, the attempts stop without it, and they are launched under a lock that is taken anew.

What was decided stands in the open intent of the launch. Whoever takes the lock meanwhile may
complete it or drop it, so it is looked at again.
"""

from collections.abc import Callable, Collection, Sequence

from sgpu_decl.applying.launch_group import LaunchGroup
from sgpu_decl.backends.base import Launcher
from sgpu_decl.errors import BackendError, OutcomeUnknown, StalePlan
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.backend_kinds import kind_named
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.plan import Change
from sgpu_decl.model.state import State


def waits_itself(change: Change) -> bool:
    """Whether its launch waits for older attempts to end, which it can on its backend."""
    return bool(change.waits_for) and kind_named(change.backend).capabilities.queues


def must_end(changes: Sequence[Change], state: State) -> frozenset[AttemptRef]:
    """The active attempts that have to end before changes are launched as one."""
    refs = {ref for change in changes if not waits_itself(change) for ref in change.waits_for}
    return frozenset(item.ref for item in state.active if item.ref in refs) if refs else frozenset()


def launch_held(
    group: LaunchGroup,
    active: Collection[AttemptRef],
    check_held: Callable[[], None],
    *,
    moved: bool,
) -> Sequence[str | None] | None:
    """Launch a group that was staged before, unless what had to end is `active` still. If the state
    `moved` meanwhile, another process may have started it, and its launcher looks.

    Raises:
        OutcomeUnknown: it may have been launched.
        SgpuError: nothing of it was.
    """
    going_on = sorted(group.must_end.intersection(active))
    if going_on:
        group.unstage()
        raise BackendError(
            f"`{going_on[0]}` was asked to stop, and goes on",
            hint=f"look at it with `sgpu show '{going_on[0]}'`, and apply again when it has ended",
            code="launch_failed",
        )
    for request in group.requests if moved else ():
        _require_staged(group.launcher, request.record)
    check_held()
    return group.launcher.launch_joined(group.requests)


def _require_staged(launcher: Launcher, record: LaunchRecord) -> None:
    """Refuse a launch that somebody has unstaged, and one whose launcher cannot look."""
    try:
        is_staged = launcher.staged(record)
    except BackendError as error:
        raise OutcomeUnknown(
            f"`{record.ref}` may have been started: {error.message}", hint=error.hint
        ) from error
    if not is_staged:
        raise BackendError(f"`{record.ref}` is not staged any more", code="launch_failed")


def launched_by_others(group: LaunchGroup, state: State) -> Sequence[bool] | None:
    """Of each launch of a group that was held, whether another sgpu has launched it, else it was
    dropped; None where the group is still to be launched."""
    intents = {(intent.token, intent.address) for intent in state.intents}
    last = (item.last for item in state.resources.values() if item.last is not None)
    recorded = {attempt.token for attempt in (*state.active, *last)}
    waiting = [(one.intent.token, one.intent.address) in intents for one in group.begun]
    launched = [one.intent.token in recorded for one in group.begun]
    if any(waiting) and all(map(max, waiting, launched)):
        return None
    return launched


def require_unmoved(change: Change, planned: State, state: State) -> None:
    """Refuse a launch of a run that somebody else has changed since the lock was given back.

    Raises:
        StalePlan: it is not as it was planned for.
    """
    if state is planned:
        return
    before, now = (
        (found.numbered, found.gone) if found is not None else None
        for found in (one.resources.get(change.address) for one in (planned, state))
    )
    if now != before or any(one.address == change.address for one in state.intents):
        raise stale(change)


def stale(change: Change) -> StalePlan:
    """The error for a launch of a run that another sgpu changed while the lock was given back."""
    return StalePlan(
        f"another sgpu changed `{change.address.label}` while attempts that are replaced stopped",
        hint="plan again",
    )
