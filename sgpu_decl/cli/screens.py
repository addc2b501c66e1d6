"""Where a followed run shows itself: plain lines, or on a terminal lines above a live region."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from sgpu_decl.cli.showing import note, write_line
from sgpu_decl.model.attempt import AttemptStatus
from sgpu_decl.views.apply_text import state_line

__all__ = ["Screen", "open_screen"]


class Screen(Protocol):
    def line(self, text: str) -> None:
        """A line that a rank wrote."""

    def note(self, text: str) -> None:
        """A line of ours."""

    def standing(self, status: AttemptStatus) -> None:
        """An attempt has another state."""

    def tick(self) -> None:
        """Nothing happened for a moment."""


class _Lines:
    """Ranks on `out`, everything else on stderr, line by line."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def line(self, text: str) -> None:
        write_line(self._out, text)

    def note(self, text: str) -> None:
        note(text)

    def standing(self, status: AttemptStatus) -> None:
        if status.state.active:
            note(state_line(status))

    def tick(self) -> None:
        pass


@contextmanager
def open_screen(out: TextIO) -> Iterator[Screen]:
    """The screen for as long as runs are followed; what it drew of their progress is gone after."""
    if not sys.stderr.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
        yield _Lines(out)
        return
    from sgpu_decl.cli.live import LiveScreen

    with LiveScreen(out) as screen:
        yield screen
