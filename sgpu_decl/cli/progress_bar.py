"""A bar with amount and rate under what is on the terminal already. Imports rich."""

import time
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sgpu_decl.views.progress_text import phase_line

_REDRAW_SECONDS = 0.1
_DELAY_SECONDS = 0.3  # a step that ends sooner draws nothing


class Bar:
    """A `Progress`. It has no thread: each call draws."""

    def __init__(self) -> None:
        self._phase = ""
        self._done = self._total = 0
        self._opened = self._began = self._drawn = time.monotonic()
        self._live = Live(
            console=Console(stderr=True),
            get_renderable=self._line,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def advance(self, phase: str, done: int, total: int) -> None:
        now = time.monotonic()
        if phase != self._phase:
            self._phase, self._began = phase, now
        self._done, self._total = done, total
        if now - self._opened < _DELAY_SECONDS or now - self._drawn < _REDRAW_SECONDS:
            return
        self._drawn = now
        self._live.start()
        self._live.refresh()

    def erase(self) -> None:
        """Make room for a line; the next call draws the bar below it."""
        self._live.stop()

    def _line(self) -> Table:
        grid = Table.grid(padding=(0, 1))
        has_total = self._total > 0
        bar = ProgressBar(
            total=self._total if has_total else None,
            completed=self._done,
            width=24,
            pulse=not has_total,
        )
        seconds = time.monotonic() - self._began
        grid.add_row(bar, Text(phase_line(self._phase, self._done, self._total, seconds=seconds)))
        return grid
