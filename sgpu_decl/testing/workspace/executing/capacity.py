"""What there is a limited number of, and who waits for it: first come, first served."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sgpu_decl.testing.workspace.executing.stop_signal import StopSignal

__all__ = ["CapacityRequest", "GpuCapacity", "pool_of"]


@dataclass(frozen=True, slots=True)
class CapacityRequest:
    """So many of a thing (GPUs of a type, active runs of a job), of which there are `limit`; None
    is without a limit."""

    thing: str
    amount: int
    limit: int | None


def pool_of(capacity_id: str) -> str:
    """What GPUs of a reservation are called as a thing."""
    return f"pool {capacity_id}"


class GpuCapacity:
    """Who holds what."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}
        self._line: dict[str, list[object]] = {}
        self._changed = threading.Condition()

    def used(self, thing: str) -> int:
        """How much of a thing is held now."""
        return self._used.get(thing, 0)

    @contextmanager
    def held(
        self, asked: CapacityRequest, stopping: StopSignal, deadline: float | None
    ) -> Iterator[bool]:
        """Hold it inside. Gives False, and holds nothing, where somebody asked to stop or the
        deadline (of `time.monotonic`) came first."""
        got = self._acquire(asked, stopping, deadline)
        try:
            yield got
        finally:
            if got:
                with self._changed:
                    self._used[asked.thing] -= asked.amount
                    self._changed.notify_all()

    def _acquire(
        self, asked: CapacityRequest, stopping: StopSignal, deadline: float | None
    ) -> bool:
        ticket = object()
        with stopping.heard_by(self._wake), self._changed:
            line = self._line.setdefault(asked.thing, [])
            line.append(ticket)
            try:
                while stopping.asked is None:
                    used = self._used.get(asked.thing, 0)
                    if line[0] is ticket and _fits(asked, used):
                        self._used[asked.thing] = used + asked.amount
                        return True
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        return False
                    self._changed.wait(left)
                return False
            finally:
                line.remove(ticket)
                self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _fits(asked: CapacityRequest, used: int) -> bool:
    return asked.limit is None or used + asked.amount <= asked.limit
