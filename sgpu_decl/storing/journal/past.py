"""The state as it was when one of the entries was the last."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sgpu_decl.scratch_folders import scratch_folder
from sgpu_decl.storing.journal.port import Entries, Stored
from sgpu_decl.storing.journal.replica import Replica


@contextmanager
def replica_up_to(entries: Entries, last: int) -> Iterator[Replica]:
    """The tables after the entry of a number, made for as long as the block lasts.

    Raises:
        StateError, Compacted, StoreDown: as `Replica.catch_up`.
    """
    with scratch_folder("checkpoint") as folder:
        replica = Replica(folder / "replica.db", _EntriesUpTo(entries, last))
        replica.catch_up()
        yield replica


class _EntriesUpTo:
    """The entries up to the one of a number, that one included."""

    def __init__(self, entries: Entries, last: int) -> None:
        self._entries = entries
        self._last = last

    @property
    def name(self) -> str:
        return self._entries.name

    def after(self, number: int, *, most: int | None = None) -> Sequence[Stored]:
        left = max(0, self._last - number)
        return self._entries.after(number, most=left if most is None else min(most, left))

    def checkpoint(self) -> tuple[int, bytes] | None:
        """Only the newest checkpoint and the oldest one can be had: none, if they are newer than
        the last entry."""
        newest = self._entries.checkpoint()
        if newest is None or newest[0] <= self._last:
            return newest
        return self.oldest_checkpoint()

    def oldest_checkpoint(self) -> tuple[int, bytes] | None:
        oldest = self._entries.oldest_checkpoint()
        return oldest if oldest is not None and oldest[0] <= self._last else None
