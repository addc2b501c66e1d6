"""A journal as it was when one of its entries was the last."""

from collections.abc import Sequence

from sgpu_decl.storing.journal.port import Entries, Stored

__all__ = ["EntriesUpTo"]


class EntriesUpTo:
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
