"""Appending an entry for certain: once, whatever becomes of the answer."""

import random
import time
from datetime import datetime

from sgpu_decl.errors import StateError
from sgpu_decl.storing.journal.port import Compacted, Journal, JournalGap, StoreDown

PATIENCE = 60.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_MOST_TURNS = 10


def append_once(
    journal: Journal, number: int, text: str, *, prev: str, patience: float = PATIENCE
) -> datetime | None:
    """Append an entry, and try again for `patience` seconds while the store does not answer. An
    entry with this very text under this number is the one whose answer was lost.

    Args:
        prev: the digest of the entry before, which has to be there.

    Returns:
        The time of the store; None if another entry has the number.

    Raises:
        StoreDown: the store does not answer. The entry may be there or not.
        StateError: the store has lost entries. Nothing was appended.
    """
    deadline = time.monotonic() + patience
    pause = _FIRST_PAUSE
    while True:
        try:
            at = journal.append(number, text, prev=prev)
            if at is not None:
                return at
            found = journal.after(number - 1, most=1)
            return found[0].at if found and found[0].text == text else None
        except StoreDown:
            if time.monotonic() + pause > deadline:
                raise
        except Compacted:
            return None  # the number was taken long ago
        except JournalGap as gap:
            raise StateError(
                f"the state in `{journal.name}` has lost entries that were recorded: {gap.message}",
                hint="nothing more was recorded; was the store restored from a backup, or did a "
                "standby take over? Look with `sgpu plan` at what the older state would launch",
                code="state_diverged",
            ) from gap
        time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  spreads writers, no secret
        pause = min(2 * pause, _LONGEST_PAUSE)


class StaleReads:
    """Counts how often a store said that a number is taken, and did not show the entry: its reads
    may go to a copy that lags behind."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._number = 0
        self._turns = 0

    def wait(self, number: int) -> None:
        """Wait before another turn, longer each time.

        Args:
            number: that of the last entry that the store shows.

        Raises:
            StateError: it has shown no other one for many turns.
        """
        self._turns = self._turns + 1 if number == self._number else 0
        self._number = number
        if self._turns > _MOST_TURNS:
            raise StateError(
                f"the shared state in `{self._store}` has an entry {number + 1}, and does not show "
                "it",
                hint="do its reads go to a copy that lags behind? Name the server that writes",
            )
        time.sleep(self._turns * _FIRST_PAUSE)
