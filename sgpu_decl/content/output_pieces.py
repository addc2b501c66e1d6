"""What ranks left in SGPU_OUTPUT_DIR: the files of all nodes as one folder, and the pieces that
nodes uploaded each in.

The reports of nodes (`agent.node.node_report`) name them. A shared folder may show a file before
its content, so each piece is compared with the report.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

OUTPUT = "output/"
"""What the names of these files begin with in a report."""

_CHUNK = 1 << 20


class Piece(NamedTuple):
    """A file, or a part of one, by the path that it was uploaded to. A node of version 0.1 wrote no
    `digest`, which is a SHA-256 in hex."""

    path: str
    size: int
    digest: str | None


class DamagedOutput(OSError):
    """A file of an output has not the length or the SHA-256 that its node wrote down."""

    def __init__(self, path: str) -> None:
        super().__init__(f"`{path}` is not what the node wrote there")
        self.path = path


def pieces_of(node: str, name: str, file: Mapping[str, Any]) -> list[Piece]:
    """The pieces of a file in their order: itself, or its parts.

    Args:
        node: the folder that its node uploaded to.
        name: of the file in the report.
        file: what the report says of it.
    """
    if "folder" not in file:
        return [Piece(f"{node}/{name}", file["bytes"], file["sha256"])]
    folder, total, part = f"{node}/{file['folder']}", file["bytes"], file["part"]
    return [
        Piece(f"{folder}/{number}", min(part, total - number * part), digest)
        for number, digest in enumerate(file["sha256"])
    ]


def has_output(report: Mapping[str, Any]) -> bool:
    """Whether a node uploaded a file of SGPU_OUTPUT_DIR."""
    return any(name.startswith(OUTPUT) for name in report["files"])


def merged_output(reports: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Piece]]:
    """The files that nodes left in SGPU_OUTPUT_DIR, by their names in one folder, as on one
    machine. If a node before has a file or a folder of that name, one lies below `node_K/`.

    Args:
        reports: by the folder that each node uploaded to.

    Raises:
        OSError: a file would lie outside of the folder. No rank can leave such a one.
    """
    merged: dict[str, list[Piece]] = {}
    folders: set[str] = set()
    for node, report in reports.items():
        for path, file in sorted(report["files"].items()):
            if not path.startswith(OUTPUT):
                continue
            free = name = path[len(OUTPUT) :]
            if name.startswith("/") or ".." in name.split("/"):
                raise OSError(f"`{node}` names the file `{name}`, which would lie outside")
            below = os.path.basename(node)
            while free in merged or free in folders or any(map(merged.__contains__, _above(free))):
                free, below = f"{below}/{name}", f"{below}_"
            merged[free] = pieces_of(node, path, file)
            folders.update(_above(free))
    return merged


def _above(name: str) -> Iterator[str]:
    """The folders that a file lies in."""
    while name := os.path.dirname(name):
        yield name


def is_seen(reports: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the output of nodes is here in its full length."""
    try:
        pieces = [piece for file in merged_output(reports).values() for piece in file]
        return all(os.path.getsize(piece.path) == piece.size for piece in pieces)
    except OSError:
        return False


def copy_files(reports: Mapping[str, Mapping[str, Any]], target: str) -> None:
    """Copy the output of nodes into one folder. Raises OSError, also if a file is damaged."""
    for name, pieces in merged_output(reports).items():
        path = os.path.join(target, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.writelines(contents(pieces, most=_CHUNK))


def contents(pieces: Sequence[Piece], *, most: int) -> Iterator[bytes]:
    """The content of a file, at most so many bytes at once. Raises OSError, also after the last
    bytes of a piece that is not as its node wrote it."""
    for piece in pieces:
        hashed, rest = hashlib.sha256(), piece.size
        with open(piece.path, "rb") as file:
            while data := file.read(most):
                hashed.update(data)
                rest -= len(data)
                yield data
        if rest or piece.digest not in (None, hashed.hexdigest()):
            raise DamagedOutput(piece.path)
