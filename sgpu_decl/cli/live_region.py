"""Lines that scroll, and under them what the followed runs are doing; on a terminal only."""

import time
from typing import Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from sgpu_decl.cli.terminal_output import now
from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.views.followed_runs import progress

_REDRAW_SECONDS = 0.5  # elapsed times are drawn again after so long
_BATCH_SECONDS = 0.1  # lines of a busy rank are drawn together


class _Raw:
    """Text that is written unchanged, with the colours of a rank."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Segment(self._text)


class LiveScreen:
    """A `cli.run_follower.Screen`. It has no thread: each call draws."""

    def __init__(self) -> None:
        self._views: dict[AttemptRef, AttemptView] = {}
        self._lines: list[str] = []
        self._drawn = 0.0
        self._console = Console(stderr=True)
        self._live = Live(
            console=self._console,
            get_renderable=self._region,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._draw()
        self._live.stop()

    def lines(self, text: str) -> None:
        self._lines.append(text)
        if time.monotonic() - self._drawn >= _BATCH_SECONDS:
            self._draw()

    def note(self, text: str) -> None:
        self._lines.append(mask(text))
        self._draw()

    def show_state(self, status: AttemptView) -> None:
        self._views[status.ref] = status
        self._live.start()
        self._draw()

    def tick(self) -> None:
        if self._lines or time.monotonic() - self._drawn >= _REDRAW_SECONDS:
            self._draw()

    def _draw(self) -> None:
        text = "".join(f"{line}\n" for line in self._lines)
        self._lines.clear()
        self._drawn = time.monotonic()
        if text:  # with the region under it
            self._console.print(_Raw(text), end="", soft_wrap=True)
        else:
            self._live.refresh()

    def _region(self) -> Text:
        size = self._console.size
        views = list(self._views.values())
        return progress(views, now=now(), width=size.width, height=size.height)
