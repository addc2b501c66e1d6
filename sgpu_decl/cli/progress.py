"""The progress of long steps: a line if they take long, or a bar on a terminal."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sgpu_decl.cli.terminal_output import note, show
from sgpu_decl.views.progress_text import CONNECTING, phase_line

if TYPE_CHECKING:
    from sgpu_decl.cli.progress_bar import Bar


_FIRST = 1.0  # seconds that a phase takes before it has a line off a terminal
_EVERY = 30.0  # seconds between two of its lines
_SILENCE = 1.0  # seconds


class ProgressLines:
    """A line for a phase that takes over a second, and another whenever `every` seconds have
    passed."""

    def __init__(self, every: float = _EVERY) -> None:
        self._every = every
        self._phase = ""
        self._began = self._last_line_at = time.monotonic()

    def advance(self, phase: str, done: int, total: int) -> None:
        now = time.monotonic()
        if phase != self._phase:
            self._phase, self._began, self._last_line_at = phase, now, now
            self._last_line_at -= self._every
            if phase != CONNECTING:
                self._last_line_at += min(_FIRST, self._every)
        if now - self._last_line_at >= self._every:
            self._last_line_at = now
            note(phase_line(phase, done, total, seconds=now - self._began))

    def erase(self) -> None:
        """Make room for a line: its own are there to stay."""


class SharedProgress:
    """A progress that threads report to while lines are printed: none of them cuts into a bar."""

    def __init__(self, progress: "ProgressLines | Bar") -> None:
        self._progress = progress
        self._lock = threading.Lock()

    def advance(self, phase: str, done: int, total: int) -> None:
        with self._lock:
            self._progress.advance(phase, done, total)

    def note(self, line: str) -> None:
        """Print a line of sgpu on stderr."""
        with self._lock:
            self._progress.erase()
            note(line)


@contextmanager
def open_progress() -> "Iterator[ProgressLines | Bar]":
    """The progress to report to while something is prepared; a bar is erased at the end."""
    if not sys.stderr.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
        yield ProgressLines()
        return
    from sgpu_decl.cli.progress_bar import Bar

    with Bar() as bar:
        yield bar


@contextmanager
def slow_step(what: str, *, silence: float = _SILENCE) -> Iterator[None]:
    """Print `what` on stderr if the block takes over `silence` seconds. Steps that can be counted
    while they go on report to `open_progress` instead."""
    timer = threading.Timer(silence, show, (what,), {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
