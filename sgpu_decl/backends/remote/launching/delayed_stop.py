"""The end by force of an attempt that does not stop by itself, where its platform does that."""

import time
from collections.abc import Callable

from sgpu_decl.backends.base import ForcedStop
from sgpu_decl.errors import BackendError

_UNANSWERED = 5.0  # seconds after which a platform that did not answer is asked again


class DelayedStop(ForcedStop):
    """Calls `stop` once `patience` seconds are over. It has the platform end what is still active,
    and says in words that it did; None if there was nothing."""

    def __init__(self, patience: float, stop: Callable[[], str | None]) -> None:
        self._stop = stop
        self._due: float | None = time.monotonic() + patience

    def look(self) -> str | None:
        if self._due is None or time.monotonic() < self._due:
            return None
        self._due = None
        try:
            return self._stop()
        except BackendError as error:
            if not error.retryable:
                raise
            self._due = time.monotonic() + _UNANSWERED
            return None
