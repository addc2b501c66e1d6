"""What a store of numbered entries has to do. Each adapter is one class."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from sgpu_decl.errors import SgpuError
from sgpu_decl.frozen_dataclass import dataclass

__all__ = ["Entries", "Journal", "JournalGap", "StoreDown", "Stored"]


class StoreDown(SgpuError):
    """The store does not answer, or the answer was lost: what was asked may have happened."""

    code = "state_unreachable"
    retryable = True


class JournalGap(SgpuError):
    """An entry is missing, or is another one, before one that is there or is to be added."""

    code = "state_unusable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """An entry as the store keeps it. `at` is the time of the store when it was appended."""

    number: int
    text: str
    at: datetime


class Entries(Protocol):
    """What is read of a journal: its entries, numbered from 1 without gaps.

    Every call may raise:
        StoreDown: try again; `append` and `put_checkpoint` may have happened.
        SgpuError: the store refuses; trying again is no use.
    """

    @property
    def name(self) -> str:
        """The place of the store, for messages. It holds no password."""

    def after(self, number: int, *, most: int | None = None) -> Sequence[Stored]:
        """The entries with higher numbers, in order; `most` of them at most.

        Raises:
            JournalGap: one is missing.
        """

    def checkpoint(self) -> tuple[int, bytes] | None:
        """The newest checkpoint: the number of the last entry that is in it, and its content."""


class Journal(Entries, Protocol):
    """The entries of one project and target."""

    def append(self, number: int, text: str, *, prev: str | None = None) -> datetime | None:
        """Add an entry. Of several callers with one number, one succeeds. Once it returns, the
        entry survives a power cut.

        Args:
            prev: the digest of the entry before; None takes any.

        Returns:
            The time of the store; None if the number is taken.

        Raises:
            JournalGap: the number is free, and the entry before is missing or is another one: the
                store has lost entries.
        """

    def put_checkpoint(self, number: int, data: bytes) -> None:
        """Add a checkpoint. One that is there stays."""

    def now(self) -> datetime:
        """The time of the store, by the clock that `append` uses."""

    def targets(self) -> tuple[str, ...]:
        """The targets of this project that have entries, sorted."""

    def of_target(self, target: str) -> "Journal":
        """The journal of another target of this project."""

    def close(self) -> None:
        """Close connections. A later call opens them again."""
