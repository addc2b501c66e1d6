"""The lines of an attempt's ranks, in the files that node programs write to the launch folder."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from sgpu_decl.agent.growing_log import GrowingLog
from sgpu_decl.backends.base import LogReader
from sgpu_decl.backends.remote.log_lines import NodeLine, line_of
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.rank_output import LogLines


class RayLog(LogReader):
    """`logs/ATTEMPT/NODE.log` below `folder`, for each attempt of the driver. `active` tells
    whether the attempt goes on."""

    def __init__(
        self,
        ref: AttemptRef,
        folder: str,
        active: Callable[[], bool],
        ranks: Sequence[int] | None,
        *,
        follow: bool,
    ) -> None:
        self._ref = ref
        self._folder = folder
        self._active = active
        self._ranks = None if ranks is None else frozenset(ranks)
        self._follow = follow
        self._logs: dict[str, GrowingLog] = {}

    def read(self) -> tuple[Iterable[LogLines], bool]:
        # Asked before the logs are read: if the attempt has ended, they are complete.
        active = self._active()
        return self._lines(active=active), not (active and self._follow)

    def _lines(self, *, active: bool) -> Iterator[LogLines]:
        for path in self._paths():
            log = self._logs.setdefault(path, GrowingLog(path))
            while (part := log.read()).size:
                yield from self._marked(path, part.lines)
            if not active:
                yield from self._marked(path, log.last().lines)

    def _paths(self) -> list[str]:
        """The logs of all nodes, in the order of attempts and nodes."""
        return [
            os.path.join(folder, name)
            for folder in _numbered(self._folder, "")
            for name in _numbered(folder, ".log")
        ]

    def _marked(self, path: str, lines: bytes | None) -> Iterator[LogLines]:
        if lines is None:
            return
        node = int(os.path.basename(path).removesuffix(".log"))
        for text in lines.decode(errors="replace").split("\n"):
            line = line_of(self._ref, NodeLine(0, node, text))
            if self._ranks is None or line.rank in self._ranks:
                yield line


def _numbered(folder: str, ending: str) -> list[str]:
    """The paths of what a folder holds under a number and an ending, in their order."""
    try:
        names = [name.removesuffix(ending) for name in os.listdir(folder) if name.endswith(ending)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    numbers = sorted(int(name) for name in names if name.isdigit())
    return [os.path.join(folder, f"{number}{ending}") for number in numbers]
