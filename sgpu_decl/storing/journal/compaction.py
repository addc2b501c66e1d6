"""Deleting the old entries of a journal, whose place a checkpoint takes.

The first entry always stays: it says which state this is. So does every entry from that of the
checkpoint on: the chain of digests is checked from there. A copy on a machine that has not read
that far is made anew of the checkpoint.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.storing.journal.entry import newer, read_entry
from sgpu_decl.storing.journal.ops import keeps_all
from sgpu_decl.storing.journal.port import Compacted, Journal, Stored
from sgpu_decl.storing.journal.replica import replica_up_to

_AT_ONCE = 1000  # entries that are read together


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """How many entries were deleted. `first` is the number of the oldest one that stays after the
    first one of the journal, and None where nothing was deleted."""

    entries: int
    first: int | None


def compact(journal: Journal, *, older_than: float) -> Compaction:
    """Delete entries that are older than `older_than` seconds by the clock of the store. The lock
    has to be held.

    Raises:
        SgpuError: this user may not delete, or a newer sgpu has written one of them.
    """
    before = journal.now() - timedelta(seconds=older_than)
    oldest, first = _kept_from(journal, before)
    if first <= oldest:
        return Compaction(entries=0, first=None)
    # A checkpoint that is there may be one of an older sgpu, which lacks something.
    while not _put_checkpoint(journal, first):
        first -= 1
        if first <= oldest:
            return Compaction(entries=0, first=None)
    journal.drop_before(first)
    return Compaction(entries=first - oldest, first=first)


def _put_checkpoint(journal: Journal, number: int) -> bool:
    """Add a checkpoint that is made of the entries alone; false if one of that number is there."""
    with replica_up_to(journal, number) as replica:
        return journal.put_checkpoint(*replica.checkpoint())


def _kept_from(journal: Journal, before: datetime) -> tuple[int, int]:
    """The number of the oldest entry after the first one, and of the first one that stays: the
    oldest that is not older than `before`, else the newest.

    Raises:
        StateError: an older entry holds what this sgpu would leave out of a checkpoint.
    """
    oldest: int | None = None
    first = 1
    for stored in _entries(journal):
        if stored.number == 1:
            continue
        oldest, first = oldest or stored.number, stored.number
        entry = read_entry(stored.number, stored.text, store=journal.name)
        if not all(map(keeps_all, entry.ops)):
            raise newer(stored.number, journal.name)
        if stored.at >= before:
            break
    return oldest or 1, first


def _entries(journal: Journal) -> Iterator[Stored]:
    number = 0
    while True:
        try:
            found = journal.after(number, most=_AT_ONCE)
        except Compacted as gap:
            number = gap.first - 1
            continue
        if not found:
            return
        yield from found
        number = found[-1].number
