"""The state lock of an apply, which is given back while attempts stop."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Self

from sgpu_decl.errors import Locked
from sgpu_decl.model.state_log import ApplySource
from sgpu_decl.planning.project import Project
from sgpu_decl.storing.state_store import StateWriter

_RETAKING = 60.0  # seconds that others may keep a lock, at least, which was given back


class ApplyLock:
    """A context that holds the state lock, unless it was given back. `writer` writes what it
    guards.

    Raises:
        Locked: somebody else keeps it for longer than the project has patience.
    """

    writer: StateWriter
    source: ApplySource | None = None

    def __init__(self, project: Project, lineage: str, on_wait: Callable[[], None]) -> None:
        """`on_wait` is called again and again while the lock is waited for."""

        def waiting(refused: Locked) -> None:
            on_wait()
            project.patience.on_wait(refused)

        self._project, self._lineage = project, lineage
        self._patience = replace(project.patience, on_wait=waiting)
        self._held = ExitStack()
        self.is_held = False

    def __enter__(self) -> Self:
        self._take(self._patience.seconds)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._held.__exit__(kind, error, traceback)

    def attribute(self, source: ApplySource) -> None:
        """Let the log say on whose behalf this lock is held, also after it was taken again."""
        self.source = source
        self.writer.attribute(source)

    def give_back(self) -> None:
        self._held.close()
        self.is_held = False

    def take_again(self) -> StateWriter:
        """Take the lock that was given back, and return its writer."""
        self._take(max(self._patience.seconds, _RETAKING))
        return self.writer

    def _take(self, seconds: float) -> None:
        patience = replace(self._patience, seconds=seconds)
        writing = self._project.writing("apply", self._lineage, patience)
        self.writer = self._held.enter_context(writing)
        if self.source is not None:
            self.writer.attribute(self.source)
        self.is_held = True
