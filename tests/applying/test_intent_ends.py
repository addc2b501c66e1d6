"""Ends of launches that a shared state does not take at once."""

from datetime import datetime
from pathlib import Path
from typing import cast

import pytest

from sgpu_decl.applying.intent_ends import IntentEnds
from sgpu_decl.errors import Locked
from sgpu_decl.model.state import IntentEnd
from sgpu_decl.places.folder import MARKER
from sgpu_decl.storing.journal.port import Journal, StoreDown
from sgpu_decl.storing.journal.writer import JournalWriter
from sgpu_decl.storing.stores import FOLDER, SharedPlace, shared_journal, shared_store
from tests.shared_places import break_lock
from tests.storing.conftest import make_launch


class DownJournal:
    """A journal that takes nothing while it is down."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.down = True

    def __getattr__(self, name: str) -> object:
        return getattr(self._journal, name)

    def append(self, number: int, text: str, *, prev: str | None = None) -> datetime | None:
        if self.down:
            raise StoreDown("nobody answers", hint="ask again")
        return self._journal.append(number, text, prev=prev)


def test_nothing_is_kept_for_later_once_somebody_else_has_the_lock(tmp_path: Path) -> None:
    (tmp_path / MARKER).touch()
    place = SharedPlace(kind=FOLDER, address=str(tmp_path), project="p")
    done, store = make_launch(), shared_store(place, tmp_path / "one" / "default")
    with store.lock("apply", lineage="lin") as writer:
        assert isinstance(writer, JournalWriter)
        writer.begin(done.intent)
        fragile = DownJournal(shared_journal(place, "default"))
        writer._journal, writer._patience = cast("Journal", fragile), 0.0
        ends = IntentEnds(writer)
        end = IntentEnd(intent=done.intent, resource=done.resource, attempt=done.attempt)
        ends.record([end])
        assert isinstance(ends.error, StoreDown)
        break_lock(place, tmp_path / "two")
        fragile.down = False
        with pytest.raises(Locked):
            ends.record([])
        assert ends.error is None
