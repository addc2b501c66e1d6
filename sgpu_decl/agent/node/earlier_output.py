"""What earlier attempts left in SGPU_OUTPUT_DIR: of the same run, for `resume`, and of other runs,
for one that comes after them (`${run.NAME.output}`).

Attempts of a run have launch folders beside each other, `8-TOKEN`, and below `back` of each lies
what its nodes uploaded, for each attempt of the platform. Files of a node count once its report is
there, and if no error kept some of them back. A shared folder may show late what other machines
wrote to it.
"""

from __future__ import annotations

import os
import time

from sgpu_decl.agent.attempt.attempt_files import numbers_in
from sgpu_decl.agent.attempt.upstreams import refusal
from sgpu_decl.agent.node.log_forwarding import say
from sgpu_decl.agent.node.node_report import read_report
from sgpu_decl.content.output_pieces import DamagedOutput, copy_files, has_output, is_seen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sgpu_decl.agent.node.node_report import Report

_POLL = 0.5  # seconds between two looks
_VISIBLE = 60.0  # seconds until what all nodes brought back is seen here


class UpstreamFailed(Exception):
    """The attempt cannot start. `failure` is the class, `summary` the reason."""

    def __init__(self, failure: str, summary: str) -> None:
        super().__init__(summary)
        self.failure = failure
        self.summary = summary


def bring_earlier_output(back: str, target: str) -> None:
    """Copy the output of the newest attempt that left some to a new folder; nothing where there is
    none.

    Args:
        back: the folder that nodes of this launch upload to.

    Raises:
        OSError: it cannot be read, or is damaged.
    """
    nodes = newest_output(back)
    if nodes:
        copy_files(nodes, target)
        attempt = os.path.dirname(next(iter(nodes)))
        say(f"SGPU_PREVIOUS_OUTPUT_DIR has the output of `{attempt}`")
        whole = {os.path.basename(node) for node in _whole(attempt)}
        if cut := sorted(name for name in _node_names(attempt) if name not in whole):
            say(f"the output of {', '.join(cut)} is missing there: its upload is not complete")


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


def absent_nodes(back: str, nodes: int) -> list[int]:
    """Which of the nodes of an attempt that succeeded are not seen here to have uploaded all that
    their report names: at its last start, and not at one before, which failed."""
    uploads = {os.path.basename(node): {node: report} for node, report in last_output(back).items()}
    for report in uploads.get("node_0", {}).values():
        if report["outcome"] is not None and report["outcome"]["state"] != "succeeded":
            return list(range(nodes))
    seen = {name for name, report in uploads.items() if is_seen(report)}
    return [number for number in range(nodes) if f"node_{number}" not in seen]


def last_output(back: str) -> dict[str, Report]:
    """The reports of the last start of an attempt, by the folders that nodes uploaded to."""
    return {node: one for attempt in _numbered(back)[:1] for node, one in _reports(attempt).items()}


def newest_output(back: str) -> dict[str, Report]:
    """Those of the nodes that uploaded all of their output, of the newest attempt that has some."""
    for attempt in _newest_first(back):
        left = {node: one for node, one in _whole(attempt).items() if has_output(one)}
        if left:
            return left
    return {}


def _newest_first(back: str) -> Iterator[str]:
    """The folders of attempts of the platform: of this launch, then of earlier ones."""
    launch = os.path.dirname(back)
    yield from _numbered(back)
    run, name = os.path.split(launch)
    own = _number(name)
    if own is None:
        return
    earlier = [(number, other) for other in _names(run) if (number := _number(other)) is not None]
    for number, other in sorted(earlier, reverse=True):
        if number < own:
            yield from _numbered(os.path.join(run, other, os.path.basename(back)))


def _numbered(folder: str) -> list[str]:
    return [os.path.join(folder, str(number)) for number in reversed(numbers_in(folder))]


def _number(name: str) -> int | None:
    """The number of the attempt in the name of its launch folder."""
    number, dash, _ = name.partition("-")
    return int(number) if dash and number.isdigit() else None


def _reports(attempt: str) -> dict[str, Report]:
    """The reports of nodes in their order, by the folders that they uploaded to."""
    names = sorted(_node_names(attempt), key=lambda name: (len(name), name))
    found = ((path, read_report(path)) for path in (os.path.join(attempt, name) for name in names))
    return {path: report for path, report in found if report is not None}


def _whole(attempt: str) -> dict[str, Report]:
    return {node: one for node, one in _reports(attempt).items() if one["incomplete"] is None}


def _node_names(folder: str) -> list[str]:
    return [name for name in _names(folder) if name.startswith("node_")]


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
