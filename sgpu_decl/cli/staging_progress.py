"""The progress of capturing, building or packing an environment: a bar on a terminal, else a line
now and then."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sgpu_decl.cli.terminal_output import note
from sgpu_decl.model.step_progress import Progress
from sgpu_decl.views.phase_text import CONNECTING, phase_line

__all__ = ["ProgressLines", "open_progress"]

_EVERY = 30.0  # seconds between lines off a terminal


class ProgressLines:
    """A line for a phase that takes long, and another whenever `every` seconds have passed."""

    def __init__(self, every: float = _EVERY) -> None:
        self._every = every
        self._phase = ""
        self._began = self._told = time.monotonic()

    def advance(self, phase: str, done: int, total: int) -> None:
        now = time.monotonic()
        if phase != self._phase:
            self._phase, self._began, self._told = phase, now, now
            if phase == CONNECTING:
                self._told -= self._every
        if now - self._told >= self._every:
            self._told = now
            note(phase_line(phase, done, total, seconds=now - self._began))


@contextmanager
def open_progress() -> Iterator[Progress]:
    """What to tell for as long as something is prepared; a bar is gone afterwards."""
    if not sys.stderr.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
        yield ProgressLines()
        return
    from sgpu_decl.cli.progress_bar import Bar

    with Bar() as bar:
        yield bar
