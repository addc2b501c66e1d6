"""Lines that scroll, and under them what the followed runs are doing; on a terminal only."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from sgpu_decl.cli.terminal_output import now
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.views.followed_runs import progress

__all__ = ["LiveScreen"]

_REDRAWN = 0.5  # seconds after which elapsed times are drawn anew
_GATHERED = 0.1  # seconds for which lines of a busy rank are gathered, to be drawn at once


class _Raw:
    """Text as it is: a rank's colours and its width are its own matter."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Segment(self._text)


class LiveScreen:
    """A `cli.screen.Screen`. Without a thread: it draws when it is told something."""

    def __init__(self) -> None:
        self._known: dict[AttemptRef, AttemptView] = {}
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._draw()
        self._live.stop()

    def lines(self, text: str) -> None:
        self._lines.append(text)
        if time.monotonic() - self._drawn >= _GATHERED:
            self._draw()

    def note(self, text: str) -> None:
        self._lines.append(text)
        self._draw()

    def standing(self, status: AttemptView) -> None:
        self._known[status.ref] = status
        self._live.start()
        self._draw()

    def tick(self) -> None:
        if self._lines or time.monotonic() - self._drawn >= _REDRAWN:
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
        views = list(self._known.values())
        return progress(views, now=now(), width=size.width, height=size.height)
