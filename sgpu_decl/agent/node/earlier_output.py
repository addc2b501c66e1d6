"""What an earlier attempt left in SGPU_OUTPUT_DIR: brought to a node for `resume`, or to where
another run reads it.

Attempts of a run have launch folders beside each other, `8-TOKEN`, and below `back` of each lies
what its nodes uploaded, for each attempt of the platform. Files of a node count once its report is
there, and if no error kept some of them back.
"""

from __future__ import annotations

import hashlib
import os

from sgpu_decl.agent.node.log_forwarding import say
from sgpu_decl.agent.node.node_report import has_output, merged_output, read_report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sgpu_decl.agent.node.node_report import Piece, Report

__all__ = [
    "DamagedOutput",
    "absent_nodes",
    "bring_earlier_output",
    "contents",
    "copy_files",
    "last_output",
    "newest_output",
]

_CHUNK = 1 << 20


class DamagedOutput(OSError):
    """A file of an output has not the length or the SHA-256 that its node wrote down."""

    def __init__(self, path: str) -> None:
        super().__init__(f"`{path}` is not what the node wrote there")
        self.path = path


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


def absent_nodes(back: str, nodes: int) -> list[int]:
    """Which of the nodes of an attempt that succeeded are not seen here to have uploaded all that
    their report names: at its last start, and not at one before, which failed."""
    uploads = last_output(back)
    reports = {os.path.basename(node): report for node, report in uploads.items()}
    first = (reports.get("node_0") or {}).get("outcome")
    if first is not None and first["state"] != "succeeded":
        return list(range(nodes))
    seen = {os.path.basename(node) for node, report in uploads.items() if _is_seen(node, report)}
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
    numbers = sorted((int(name) for name in _names(folder) if name.isdigit()), reverse=True)
    return [os.path.join(folder, str(number)) for number in numbers]


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


def _is_seen(node: str, report: Report) -> bool:
    """Whether the output of a node is seen here whole; a folder may show a file before its
    content."""
    try:
        found = merged_output({node: report}).values()
        return all(os.path.getsize(path) == size for file in found for path, size, _ in file)
    except OSError:
        return False


def copy_files(nodes: Mapping[str, Report], target: str) -> None:
    """Copy the output of nodes into one folder. Raises OSError, also if a file is damaged."""
    for name, sources in merged_output(nodes).items():
        path = os.path.join(target, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.writelines(contents(sources, most=_CHUNK))


def contents(sources: Sequence[Piece], *, most: int) -> Iterator[bytes]:
    """The content of a file, at most so many bytes at once. Raises OSError, also after the last
    piece of what is not as its node wrote it."""
    for path, size, digest in sources:
        hashed, rest = hashlib.sha256(), size
        with open(path, "rb") as file:
            while data := file.read(most):
                hashed.update(data)
                rest -= len(data)
                yield data
        if rest or digest not in (None, hashed.hexdigest()):
            raise DamagedOutput(path)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
