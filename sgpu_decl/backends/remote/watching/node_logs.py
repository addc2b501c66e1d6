"""The logs of nodes: which rank a line is of, and new lines in a folder that all machines share."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from sgpu_decl.agent.attempt.growing_log import GrowingLog
from sgpu_decl.backends.base import LogReader
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.rank_output import LogLines

_LARGEST_NUMBER = 10**15  # of a line; as a time, 1970
_RANK = re.compile(r"\[rank (\d+)( err)?\] ?(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One line of a node, as the platform keeps it; `time_ns` is when it came, or the number of the
    line where the platform keeps no times."""

    time_ns: int
    node: int
    body: str


def line_of(ref: AttemptRef, record: NodeLine) -> LogLines:
    """The line as its rank wrote it; without a rank where it is the agent's or the platform's."""
    body = record.body.rstrip("\r\n")
    time_ns = record.time_ns if record.time_ns > _LARGEST_NUMBER else None
    match = _RANK.match(body)
    if match is None:
        return LogLines(ref=ref, rank=None, stream="stderr", text=body, time_ns=time_ns)
    stream = "stderr" if match[2] else "stdout"
    return LogLines(ref=ref, rank=int(match[1]), stream=stream, text=match[3], time_ns=time_ns)


class NodeLogs(Protocol):
    """The logs of all nodes of an attempt, for each attempt of the platform."""

    def new_lines(self, *, last: bool) -> Iterator[tuple[int, bytes]]:
        """Whole lines that are new, without the last line feed, each with their node. With `last`,
        nobody writes any more."""


class NodeLogReader(LogReader):
    """The lines of an attempt's ranks, by the logs of its nodes.

    `active` tells whether the attempt goes on; `require_folder` raises NotFound if its launch
    folder is gone.
    """

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


def _numbered(folder: str, ending: str) -> list[str]:
    """The paths of what a folder holds under a number and an ending, in their order."""
    try:
        names = [name.removesuffix(ending) for name in os.listdir(folder) if name.endswith(ending)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    numbers = sorted(int(name) for name in names if name.isdigit())
    return [os.path.join(folder, f"{number}{ending}") for number in numbers]
