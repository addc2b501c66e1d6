"""The output of an attempt of another run (`${run.NAME.output}`), for a run that comes after it:
awaited until all of it is seen here, and copied.

A shared folder may show late what other machines wrote to it.
"""

from __future__ import annotations

import os
import time

from sgpu_decl.agent.node.earlier_output import (
    DamagedOutput,
    absent_nodes,
    bring_output,
    last_output,
    left_behind,
)
from sgpu_decl.agent.upstreams import refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["UpstreamFailed", "await_output", "bring_upstream", "copy_output", "gone_output"]

_POLL = 0.5  # seconds between two looks
_VISIBLE = 60.0  # seconds until what all nodes brought back is seen here


class UpstreamFailed(Exception):
    """The attempt cannot start. `failure` is the class, `summary` the reason."""

    def __init__(self, failure: str, summary: str) -> None:
        super().__init__(summary)
        self.failure = failure
        self.summary = summary


def bring_upstream(
    name: str,
    back: str,
    target: str,
    *,
    nodes: int,
    stopped: Callable[[], bool],
    wait: Callable[[float], object],
    say: Callable[[str], None],
) -> bool:
    """Await what an attempt left, and copy it to a new folder; False if this run was `stopped`
    meanwhile. The arguments are those of both. Raises UpstreamFailed."""
    if not await_output(name, back, nodes=nodes, stopped=stopped, wait=wait, say=say):
        return False
    copy_output(name, back, target)
    return True


def await_output(
    name: str,
    back: str,
    *,
    nodes: int,
    stopped: Callable[[], bool],
    wait: Callable[[float], object],
    say: Callable[[str], None],
) -> bool:
    """Wait until all that an attempt left is seen here; False if this run was `stopped` meanwhile.

    Args:
        name: of the attempt, such as `train#8`. It has succeeded.
        back: the folder that its `nodes` uploaded to.
        wait: waits for some seconds.
        say: gets a line about what is not there.

    Raises:
        UpstreamFailed: its output is gone, or not whole.
    """
    deadline = time.monotonic() + _VISIBLE
    while absent := absent_nodes(back, nodes):
        if time.monotonic() > deadline:
            if not os.path.isdir(back):
                raise gone_output(name)
            reason = f"what node {absent[0]} of {name} left is not in its launch folder"
            raise UpstreamFailed("staging_failed", reason)
        if stopped():
            return False
        wait(_POLL)
    left = left_behind(last_output(back))
    if left:
        say(f"{left} files of {name} stayed on its nodes: they are not in its output")
    return True


def copy_output(name: str, back: str, target: str) -> None:
    """Copy what an attempt left to a new folder. Raises UpstreamFailed."""
    try:
        bring_output(back, target)
    except OSError as error:
        reason = f"the output of {name} cannot be copied for this run: {error}"
        if isinstance(error, DamagedOutput):
            reason += f"; launch {name.partition('#')[0]} again (`--rerun`), and then this run"
        raise UpstreamFailed("staging_failed", reason) from error


def gone_output(name: str) -> UpstreamFailed:
    """The error of an attempt whose output was deleted."""
    return UpstreamFailed("upstream_failed", refusal(name, "gone"))
