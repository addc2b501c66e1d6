"""The lines of an attempt's ranks, in the files that its nodes write to the launch folder."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from sgpu_decl.agent.attempt.growing_log import GrowingLog
from sgpu_decl.backends.base import LogReader
from sgpu_decl.backends.ray.head.head_place import HeadPlace
from sgpu_decl.backends.remote.log_lines import NodeLine, line_of
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.rank_output import LogLines


class NodeLogs(Protocol):
    """The logs of all nodes of an attempt, for each attempt of the driver."""

    def new_lines(self, *, last: bool) -> Iterator[tuple[int, bytes]]:
        """Whole lines that are new, without the last line feed, each with their node. With `last`,
        nobody writes any more."""


class RayLog(LogReader):
    """`active` tells whether the attempt goes on; `require_folder` raises NotFound if its launch
    folder is gone."""

    def __init__(
        self,
        ref: AttemptRef,
        logs: NodeLogs,
        active: Callable[[], bool],
        require_folder: Callable[[], None],
        ranks: Sequence[int] | None,
        *,
        follow: bool,
    ) -> None:
        self._ref = ref
        self._logs = logs
        self._active = active
        self._require_folder = require_folder
        self._ranks = None if ranks is None else frozenset(ranks)
        self._follow = follow
        self._has_lines = False

    def read(self) -> tuple[Iterable[LogLines], bool]:
        # Asked before the logs are read: if the attempt has ended, they are complete.
        active = self._active()
        return self._lines(active=active), not (active and self._follow)

    def _lines(self, *, active: bool) -> Iterator[LogLines]:
        for node, lines in self._logs.new_lines(last=not active):
            self._has_lines = True
            for text in lines.decode(errors="replace").split("\n"):
                line = line_of(self._ref, NodeLine(0, node, text))
                if self._ranks is None or line.rank in self._ranks:
                    yield line
        if not (active or self._follow or self._has_lines):
            self._require_folder()


class SharedLogs(NodeLogs):
    """`ATTEMPT/NODE.log` below `folder`, which is shared by all machines."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._logs: dict[str, GrowingLog] = {}

    def new_lines(self, *, last: bool) -> Iterator[tuple[int, bytes]]:
        for path in self._paths():
            node = int(os.path.basename(path).removesuffix(".log"))
            log = self._logs.setdefault(path, GrowingLog(path))
            while (part := log.read()).size:
                if part.lines is not None:
                    yield node, part.lines
            rest = log.last().lines if last else None
            if rest is not None:
                yield node, rest

    def _paths(self) -> list[str]:
        """In the order of attempts and nodes."""
        return [
            os.path.join(folder, name)
            for folder in _numbered(self._folder, "")
            for name in _numbered(folder, ".log")
        ]


class HeadLogs(NodeLogs):
    """`ATTEMPT/NODE/CHUNK.log` below `folder` of the head; see `cluster/log_chunks.py`."""

    def __init__(self, files: HeadPlace, folder: str) -> None:
        self._files = files
        self._folder = folder
        # Chunk, bytes of it that were read, and the beginning of a line that goes on in the next.
        self._at: dict[tuple[int, int], tuple[int, int, bytes]] = {}

    def new_lines(self, *, last: bool) -> Iterator[tuple[int, bytes]]:
        """See `NodeLogs`; all lines are whole. What cannot be read now comes later. Raises
        BackendError if nobody asks later."""
        chunks: dict[tuple[int, int], list[int]] = {}
        for path in self._files.names(self._folder, "*/*/*.log"):
            attempt, node, name = path.split("/")[-3:]
            number = int(name.removesuffix(".log"))
            chunks.setdefault((int(attempt), int(node)), []).append(number)
        for place, numbers in sorted(chunks.items()):
            first, offset, begun = self._at.get(place, (0, 0, b""))
            for number in range(first, max(numbers) + 1):
                path = f"{self._folder}/{place[0]}/{place[1]}/{number}.log"
                content = self._files.find(path)
                if content is None and last:
                    raise self._files.unreadable(path)
                if content is None and number < max(numbers):  # it is complete
                    break
                new = (content or b"")[offset:]
                end = new.rfind(b"\n")
                lines, begun = (begun + new[:end], b"") if end >= 0 else (b"", begun)
                offset += end + 1
                if number < max(numbers):
                    begun += new[end + 1 :]
                    self._at[place] = (number + 1, 0, begun)
                else:
                    self._at[place] = (number, offset, begun)
                if end >= 0:
                    yield place[1], lines
                offset = 0


def _numbered(folder: str, ending: str) -> list[str]:
    """The paths of what a folder holds under a number and an ending, in their order."""
    try:
        names = [name.removesuffix(ending) for name in os.listdir(folder) if name.endswith(ending)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    numbers = sorted(int(name) for name in names if name.isdigit())
    return [os.path.join(folder, f"{number}{ending}") for number in numbers]
