"""The copy of a journal on one machine."""

import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from sgpu_decl.places.folder import MARKER
from sgpu_decl.storing.journal.store import JournalStore
from sgpu_decl.storing.stores import FOLDER, SharedPlace, shared_journal, shared_store
from tests.storing.conftest import make_launch


@pytest.fixture
def place(tmp_path: Path) -> SharedPlace:
    (tmp_path / MARKER).touch()
    return SharedPlace(kind=FOLDER, address=str(tmp_path), project="p")


def fill(store: JournalStore) -> None:
    done = make_launch()
    with store.lock("apply", lineage="lin") as writer:
        writer.begin(done.intent)
        writer.launched(done.intent, done.resource, done.attempt)


def test_what_a_killed_process_left_beside_a_deleted_copy_is_no_part_of_the_next_one(
    place: SharedPlace, tmp_path: Path
) -> None:
    replica = tmp_path / "here" / "default" / "replica.db"
    store = shared_store(place, replica.parent)
    fill(store)
    before = store.read_all()
    store._journal.put_checkpoint(*store._replica.checkpoint())
    log = replica.with_name("replica.db-wal")
    with closing(sqlite3.connect(replica, isolation_level=None)) as connection:
        connection.execute("UPDATE meta SET serial = 99")
        shutil.copy(log, tmp_path)  # as it stays where the process is killed now
    replica.unlink()
    shutil.copy(tmp_path / log.name, log)
    again = shared_store(place, replica.parent)
    assert again.read_all() == before
    again.check()


def test_a_checkpoint_that_cannot_be_made_is_no_error_of_what_was_written(
    place: SharedPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgpu_decl.storing.journal.store.CHECKPOINT_EVERY", 2)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    store = shared_store(place, tmp_path / "here" / "default")
    fill(store)
    assert shared_journal(place, "default").checkpoint() is None
    monkeypatch.undo()
    monkeypatch.setattr("sgpu_decl.storing.journal.store.CHECKPOINT_EVERY", 2)
    fill(store)
    assert shared_journal(place, "default").checkpoint() is not None
