"""What an earlier attempt left in SGPU_OUTPUT_DIR: brought to a node for `resume`, or to where
another run reads it.

Attempts of a run have launch folders beside each other, `8-TOKEN`, and below `back` of each lies
what its nodes uploaded, for each attempt of the platform. Files of all nodes come into one folder,
as on one machine. If a node before has a file or a folder of that name, one lies below `node_K/`.
"""

from __future__ import annotations

import hashlib
import os

from sgpu_decl.agent import attempt_files
from sgpu_decl.agent.node.log_forwarding import say
from sgpu_decl.agent.node.upload import read_done
from sgpu_decl.agent.previous_output import holds_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    Sources = Sequence[tuple[str, str | None]]

__all__ = [
    "DamagedOutput",
    "absent_nodes",
    "bring_earlier_output",
    "bring_output",
    "last_output",
    "left_behind",
    "newest_output",
    "output_files",
    "pieces",
]

_OUTPUT = "output"
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
        _bring(nodes, target)
        attempt = os.path.dirname(nodes[0])
        say(f"SGPU_PREVIOUS_OUTPUT_DIR has the output of `{attempt}`")
        whole = {os.path.basename(node) for node in _nodes(attempt)}
        if cut := sorted(name for name in _node_names(attempt) if name not in whole):
            say(f"the output of {', '.join(cut)} is missing there: its upload is not complete")


def bring_output(back: str, target: str) -> None:
    """Copy the output of one attempt to a new folder: what its last start left, if that is nothing,
    too.

    Args:
        back: the folder that its nodes uploaded to.

    Raises:
        OSError: it is not there, cannot be read, or is damaged.
    """
    os.listdir(back)
    os.makedirs(target)
    _bring(last_output(back), target)


def absent_nodes(back: str, nodes: int) -> list[int]:
    """Which of the nodes of an attempt that succeeded are not seen here to have uploaded whole: at
    its last start, and not at one before, which failed."""
    whole: set[str] = set()
    for attempt in _numbered(back)[:1]:
        outcome = attempt_files.read_json(os.path.join(attempt, "node_0"), attempt_files.OUTCOME)
        if outcome is None or outcome["state"] == "succeeded":
            whole = {os.path.basename(path) for path in _nodes(attempt) if _is_seen(path)}
    return [number for number in range(nodes) if f"node_{number}" not in whole]


def last_output(back: str) -> list[str]:
    """What each node uploaded of the last start of an attempt: their folders."""
    return [node for attempt in _numbered(back)[:1] for node in _nodes(attempt)]


def left_behind(nodes: Sequence[str]) -> int:
    """How many files nodes could not upload."""
    done = [read_done(node) or {} for node in nodes]
    return sum(len(one.get("left") or ()) for one in done)


def newest_output(back: str) -> list[str]:
    """What each node uploaded of the newest attempt that left output: their folders."""
    for folder in _newest_first(back):
        nodes = [path for path in _nodes(folder) if _left(path)]
        if nodes:
            return nodes
    return []


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


def _nodes(folder: str) -> list[str]:
    """What nodes uploaded whole, in their order."""
    names = sorted(_node_names(folder), key=lambda name: (len(name), name))
    paths = [os.path.join(folder, name) for name in names]
    return [path for path in paths if read_done(path) is not None]


def _node_names(folder: str) -> list[str]:
    return [name for name in _names(folder) if name.startswith("node_")]


def _left(node: str) -> bool:
    return holds_files(os.path.join(node, _OUTPUT)) or bool(_split(node))


def _sizes(node: str) -> dict[str, int]:
    """The sizes of the files of its output that a node uploaded whole, by their names there."""
    files = (read_done(node) or {}).get("files")
    if files is not None:
        below = f"{_OUTPUT}/"
        return {name[len(below) :]: size for name, size in files.items() if name.startswith(below)}
    sizes = {}  # an older node wrote no sizes
    output = os.path.join(node, _OUTPUT)
    for place, _, names in os.walk(output):
        for name in names:
            path = os.path.join(place, name)
            sizes[os.path.relpath(path, output)] = os.path.getsize(path)
    return sizes


def _is_seen(node: str) -> bool:
    """Whether the output of a node is seen here whole; a folder may show a file before its
    content."""
    try:
        _files(node)
    except OSError:
        return False
    return True


def _split(node: str) -> dict[str, Mapping[str, Any]]:
    """Files of its output that a node uploaded in parts, by their names there."""
    parts = (read_done(node) or {}).get("parts", {})
    below = f"{_OUTPUT}/"
    return {name[len(below) :]: item for name, item in parts.items() if name.startswith(below)}


def output_files(nodes: Sequence[str]) -> dict[str, Sources]:
    """The files that nodes uploaded of their output, by the names that they have in one folder.
    Each consists of the files at these paths; beside each of these is its SHA-256, but for what an
    older node wrote whole.

    Args:
        nodes: their folders, as `last_output` gives them.

    Raises:
        OSError: one is not as long as its node wrote it.
    """
    found: dict[str, Sources] = {}
    folders: set[str] = set()
    for node in nodes:
        for name, sources in _files(node).items():
            free, below = name, os.path.basename(node)
            while free in found or free in folders or any(map(found.__contains__, _above(free))):
                free, below = os.path.join(below, name), f"{below}_"
            found[free] = sources
            folders.update(_above(free))
    return found


def _files(node: str) -> dict[str, Sources]:
    """The files of one node's output, by their names there.

    Raises:
        OSError: one is not as long as the node wrote it.
    """
    output = os.path.join(node, _OUTPUT)
    digests = (read_done(node) or {}).get("sha256") or {}
    files: dict[str, Sources] = {}
    for name, size in _sizes(node).items():
        path = os.path.join(output, name)
        if os.path.getsize(path) != size:
            raise DamagedOutput(path)
        files[name] = [(path, digests.get(f"{_OUTPUT}/{name}"))]
    for name, split in _split(node).items():
        folder = os.path.join(node, split["folder"])
        files[name] = [
            (os.path.join(folder, str(number)), digest)
            for number, digest in enumerate(split["sha256"])
        ]
    return files


def _above(name: str) -> Iterator[str]:
    """The folders that a file lies in."""
    while name := os.path.dirname(name):
        yield name


def _bring(nodes: Sequence[str], target: str) -> None:
    for name, sources in output_files(nodes).items():
        path = os.path.join(target, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.writelines(pieces(sources, most=_CHUNK))


def pieces(sources: Sources, *, most: int) -> Iterator[bytes]:
    """The content of a file, at most so many bytes at once. Raises OSError, also after the last
    piece of what is not as its node wrote it."""
    for path, digest in sources:
        hashed = hashlib.sha256()
        with open(path, "rb") as file:
            while data := file.read(most):
                if digest is not None:
                    hashed.update(data)
                yield data
        if digest not in (None, hashed.hexdigest()):
            raise DamagedOutput(path)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
