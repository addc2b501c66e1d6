"""What a store of numbered entries has to do. Each adapter is one class."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from sgpu_decl.errors import SgpuError
from sgpu_decl.frozen_dataclass import dataclass


class StoreDown(SgpuError):
    """The store does not answer, or the answer was lost: what was asked may have happened."""

    code = "state_unreachable"
    retryable = True


class JournalGap(SgpuError):
    """An entry is missing, or is another one, before one that is there or is to be added."""

    code = "state_unusable"


class Compacted(JournalGap):
    """What was asked for begins before the entry `first`, and all entries between the first one of
    the journal and that one are gone: they were deleted by `state compact`."""

    def __init__(self, store: str, first: int) -> None:
        super().__init__(
            f"the entries 2 to {first - 1} of the state in `{store}` were deleted, and no "
            "checkpoint is there that could replace them here",
            hint="was the state compacted by a newer sgpu? Then upgrade this one; else restore the "
            "store from its backup",
        )
        self.first = first


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """An entry as the store keeps it. `at` is the time of the store when it was appended."""

    number: int
    text: str
    at: datetime


class Entries(Protocol):
    """What is read of a journal: its entries, numbered from 1 without gaps. Of a journal that was
    compacted, the entries after the first one may be gone, up to some number. The oldest checkpoint
    has then what they did.

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
            Compacted: some of them were deleted, as all before them.
            JournalGap: one is missing.
        """

    def checkpoint(self) -> tuple[int, bytes] | None:
        """The newest checkpoint: the number of the last entry that is in it, and its content."""

    def oldest_checkpoint(self) -> tuple[int, bytes] | None:
        """As `checkpoint`, the oldest one."""


class Journal(Entries, Protocol):
    """The entries of one project and target."""

    def append(self, number: int, text: str, *, prev: str | None = None) -> datetime | None:
        """Add an entry. Of several callers with one number, one succeeds. Once it returns, the
        entry survives a power cut.

        Args:
            prev: the digest of the entry before; None takes any.

        Returns:
            The time of the store; None if the number is taken, or was before it was compacted.

        Raises:
            JournalGap: the number is free, and the entry before is missing or is another one: the
                store has lost entries.
        """

    def put_checkpoint(self, number: int, data: bytes) -> bool:
        """Add a checkpoint. One that is there stays, and the answer is false."""

    def drop_before(self, number: int) -> None:
        """Delete the checkpoints before that of an entry, then the entries before it, but for the
        first one. A crash in between leaves a journal that can be read.

        Raises:
            SgpuError: this user may not delete anything.
        """

    def now(self) -> datetime:
        """The time of the store, by the clock that `append` uses."""

    def targets(self) -> tuple[str, ...]:
        """The targets of this project that have entries, sorted."""

    def of_target(self, target: str) -> "Journal":
        """The journal of another target of this project."""

    def close(self) -> None:
        """Close connections. A later call opens them again."""
