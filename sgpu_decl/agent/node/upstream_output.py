"""The output of an attempt of another run (`${run.NAME.output}`), for a run that comes after it:
awaited until all of it is seen here, and copied.

A shared folder may show late what other machines wrote to it.
"""

from __future__ import annotations

import os
import time

from sgpu_decl.agent.attempt.upstreams import refusal
from sgpu_decl.agent.node.earlier_output import (
    DamagedOutput,
    absent_nodes,
    copy_files,
    last_output,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["UpstreamFailed", "await_output", "copy_output", "gone_output"]

_POLL = 0.5  # seconds between two looks
_VISIBLE = 60.0  # seconds until what all nodes brought back is seen here


class UpstreamFailed(Exception):
    """The attempt cannot start. `failure` is the class, `summary` the reason."""

    def __init__(self, failure: str, summary: str) -> None:
        super().__init__(summary)
        self.failure = failure
        self.summary = summary


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
        UpstreamFailed: its output is gone, or not whole: this run does not start with a part of it.
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
    reports = last_output(back)
    for node, report in reports.items():
        if report["incomplete"] is not None:
            number = os.path.basename(node).removeprefix("node_")
            reason = f"the output of {name} is not whole, since node {number} could not upload it: "
            raise UpstreamFailed("upstream_failed", reason + report["incomplete"] + _again(name))
    left = sum(len(report.get("left") or ()) for report in reports.values())
    if left:
        say(f"{left} files of {name} stayed on its nodes: they are not in its output")
    return True


def copy_output(name: str, back: str, target: str) -> None:
    """Copy what the last start of an attempt left to a new folder. Raises UpstreamFailed."""
    try:
        os.listdir(back)  # it may be gone by now
        os.makedirs(target)
        copy_files(last_output(back), target)
    except OSError as error:
        reason = f"the output of {name} cannot be copied for this run: {error}"
        if isinstance(error, DamagedOutput):
            reason += _again(name)
        raise UpstreamFailed("staging_failed", reason) from error


def gone_output(name: str) -> UpstreamFailed:
    """The error of an attempt whose output was deleted."""
    return UpstreamFailed("upstream_failed", refusal(name, "gone"))


def _again(name: str) -> str:
    return f"; launch {name.partition('#')[0]} again (`--rerun`), and then this run"
