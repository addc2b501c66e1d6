import os
import shutil
import sqlite3
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgpu_decl.errors import Locked, NotFound, SgpuError, StateError
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.environment import Package, PackageList
from sgpu_decl.model.state import Attempt, Intent
from sgpu_decl.storing.rows import attempt_of, attempt_row, intent_of, intent_row
from sgpu_decl.storing.sqlite import SqliteStore

TRAIN = Address.run("train")


def _files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")}


def test_reading_before_anything_was_applied_makes_no_file(store, tmp_path):
    assert store.read() is None
    assert store.read_all() is None
    assert store.history(TRAIN) == ()
    assert store.holder() is None
    assert _files(tmp_path) == set()


def test_an_intent_is_there_until_its_launch_is_recorded(store, launch):
    done = launch()
    with store.lock("apply", lineage="lin") as writer:
        writer.begin(done.intent)
        assert store.read().intents == (done.intent,)
        writer.launched(done.intent, done.resource, done.attempt)
    state = store.read()
    assert state.lineage == "lin"
    assert state.intents == ()
    assert state.resources == {TRAIN: replace(done.resource, numbered=1)}
    assert state.active == (done.attempt,)


def test_an_abandoned_intent_leaves_no_attempt(store, launch):
    done = launch()
    with store.lock("apply", lineage="lin") as writer:
        writer.begin(done.intent)
        writer.abandon(done.intent)
    assert store.read().intents == ()
    assert store.history(TRAIN) == ()


def test_each_write_moves_the_serial_by_one(store, launch):
    done = launch()
    with store.lock("apply", lineage="lin") as writer:
        assert writer.state.serial == 0
        writer.begin(done.intent)
        assert writer.state.serial == 1
        writer.launched(done.intent, done.resource, done.attempt)
        writer.record_resource(replace(done.resource, spec='{"gpus":4}'))
        writer.plan_applied("p")
        assert writer.state.serial == 4
    assert store.read().serial == 4


def test_locking_and_observing_nothing_new_leave_the_serial(filled):
    before = filled.read()
    with filled.lock("plan", lineage="lin") as writer:
        writer.record_attempts(())
        writer.record_attempts(before.active)
    assert filled.read().serial == before.serial


def test_the_writer_sees_what_it_wrote(filled, launch):
    second = launch("other", 1)
    with filled.lock("apply", lineage="lin") as writer:
        before = writer.state
        writer.begin(second.intent)
        writer.launched(second.intent, second.resource, second.attempt)
        ended = replace(before.active[0], state=AttemptState.FAILED, exit_code=3)
        writer.record_attempts([ended])
        assert set(before.resources) == {TRAIN}
        assert writer.state == filled.read()
        assert writer.state.resources[TRAIN].last == ended
        assert writer.state.active == (second.attempt,)


def test_an_older_attempt_that_still_runs_is_listed_as_active(store, launch):
    first, second = launch(number=1), launch(number=2)
    with store.lock("apply", lineage="lin") as writer:
        for done in (first, second):
            writer.begin(done.intent)
            writer.launched(done.intent, done.resource, done.attempt)
    state = store.read()
    assert state.resources[TRAIN].last == second.attempt
    assert state.active == (first.attempt, second.attempt)
    assert store.history(TRAIN) == (first.attempt, second.attempt)


def test_a_gone_resource_keeps_its_history_and_its_last_attempt(filled):
    with filled.lock("destroy", lineage="lin") as writer:
        writer.record_resource(replace(writer.state.resources[TRAIN], gone=True))
    resource = filled.read().resources[TRAIN]
    assert resource.gone
    assert resource.last.ref.number == 1
    assert len(filled.history(TRAIN)) == 1


def test_recording_the_same_launch_twice_changes_nothing(filled, launch):
    done = launch()
    with filled.lock("apply", lineage="lin") as writer:
        writer.launched(done.intent, done.resource, done.attempt)
    assert filled.history(TRAIN) == (done.attempt,)


def test_another_launch_cannot_take_a_number_of_the_history(filled, launch):
    done = launch()
    other = replace(done.attempt, token="another")
    with filled.lock("apply", lineage="lin") as writer:
        before = writer.state
        with pytest.raises(StateError, match=r"train#1.*history"):
            writer.launched(done.intent, done.resource, other)
        assert writer.state == before


