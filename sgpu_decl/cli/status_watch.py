"""The table of `sgpu status`, drawn again each second: `sgpu status -w`."""

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from sgpu_decl.cli.next_steps import complete
from sgpu_decl.cli.terminal_output import now, takes_colour
from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.errors import BackendError
from sgpu_decl.views.status_text import status_table
from sgpu_decl.views.terminal import neutral

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.model.attempt import AttemptRef

_EACH = 1.0  # seconds


def watch_status(session: "Session", refs: "Sequence[AttemptRef]") -> None:
    """Draw the table until all runs that can be asked from here have ended, and take it away."""
    asked = []
    for ref in refs:
        with suppress(BackendError):
            session.runs.require_here(ref)
            asked.append(ref)
    with Live(
        console=Console(),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as live:
        while True:
            views = session.runs.statuses(refs)
            if not any(views[ref].state.active for ref in asked):
                return
            table = status_table(
                list(views.values()), now=now(), colour=takes_colour(sys.stdout), hints=complete
            )
            text = Text.from_ansi(mask(neutral(table)), no_wrap=True, overflow="ellipsis")
            live.update(text, refresh=True)
            time.sleep(_EACH)
