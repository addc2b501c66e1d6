"""Steps that say what they do if they take long."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sgpu_decl.cli.terminal_output import show

_SILENCE = 1.0  # seconds


@contextmanager
def slow_step(what: str, *, silence: float = _SILENCE) -> Iterator[None]:
    """Print `what` on stderr if the block takes over `silence` seconds. Steps that can be counted
    while they go on report to a progress instead, see `staging_progress.py`."""
    timer = threading.Timer(silence, show, (what,), {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
