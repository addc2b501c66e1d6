import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgpu_decl.errors import SgpuError, StateError
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.launch import LaunchInputs, LaunchRecord, Provenance
from sgpu_decl.model.state import Attempt, Intent
from sgpu_decl.storing.sqlite.rows import attempt_of, attempt_row, intent_of, intent_row
from sgpu_decl.storing.sqlite.store import SqliteStore
from tests.storing.conftest import Launched

TRAIN = Address.run("train")


def _files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")}


def test_reading_before_anything_was_applied_makes_no_file(
    store: SqliteStore, tmp_path: Path
) -> None:
    assert store.read() is None
    assert store.read_all() is None
    assert store.history(TRAIN) == ()
    assert store.holder() is None
    assert _files(tmp_path) == set()


def test_files_are_for_the_user_alone_whatever_the_umask(
    store: SqliteStore, launch: Callable[..., Launched]
) -> None:
    done = launch()
    old = os.umask(0o277)
    try:
        with store.lock("apply", lineage="lin") as writer:
            writer.begin(done.intent)
            modes = {path.name: path.stat().st_mode & 0o777 for path in store.path.parent.iterdir()}
    finally:
        os.umask(old)
    assert set(modes.values()) == {0o600}
    assert "state.db-wal" in modes


@pytest.mark.parametrize("umask", [0o022, 0o277])
def test_new_folders_are_for_the_user_alone(store: SqliteStore, tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        with store.lock("apply", lineage="lin"):
            pass
    finally:
        os.umask(old)
    for folder in (tmp_path / ".sgpu", tmp_path / ".sgpu" / "default"):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_the_backup_is_the_state_before_the_last_session(filled: SqliteStore) -> None:
    before = filled.read()
    with filled.lock("apply", lineage="lin") as writer:
        writer.remove(TRAIN)
        writer.plan_applied("p")
    backup = filled.path.with_name("state.db.backup")
    assert backup.stat().st_mode & 0o777 == 0o600
    shutil.copy(backup, filled.path)
    assert filled.read() == before
    assert filled.holder() is None
    assert _files(filled.path.parent) == {"state.db", "state.db.backup"}


def test_half_a_backup_of_a_session_that_was_killed_is_deleted_by_the_next_one(
    filled: SqliteStore,
) -> None:
    half = filled.path.with_name("state.db.backup.1")
    half.write_bytes(b"half")
    with filled.lock("apply", lineage="lin") as writer:
        writer.plan_applied("p")
    assert not half.exists()


def test_reading_works_in_a_folder_that_cannot_be_written(filled: SqliteStore) -> None:
    expected = filled.read()
    files = _files(filled.path.parent)
    filled.path.chmod(0o400)
    filled.path.parent.chmod(0o500)
    try:
        assert filled.read() == expected
        assert _files(filled.path.parent) == files
    finally:
        filled.path.parent.chmod(0o700)


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named(store: SqliteStore, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(SgpuError, match=r"\.sgpu"), store.lock("apply", lineage="lin"):
            pass
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.skipif(os.getuid() == 0, reason="root may read anything")
def test_a_database_that_cannot_be_read_is_named(filled: SqliteStore) -> None:
    filled.path.chmod(0)
    with pytest.raises(SgpuError) as caught:
        filled.read()
    assert str(filled.path) in caught.value.message


def _both_ways(store: SqliteStore, match: str) -> StateError:
    before = store.path.read_bytes()
    with pytest.raises(StateError, match=match):
        store.read()
    with pytest.raises(StateError, match=match) as caught, store.lock("apply", lineage="lin"):
        pass
    assert store.path.read_bytes() == before
    return caught.value


def test_a_file_that_is_no_database_is_refused_and_left_alone(filled: SqliteStore) -> None:
    filled.path.write_text("not a database, but long enough to look like a header\n" * 50)
    assert "state.db.backup" in _both_ways(filled, "not a SQLite database").hint


def test_a_short_text_file_is_refused(filled: SqliteStore) -> None:
    filled.path.write_text("hello\n")
    _both_ways(filled, "not a SQLite database|corrupt")


def test_a_truncated_database_is_refused(filled: SqliteStore) -> None:
    whole = filled.path.read_bytes()
    filled.path.write_bytes(whole[: len(whole) // 2])
    _both_ways(filled, "corrupt")


def test_an_emptied_database_is_not_taken_for_a_new_one(filled: SqliteStore) -> None:
    filled.path.write_bytes(b"")
    refused = _both_ways(filled, "empty")
    with pytest.raises(StateError) as caught:
        filled.read()
    assert caught.value.hint == refused.hint
    assert "state.db-wal` and `state.db-shm` away" in refused.hint


def test_garbage_inside_a_database_is_refused(filled: SqliteStore) -> None:
    whole = bytearray(filled.path.read_bytes())
    whole[4096:] = os.urandom(len(whole) - 4096)
    filled.path.write_bytes(whole)
    _both_ways(filled, "corrupt")


def test_the_database_of_another_program_is_refused(store: SqliteStore) -> None:
    store.path.parent.mkdir(parents=True)
    with sqlite3.connect(store.path) as other:
        other.execute("CREATE TABLE t (a)")
    other.close()
    assert _both_ways(store, "another program").code == "state_foreign"


def test_a_newer_database_is_refused(filled: SqliteStore) -> None:
    with sqlite3.connect(filled.path) as newer:
        newer.execute("PRAGMA user_version = 7")
    newer.close()
    error = _both_ways(filled, "newer sgpu")
    assert error.code == "state_newer"
    assert "upgrade" in error.hint


def test_a_value_that_is_not_ours_is_refused(filled: SqliteStore) -> None:
    with sqlite3.connect(filled.path) as edited:
        edited.execute("UPDATE attempts SET state = 'sleeping'")
    edited.close()
    with pytest.raises(StateError, match="sleeping"):
        filled.read()


times = st.datetimes(timezones=st.just(UTC))
text = st.text(max_size=20)
refs = st.builds(
    AttemptRef,
    st.builds(Address.run, st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,9}", fullmatch=True), text),
    st.integers(1, 10**6),
)
inputs = st.builds(
    LaunchInputs,
    spec=st.builds(Spec, text),
    fingerprint=text,
    code_digest=st.none() | text,
    environment_digest=st.none() | text,
    packages_digest=st.none() | text,
    placement=st.none() | text,
)
provenances = st.builds(
    Provenance,
    reason=st.none() | text,
    commit=st.none() | text,
    dirty=st.none() | st.booleans(),
    function=st.none() | text,
)
attempts = st.builds(
    Attempt,
    ref=refs,
    token=text,
    backend=text,
    inputs=inputs,
    state=st.sampled_from(AttemptState),
    created_at=times,
    started_at=st.none() | times,
    ended_at=st.none() | times,
    exit_code=st.none() | st.integers(-255, 255),
    failure=st.none() | st.sampled_from(FailureClass),
    plan_id=st.none() | text,
    provenance=provenances,
)
launches = st.builds(
    LaunchRecord,
    ref=refs,
    backend=text,
    token=text,
    lineage=text,
    owner=text,
    inputs=inputs,
    wait_for=st.lists(st.integers(1, 99)).map(tuple),
)


@given(attempts)
@settings(max_examples=60, deadline=None)
def test_an_attempt_survives_its_row(attempt: Attempt) -> None:
    assert attempt_of(attempt_row(attempt)) == attempt


@given(launches, times)
@settings(max_examples=30, deadline=None)
def test_an_intent_survives_its_row(launch: LaunchRecord, moment: datetime) -> None:
    intent = Intent(
        token=launch.token,
        address=launch.ref.address,
        owner=launch.owner,
        action="create",
        attempt=launch.ref.number,
        plan_id="p",
        created_at=moment,
        launch=launch,
    )
    assert intent_of(intent_row(intent), "lin") == intent


def test_an_intent_of_an_older_version_takes_what_it_lacks_from_the_state(
    launch: Callable[..., Launched],
) -> None:
    intent = launch("train", 1).intent
    row = list(intent_row(intent))
    cells = json.loads(str(row[6]))
    for missing in ("lineage", "owner", "wait_for"):
        del cells[missing]
    row[6] = json.dumps({**cells, "state": "queued", "created_at": "2026-01-31T12:00:00Z"})
    assert intent_of(row, "lin") == intent


def test_a_value_that_is_no_text_is_not_taken_for_a_damaged_state(
    store: SqliteStore, launch: Callable[..., Launched]
) -> None:
    done = launch()
    bad = replace(done.resource, owner="caf\udce9/run.yaml")
    with (
        store.lock("apply", lineage="lin") as writer,
        pytest.raises(SgpuError, match=r"keeps text, and '\\udce9' is no character") as caught,
    ):
        writer.launched(done.intent, bad, done.attempt)
    assert caught.value.code == "state_unreachable"
    assert "nothing was recorded" in caught.value.hint
    assert store.read().resources == {}
