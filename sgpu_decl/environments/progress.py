"""How far a long step is, for whoever shows it."""

from typing import Protocol

__all__ = ["Progress", "Quiet"]


class Progress(Protocol):
    """Told by the thread that does the work; must be quick."""

    def advance(self, phase: str, done: int, total: int) -> None:
        """`phase` is one of `reading`, `copying`, `linking`, `compiling`, `resolving`, `building`,
        `packing`; `done` of `total` counts bytes where the phase moves bytes."""


class Quiet:
    """Nobody looks."""

    def advance(self, phase: str, done: int, total: int) -> None:
        """Say nothing."""
