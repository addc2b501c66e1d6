"""Launches that are started as one: nearly always one alone."""

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass

from sgpu_decl.backends.base import Launcher
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.plan import Change
from sgpu_decl.model.state import Intent
from sgpu_decl.model.step_progress import Progress

# By default an array has 1,000 tasks: https://slurm.schedmd.com/slurm.conf.html#OPT_MaxArraySize
_ARRAY = 1000

GroupLaunch = Future[Sequence[str | None] | None]
"""The references of the launches of a group, once they are launched; None where it waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunLaunch:
    """A launch whose intent is committed."""

    change: Change
    launch: LaunchRecord
    intent: Intent


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchGroup:
    """Launches that are begun, and what launches them. `must_end` are the attempts that have to end
    before that, on a backend that cannot let a launch wait."""

    begun: Sequence[BegunLaunch]
    requests: Sequence[LaunchRequest]
    launcher: Launcher
    must_end: frozenset[AttemptRef] = frozenset()

    def unstage(self) -> None:
        for request in self.requests:
            self.launcher.unstage(request)


def joined_records(records: Sequence[LaunchRecord]) -> tuple[LaunchRecord, ...]:
    """What `LaunchRequest.group` says of each launch of a group."""
    return tuple(records) if len(records) > 1 else ()


def with_arrays(
    groups: Iterable[tuple[Change, ...]], array_of: Callable[[Change], str | None]
) -> tuple[tuple[Change, ...], ...]:
    """Put launches that are alone, and that one request can start, into one group, `_ARRAY` at
    most. Groups keep their order, by their first change."""
    found: dict[object, tuple[Change, ...]] = {}
    counts = Counter[str]()
    for at, group in enumerate(groups):
        array = array_of(group[0]) if len(group) == 1 else None
        key: object = at
        if array is not None:
            key = group[0].backend, array, counts[array] // _ARRAY
            counts[array] += 1
        found[key] = (*found.get(key, ()), *group)
    return tuple(found.values())


def next_window(
    left: deque[tuple[Change, ...]], active: Iterable[Address], most: int
) -> list[tuple[Change, ...]]:
    """Take groups that may be begun together: none comes after another one of them, or after a
    launch that is `active`."""
    begun, window = set(active), list[tuple[Change, ...]]()
    while left and len(window) < most:
        upstreams = {upstream.address for change in left[0] for upstream in change.after}
        if upstreams & begun:
            break
        window.append(left.popleft())
        begun.update(change.address for change in window[-1])
    return window


def stage_and_launch(
    group: LaunchGroup, before: GroupLaunch | None, check_held: Callable[[], None]
) -> Sequence[str | None] | None:
    """Stage a group, and launch it once `before` has been launched, unless attempts
    have to end before.

    Raises:
        OutcomeUnknown: it may have been launched.
        SgpuError: nothing of it was.
    """
    group.launcher.stage_joined(group.requests)
    if before is not None:
        wait([before])  # the pool took it up earlier, so it ends
    check_held()  # staging may have taken long, or this process was suspended
    return None if group.must_end else group.launcher.launch_joined(group.requests)


class LaunchProgress:
    """Adds up what launches report, each from a thread of its own, and reports that."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._amounts: dict[str, dict[AttemptRef, tuple[int, int]]] = {}

    def of(self, ref: AttemptRef) -> Progress:
        """What the launch of `ref` reports to."""
        return _OfLaunch(self, ref)

    def report(self, ref: AttemptRef, phase: str, done: int, total: int) -> None:
        with self._lock:
            amounts = self._amounts.setdefault(phase, {})
            amounts[ref] = (done, total)
            self._progress.advance(
                phase,
                sum(done for done, _ in amounts.values()),
                sum(total for _, total in amounts.values()),
            )


class _OfLaunch:
    def __init__(self, launches: LaunchProgress, ref: AttemptRef) -> None:
        self._launches = launches
        self._ref = ref

    def advance(self, phase: str, done: int, total: int) -> None:
        self._launches.report(self._ref, phase, done, total)
