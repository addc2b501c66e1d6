"""The process that an attempt is tied to: nobody waits for what it does once that has ended."""

from __future__ import annotations

import errno
import os

from sgpu_decl.agent.processes import start_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sgpu_decl.agent.loop import Loop

__all__ = ["tie"]

# Of pidfd_open(2): there is no such process, or the number is that of a thread by now.
_GONE = frozenset({errno.ESRCH, errno.EINVAL, errno.ENOENT})


def tie(tether: Mapping[str, int], loop: Loop, gone: Callable[[], None]) -> None:
    """Call `gone` once that very process has ended; at once if it has already.

    The start time is read while the pidfd is open, so another process of its number never counts.

    Raises:
        OSError: there is no descriptor left to watch it with.
    """
    try:
        handle = os.pidfd_open(tether["pid"])
    except OSError as error:
        if error.errno not in _GONE:
            raise
        gone()
        return
    if start_time(tether["pid"]) != tether["start"]:
        os.close(handle)
        gone()
        return

    def ended() -> None:
        loop.forget(handle)
        gone()

    loop.read(handle, ended)
