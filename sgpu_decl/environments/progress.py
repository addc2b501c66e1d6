"""How far a long step of an environment has come."""

from typing import Protocol

__all__ = ["Progress", "Quiet"]


class Progress(Protocol):
    def advance(self, phase: str, done: int, total: int) -> None:
        """`done` of `total` is behind us: bytes where the phase moves bytes, else files or
        packages.

        `phase` is one word such as `reading`, `copying`, `linking`, `compiling`, `resolving` or
        `packing`; `total` is 0 while it is not known. Called often, from one thread.
        """


class Quiet:
    """For whoever does not want to know."""

    def advance(self, phase: str, done: int, total: int) -> None:
        pass
