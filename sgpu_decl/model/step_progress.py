"""How far a long step has come: of an environment, of sending the code, of fetching files."""

from collections.abc import Callable
from typing import Protocol

Sent = Callable[[int], None]
"""Told, while a file is sent somewhere, how many bytes of it are under way."""


class Progress(Protocol):
    def advance(self, phase: str, done: int, total: int) -> None:
        """`done` of `total` is behind us: bytes where the phase moves bytes, else files or
        packages.

        `phase` is one word such as `reading`, `copying`, `linking`, `resolving` or
        `sending`; `total` is 0 while it is not known. Called often, from one thread.
        """


class Quiet:
    """For whoever does not want to know."""

    def advance(self, phase: str, done: int, total: int) -> None:
        pass