def test_package_lists_are_kept_once(filled):
    lists = [PackageList.of([Package("torch", "2.13.0")]), PackageList.of([])]
    with filled.lock("test", lineage="other") as writer:
        serial = writer.state.serial
        writer.record_packages(lists)
        writer.record_packages(lists[:1])
        assert writer.state.serial == serial + 1
    assert filled.read().package_lists == {it.digest: it for it in lists}


def test_a_plan_is_known_as_applied(filled):
    with filled.lock("apply", lineage="lin") as writer:
        assert writer.applied("plan-1")
        assert not writer.applied("plan-2")


def test_move_takes_the_history_along(filled):
    there = Address.run("there", "lr=1")
    with filled.lock("state mv", lineage="lin") as writer:
        writer.move(TRAIN, there)
        left = writer.state.resources[TRAIN]
    assert left.gone
    assert left.last is None
    assert filled.history(TRAIN) == ()
    assert [it.ref for it in filled.history(there)] == [AttemptRef(there, 1)]


def test_numbers_that_moved_away_are_not_given_again(filled, launch):
    there = Address.run("there")
    second = launch(number=2)
    with filled.lock("state mv", lineage="lin") as writer:
        writer.move(TRAIN, there)
        assert writer.state.resources[TRAIN].numbered == 1
        writer.begin(second.intent)
        writer.launched(second.intent, second.resource, second.attempt)
        assert writer.state.resources[TRAIN].last.ref == AttemptRef(TRAIN, 2)
        writer.move(TRAIN, Address.run("elsewhere"))
        writer.move(there, TRAIN)
        back = writer.state.resources[TRAIN]
    assert back.last.ref == AttemptRef(TRAIN, 1)
    assert back.numbered == 2
    assert not back.gone


def test_move_refuses_an_address_with_a_history_and_one_that_is_not_there(filled, launch):
    other = launch("other")
    with filled.lock("state mv", lineage="lin") as writer:
        writer.begin(other.intent)
        writer.launched(other.intent, other.resource, other.attempt)
        with pytest.raises(SgpuError, match="two histories"):
            writer.move(TRAIN, Address.run("other"))
        with pytest.raises(NotFound, match=r"run\.nowhere"):
            writer.move(Address.run("nowhere"), Address.run("else"))
        with pytest.raises(SgpuError, match="different kinds"):
            writer.move(TRAIN, Address.parse("job.train"))


def test_remove_lets_go_of_a_running_run_and_keeps_its_numbers(filled, launch):
    with filled.lock("state rm", lineage="lin") as writer:
        writer.begin(launch(number=2).intent)
        writer.remove(TRAIN)
        with pytest.raises(NotFound):
            writer.remove(Address.run("nowhere"))
    state = filled.read()
    assert state.resources[TRAIN].gone
    assert state.resources[TRAIN].last.state is AttemptState.LOST
    assert state.active == ()
    assert state.intents == ()


def test_a_second_lock_is_refused_with_its_holder(store):
    with store.lock("apply", lineage="lin"):
        holder = store.holder()
        with (
            pytest.raises(Locked, match=rf"`apply` of .* \(process {os.getpid()}") as caught,
            store.lock("destroy", lineage="lin"),
        ):
            pass
        assert f"sgpu state unlock {holder.id}" in caught.value.hint
        assert caught.value.exit_code == 3
    assert store.holder() is None


def test_a_writer_whose_lock_was_broken_cannot_write(store, launch):
    done = launch()
    with store.lock("apply", lineage="lin") as writer:
        store.unlock(store.holder().id)
        with pytest.raises(Locked, match="unlocked by hand"):
            writer.begin(done.intent)
        with (
            store.lock("state mv", lineage="lin"),
            pytest.raises(Locked, match="`state mv`"),
        ):
            writer.begin(done.intent)
    assert store.read().serial == 0
    assert store.holder() is None


def test_unlock_takes_only_the_id_that_is_held(store):
    with pytest.raises(NotFound):
        store.unlock("nothing")
    with store.lock("apply", lineage="lin"):
        held = store.holder().id
        with pytest.raises(NotFound, match=held):
            store.unlock("another")


def test_the_lineage_is_that_of_the_first_lock(store):
    with store.lock("apply", lineage="first"):
        pass
    with store.lock("apply", lineage="second") as writer:
        assert writer.state.lineage == "first"


def test_files_are_for_the_user_alone_whatever_the_umask(store, launch):
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


