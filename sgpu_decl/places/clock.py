"""The time of a place, by the clock that dates its files."""

import os
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from sgpu_decl.errors import BackendError
from sgpu_decl.places.file_place import FilePlace

PROBE = "now-"
"""What names of files begin with that are made to learn the time."""

_COUNTED = 30.0  # seconds for which the time is counted on from one answer
# It runs on while the machine is suspended, and no user can set it.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Seconds of a clock that nobody can set. Only differences mean something."""
    return time.clock_gettime(_CLOCK)


class PlaceClock:
    """Asked with a new file in `folder`, and counted on for a while from then; never more than has
    passed there. The file of a user who may not delete it stays."""

    def __init__(self, place: FilePlace, folder: str) -> None:
        self._place = place
        self._folder = folder
        self._learned: tuple[datetime, float] | None = None

    def now(self) -> datetime:
        """Raises BackendError."""
        if self._learned is not None:
            at, then = self._learned
            passed = elapsed() - then
            if passed < _COUNTED:
                return at + timedelta(seconds=passed)
        path = f"{self._folder}/{PROBE}{os.urandom(6).hex()}"
        self._place.create(path, b"\n")
        written = self._place.stat(path)
        with suppress(BackendError):
            self._place.delete(path)
        if written is None:
            error = BackendError(
                f"`{path}`, which was just written, is not shown", hint="try again"
            )
            error.retryable = True
            raise error
        return self.learn(written.modified)

    def learn(self, modified: float) -> datetime:
        """Take the time from a file that has just been written."""
        at = datetime.fromtimestamp(modified, UTC)
        self._learned = (at, elapsed())
        return at
