"""The progress of launches that are staged at the same time."""

import threading

from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.step_progress import Progress


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