def test_new_folders_are_for_the_user_alone(store, tmp_path):
    with store.lock("apply", lineage="lin"):
        pass
    for folder in (tmp_path / ".sgpu", tmp_path / ".sgpu" / "default"):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_the_backup_is_the_state_before_the_last_session(filled):
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


def test_reading_works_in_a_folder_that_cannot_be_written(filled):
    expected = filled.read()
    files = _files(filled.path.parent)
    filled.path.chmod(0o400)
    filled.path.parent.chmod(0o500)
    try:
        assert filled.read() == expected
        assert _files(filled.path.parent) == files
    finally:
        filled.path.parent.chmod(0o700)


def test_reading_beside_a_writer_sees_what_is_committed(filled):
    with filled.lock("apply", lineage="lin") as writer:
        writer.plan_applied("p")
        assert filled.read().serial == writer.state.serial


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named(store, tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(SgpuError, match=r"\.sgpu"), store.lock("apply", lineage="lin"):
            pass
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.skipif(os.getuid() == 0, reason="root may read anything")
def test_a_database_that_cannot_be_read_is_named(filled):
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


def test_a_file_that_is_no_database_is_refused_and_left_alone(filled):
    filled.path.write_text("not a database, but long enough to look like a header\n" * 50)
    assert "state.db.backup" in _both_ways(filled, "not a SQLite database").hint


def test_a_short_text_file_is_refused(filled):
    filled.path.write_text("hello\n")
    _both_ways(filled, "not a SQLite database|corrupt")


def test_a_truncated_database_is_refused(filled):
    whole = filled.path.read_bytes()
    filled.path.write_bytes(whole[: len(whole) // 2])
    _both_ways(filled, "corrupt")


def test_an_emptied_database_is_not_taken_for_a_new_one(filled):
    filled.path.write_bytes(b"")
    _both_ways(filled, "empty")


def test_garbage_inside_a_database_is_refused(filled):
    whole = bytearray(filled.path.read_bytes())
    whole[4096:] = os.urandom(len(whole) - 4096)
    filled.path.write_bytes(whole)
    _both_ways(filled, "corrupt")


def test_the_database_of_another_program_is_refused(store):
    store.path.parent.mkdir(parents=True)
    with sqlite3.connect(store.path) as other:
        other.execute("CREATE TABLE t (a)")
    other.close()
    assert _both_ways(store, "another program").code == "state_foreign"


def test_a_newer_database_is_refused(filled):
    with sqlite3.connect(filled.path) as newer:
        newer.execute("PRAGMA user_version = 7")
    newer.close()
    error = _both_ways(filled, "newer sgpu")
    assert error.code == "state_newer"
    assert "upgrade" in error.hint


def test_a_value_that_is_not_ours_is_refused(filled):
    with sqlite3.connect(filled.path) as edited:
        edited.execute("UPDATE attempts SET state = 'sleeping'")
    edited.close()
    with pytest.raises(StateError, match="sleeping"):
        filled.read()


times = st.datetimes(timezones=st.just(UTC))
text = st.text(max_size=20)
attempts = st.builds(
    Attempt,
    ref=st.builds(
        AttemptRef,
        st.builds(
            Address.run, st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,9}", fullmatch=True), text
        ),
        st.integers(1, 10**6),
    ),
    token=text,
    backend=text,
    state=st.sampled_from(AttemptState),
    spec=text,
    fingerprint=text,
    code_digest=st.none() | text,
    pool=st.none() | text,
    created_at=times,
    started_at=st.none() | times,
    ended_at=st.none() | times,
    exit_code=st.none() | st.integers(-255, 255),
    failure=st.none() | st.sampled_from(FailureClass),
    plan_id=st.none() | text,
)


@given(attempts)
@settings(max_examples=60, deadline=None)
def test_an_attempt_survives_its_row(attempt):
    assert attempt_of(attempt_row(attempt)) == attempt


@given(attempts)
@settings(max_examples=30, deadline=None)
def test_an_intent_survives_its_row(attempt):
    intent = Intent(
        token=attempt.token,
        address=attempt.ref.address,
        owner="run.yaml",
        action="create",
        attempt=attempt.ref.number,
        plan_id="p",
        attempt_record=attempt,
        created_at=attempt.created_at,
    )
    assert intent_of(intent_row(intent)) == intent


def test_a_value_that_is_no_text_is_not_taken_for_a_damaged_state(store, launch):
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
