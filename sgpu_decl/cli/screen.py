"""The output of followed runs: plain lines, or on a terminal lines above a live region."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from sgpu_decl.cli.terminal_output import note, show, write_line
from sgpu_decl.model.attempt import BACKOFF, AttemptRef
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.views.apply_text import state_line


class Screen(Protocol):
    def lines(self, text: str) -> None:
        """Lines that a rank wrote, without the newline of the last."""

    def note(self, text: str) -> None:
        """A line of ours."""

    def show_state(self, status: AttemptView) -> None:
        """An attempt has another state, or waits for something else."""

    def tick(self) -> None:
        """Nothing happened for a moment."""


class _Lines:
    """Ranks on `out`, everything else on stderr, line by line."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._shown: dict[AttemptRef, str] = {}

    def lines(self, text: str) -> None:
        write_line(self._out, text)

    def note(self, text: str) -> None:
        show(text, err=True)

    def show_state(self, status: AttemptView) -> None:
        if status.state.active and status.waiting_for != BACKOFF:  # a note says that already
            line = state_line(status)
            if self._shown.get(status.ref) != line:  # what else is new of it has its own words
                self._shown[status.ref] = line
                note(line)

    def tick(self) -> None:
        pass


@contextmanager
def open_screen(out: TextIO) -> Iterator[Screen]:
    """Open the screen while runs are followed. Its live region is erased at the end.

    A live region needs a terminal for both streams: lines of `| tee log` would come back to the
    terminal and break it.
    """
    both = out.isatty() and sys.stderr.isatty()
    if not both or os.environ.get("TERM") in ("dumb", "unknown"):
        yield _Lines(out)
        return
    from sgpu_decl.cli.live_region import LiveScreen

    with LiveScreen() as screen:
        yield screen
