"""The process that an attempt is tied to: the attempt is cancelled when that process has ended."""

from __future__ import annotations

import os

from sgpu_decl.agent.system.processes import alive, open_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sgpu_decl.agent.system.loop import Loop

__all__ = ["watch_caller"]

_LOOK = 0.2  # seconds between two looks, if the kernel does not report the end of a process


def watch_caller(tether: Mapping[str, int], loop: Loop, gone: Callable[[], None]) -> None:
    """Call `gone` once this very process has ended; at once if it has already.

    The start time is read while the pidfd is open, so a new process of the same pid never counts.

    Raises:
        OSError: there is no descriptor left to watch it with.
    """
    pid, started = tether["pid"], tether["start"]
    try:
        handle = open_process(pid)
    except ProcessLookupError:
        gone()
        return

    def look() -> None:
        if alive(pid, started):
            loop.after("tether", _LOOK, look)
        else:
            gone()

    def ended() -> None:
        loop.forget(handle)
        gone()

    if handle < 0:
        look()
    elif alive(pid, started):
        loop.read(handle, ended)
    else:
        os.close(handle)
        gone()
