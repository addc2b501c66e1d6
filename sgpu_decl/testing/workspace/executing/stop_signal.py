"""Whether a run was asked to stop, and whoever waits and wants to hear of it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

__all__ = ["StopSignal", "Why"]


class Why(StrEnum):
    """Who asked."""

    CANCELLED = "cancelled"
    SERVER_ENDS = "server_ends"


class StopSignal:
    """Asked once; the first who asks is right, except that the end of the server outdoes all."""

    def __init__(self) -> None:
        self.asked: Why | None = None
        self._hearers: set[Callable[[], None]] = set()
        self._changed = threading.Condition()

    def ask(self, why: Why) -> None:
        """Ask for it, and tell all who wait."""
        with self._changed:
            if self.asked is None or why is Why.SERVER_ENDS:
                self.asked = why
            hearers = list(self._hearers)
            self._changed.notify_all()
        for hearer in hearers:
            hearer()

    @contextmanager
    def heard_by(self, hearer: Callable[[], None]) -> Iterator[None]:
        """Meanwhile, call `hearer` when somebody asks."""
        with self._changed:
            self._hearers.add(hearer)
        try:
            yield
        finally:
            with self._changed:
                self._hearers.discard(hearer)

    def wait(self, seconds: float) -> bool:
        """Wait that long, or until somebody asks; whether somebody has."""
        with self._changed:
            return self._changed.wait_for(lambda: self.asked is not None, seconds)
