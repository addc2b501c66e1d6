"""What every state store promises (`storing.state_store`).

A new store joins by one more parameter of `url`.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sgpu_decl.errors import Locked, NotFound, SgpuError, StateError
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.environment import Package, PackageList
from sgpu_decl.model.jsonable import NO_FIELDS, Spec
from sgpu_decl.model.owner import Presence
from sgpu_decl.model.state import Resource
from sgpu_decl.storing.state_store import Patience, StateStore, StateWriter
from sgpu_decl.storing.stores import SHARED, local_store, open_state_store, shared_store
from tests.shared_places import new_place
from tests.side_programs import start_program
from tests.storing.conftest import Launched, make_launch

TRAIN = Address.run("train")


@pytest.fixture(params=["sqlite", *SHARED])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """That of a state which is not there yet."""
    folder = tmp_path / ".sgpu" / "default"
    if request.param == "sqlite":
        return local_store(folder).url
    return shared_store(new_place(request, request.param, tmp_path), folder).url


@pytest.fixture
def open_store() -> Iterator[Callable[[str], StateStore]]:
    with ExitStack() as opened:

        def open_one(url: str) -> StateStore:
            store = open_state_store(url)
            assert store is not None
            opened.callback(store.close)
            return store

        yield open_one


@pytest.fixture
def store(url: str, open_store: Callable[[str], StateStore]) -> StateStore:
    return open_store(url)


def launch(writer: StateWriter, *launches: Launched) -> None:
    """Write down that these were launched."""
    for done in launches:
        writer.begin(done.intent)
        writer.launched(done.intent, done.resource, done.attempt)


@pytest.fixture
def filled(store: StateStore) -> StateStore:
    """One run that is running, and an applied plan."""
    with store.lock("apply", lineage="lin") as writer:
        launch(writer, make_launch())
        writer.plan_applied("plan-1")
    return store


def test_reading_before_anything_was_applied_makes_nothing(store: StateStore) -> None:
    assert store.read() is None
    assert store.read_all() is None
    assert store.history(TRAIN) == ()
    assert store.holder() is None
    assert store.abandoned_lock() is None
    store.check()
    assert store.presence("lin") is Presence.MISSING


def test_a_store_is_found_again_by_its_url(
    filled: StateStore, open_store: Callable[[str], StateStore]
) -> None:
    found = open_store(filled.url)
    assert found.read() == filled.read()
    assert found.url == filled.url


def test_a_store_of_a_kind_that_is_not_known_is_none() -> None:
    assert open_state_store("elsewhere://host/state") is None


def test_each_target_of_a_project_has_a_state_of_its_own(filled: StateStore) -> None:
    other = filled.of_target("prod")
    assert filled.targets() == ("default",)
    assert other.read() is None
    with other.lock("apply", lineage="of prod"):
        pass
    assert filled.targets() == other.targets() == ("default", "prod")
    assert other.of_target("default").read() == filled.read()
    assert other.presence("lin") is Presence.MISSING


def test_presence_is_that_of_one_lineage(filled: StateStore) -> None:
    assert filled.presence("lin") is Presence.PRESENT
    assert filled.presence("another") is Presence.MISSING


def test_what_is_observed_of_an_attempt_is_kept_and_what_was_decided_stays(
    filled: StateStore,
) -> None:
    (attempt,) = filled.history(TRAIN)
    ended = replace(
        attempt,
        state=AttemptState.FAILED,
        started_at=attempt.created_at,
        ended_at=attempt.created_at,
        exit_code=3,
        failure=FailureClass.EXIT_CODE,
    )
    other = replace(ended, inputs=replace(ended.inputs, fingerprint="another"))
    with filled.lock("test", lineage="lin") as writer:
        writer.record_attempts([other])
    assert filled.history(TRAIN) == (ended,)
    assert filled.read().active == ()


def test_where_a_backend_has_an_attempt_is_part_of_what_is_known_of_its_launch(
    store: StateStore,
) -> None:
    done = make_launch()
    attempt = replace(done.attempt, reference="/shared/runs/train/1-abc")
    with store.lock("apply", lineage="lin") as writer:
        writer.begin(done.intent)
        writer.launched(done.intent, done.resource, attempt)
    state = store.read()
    assert state is not None
    assert state.launch_of(*state.active).reference == attempt.reference
    assert store.history(TRAIN) == (attempt,)


def test_a_job_is_made_by_its_intent(store: StateStore) -> None:
    job = Resource(
        address=Address.parse("job.nightly"), backend="databricks", owner="sgpu.yml",
        spec=NO_FIELDS, last=None, remote='{"id":"7","token":"t","workspace":"w"}',
    )  # fmt: skip
    bare = replace(job, remote=None)
    intent = replace(make_launch().intent, address=job.address, launch=None, job=bare)
    with store.lock("apply", lineage="lin") as writer:
        writer.begin(intent)
        assert store.read().intents == (intent,)
        writer.made(intent, job)
    assert store.read().resources == {job.address: job}
    assert store.read().intents == ()


@pytest.mark.parametrize(
    ("patience", "most"), [(0.2, 1000), (1e-9, 1)], ids=["waited for", "less than a look"]
)
def test_a_lock_is_waited_for_as_long_as_patience_lasts_and_that_is_told(
    url: str, open_store: Callable[[str], StateStore], patience: float, most: int
) -> None:
    first, second = open_store(url), open_store(url)
    waits: list[Locked] = []
    with (
        first.lock("apply", lineage="lin"),
        pytest.raises(Locked),
        second.lock(
            "apply", lineage="lin", patience=Patience(seconds=patience, on_wait=waits.append)
        ),
    ):
        pass
    assert 1 <= len(waits) <= most
    assert first.holder() is None


def test_an_error_under_the_lock_releases_it_and_keeps_what_was_recorded(store: StateStore) -> None:
    with suppress(ZeroDivisionError), store.lock("apply", lineage="lin") as writer:
        writer.plan_applied("plan-1")
        raise ZeroDivisionError
    assert store.holder() is None
    with store.lock("apply", lineage="lin") as writer:
        assert writer.applied("plan-1")


def test_an_intent_is_there_until_its_launch_is_recorded(store: StateStore) -> None:
    done = make_launch()
    with store.lock("apply", lineage="lin") as writer:
        writer.begin(done.intent)
        assert store.read().intents == (done.intent,)
        writer.launched(done.intent, done.resource, done.attempt)
    state = store.read()
    assert state.lineage == "lin"
    assert state.intents == ()
    assert state.resources == {TRAIN: replace(done.resource, numbered=1)}
    assert state.active == (done.attempt,)


def test_an_abandoned_intent_leaves_no_attempt(store: StateStore) -> None:
    done = make_launch()
    with store.lock("apply", lineage="lin") as writer:
        writer.begin(done.intent)
        writer.abandon(done.intent)
    assert store.read().intents == ()
    assert store.history(TRAIN) == ()


def test_each_write_moves_the_serial_by_one(store: StateStore) -> None:
    done = make_launch()
    with store.lock("apply", lineage="lin") as writer:
        assert writer.state.serial == 0
        writer.begin(done.intent)
        assert writer.state.serial == 1
        writer.launched(done.intent, done.resource, done.attempt)
        writer.record_resource(replace(done.resource, spec=Spec('{"gpus":4}')))
        writer.plan_applied("p")
        assert writer.state.serial == 4
    assert store.read().serial == 4


def test_locking_and_observing_nothing_new_leave_the_serial(filled: StateStore) -> None:
    before = filled.read()
    with filled.lock("plan", lineage="lin") as writer:
        writer.record_attempts(())
        writer.record_attempts(before.active)
    assert filled.read().serial == before.serial


def test_the_writer_sees_what_it_wrote(filled: StateStore) -> None:
    second = make_launch("other", 1)
    with filled.lock("apply", lineage="lin") as writer:
        before = writer.state
        launch(writer, second)
        ended = replace(before.active[0], state=AttemptState.FAILED, exit_code=3)
        writer.record_attempts([ended])
        assert set(before.resources) == {TRAIN}
        assert writer.state == filled.read()
        assert writer.state.resources[TRAIN].last == ended
        assert writer.state.active == (second.attempt,)


def test_an_older_attempt_that_still_runs_is_listed_as_active(store: StateStore) -> None:
    first, second = make_launch(number=1), make_launch(number=2)
    with store.lock("apply", lineage="lin") as writer:
        launch(writer, first, second)
    state = store.read()
    assert state.resources[TRAIN].last == second.attempt
    assert state.active == (first.attempt, second.attempt)
    assert store.history(TRAIN) == (first.attempt, second.attempt)


def test_a_gone_resource_keeps_its_history_and_its_last_attempt(filled: StateStore) -> None:
    with filled.lock("destroy", lineage="lin") as writer:
        writer.record_resource(replace(writer.state.resources[TRAIN], gone=True))
    resource = filled.read().resources[TRAIN]
    assert resource.gone
    assert resource.last.ref.number == 1
    assert len(filled.history(TRAIN)) == 1


def test_recording_the_same_launch_twice_changes_nothing(filled: StateStore) -> None:
    done = make_launch()
    with filled.lock("apply", lineage="lin") as writer:
        writer.launched(done.intent, done.resource, done.attempt)
    assert filled.history(TRAIN) == (done.attempt,)


def test_another_launch_cannot_take_a_number_of_the_history(filled: StateStore) -> None:
    done = make_launch()
    other = replace(done.attempt, token="another")
    with filled.lock("apply", lineage="lin") as writer:
        before = writer.state
        with pytest.raises(StateError, match=r"train#1.*history"):
            writer.launched(done.intent, done.resource, other)
        assert writer.state == before


def test_package_lists_are_kept_once(filled: StateStore) -> None:
    lists = [PackageList.of([Package("torch", "2.13.0")]), PackageList.of([])]
    with filled.lock("test", lineage="other") as writer:
        serial = writer.state.serial
        writer.record_packages(lists)
        writer.record_packages(lists[:1])
        assert writer.state.serial == serial + 1
    assert filled.read().package_lists == {item.digest: item for item in lists}


def test_a_plan_is_known_as_applied(filled: StateStore) -> None:
    with filled.lock("apply", lineage="lin") as writer:
        assert writer.applied("plan-1")
        assert not writer.applied("plan-2")


def test_move_takes_the_history_along(filled: StateStore) -> None:
    there = Address.run("there", "lr=1")
    with filled.lock("state mv", lineage="lin") as writer:
        writer.move(TRAIN, there)
        left = writer.state.resources[TRAIN]
    assert left.gone
    assert left.last is None
    assert filled.history(TRAIN) == ()
    (attempt,) = filled.history(there)
    assert (attempt.ref, attempt.formerly) == (AttemptRef(there, 1), (TRAIN,))


def test_an_attempt_keeps_all_the_addresses_that_its_run_had(filled: StateStore) -> None:
    cell, last = Address.run("sweep", 'name="a b",seed=1'), Address.run("last")
    with filled.lock("state mv", lineage="lin") as writer:
        writer.move(TRAIN, cell)
        writer.move(cell, last)
        moved = writer.state.resources[last].last
    assert moved is not None
    assert moved.formerly == (TRAIN, cell)
    assert filled.history(last) == (moved,)


def test_numbers_that_moved_away_are_not_given_again(filled: StateStore) -> None:
    there = Address.run("there")
    second = make_launch(number=2)
    with filled.lock("state mv", lineage="lin") as writer:
        writer.move(TRAIN, there)
        assert writer.state.resources[TRAIN].numbered == 1
        launch(writer, second)
        assert writer.state.resources[TRAIN].last.ref == AttemptRef(TRAIN, 2)
        writer.move(TRAIN, Address.run("elsewhere"))
        writer.move(there, TRAIN)
        back = writer.state.resources[TRAIN]
    assert back.last.ref == AttemptRef(TRAIN, 1)
    assert back.numbered == 2
    assert not back.gone


def test_move_refuses_an_address_with_a_history_and_one_that_is_not_there(
    filled: StateStore,
) -> None:
    other = make_launch("other")
    with filled.lock("state mv", lineage="lin") as writer:
        launch(writer, other)
        with pytest.raises(SgpuError, match="two histories"):
            writer.move(TRAIN, Address.run("other"))
        with pytest.raises(NotFound, match=r"run\.nowhere"):
            writer.move(Address.run("nowhere"), Address.run("else"))
        with pytest.raises(SgpuError, match="different kinds"):
            writer.move(TRAIN, Address.parse("job.train"))


def test_remove_lets_go_of_a_running_run_and_keeps_its_numbers(filled: StateStore) -> None:
    with filled.lock("state rm", lineage="lin") as writer:
        writer.begin(make_launch(number=2).intent)
        writer.remove(TRAIN)
        with pytest.raises(NotFound):
            writer.remove(Address.run("nowhere"))
    state = filled.read()
    assert state.resources[TRAIN].gone
    assert state.resources[TRAIN].last.state is AttemptState.LOST
    assert state.active == ()
    assert state.intents == ()


def test_a_second_lock_is_refused_with_its_holder(store: StateStore) -> None:
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


def test_a_writer_whose_lock_was_broken_cannot_write(store: StateStore) -> None:
    done = make_launch()
    with store.lock("apply", lineage="lin") as writer:
        store.unlock(store.holder().id)
        with pytest.raises(Locked, match="unlocked by hand"):
            writer.begin(done.intent)
        with store.lock("state mv", lineage="lin"), pytest.raises(Locked, match="`state mv`"):
            writer.begin(done.intent)
    assert store.read().serial == 0
    assert store.holder() is None


def test_a_writer_knows_whether_its_lock_is_held(store: StateStore) -> None:
    with store.lock("apply", lineage="lin") as writer:
        writer.check_held()
    with store.lock("apply", lineage="lin") as writer:
        holder = store.holder()
        assert holder is not None
        store.unlock(holder.id)
        with pytest.raises(Locked, match="unlocked by hand"):
            writer.check_held()
        with pytest.raises(Locked, match="unlocked by hand"):
            writer.plan_applied("p")


def test_unlock_takes_only_the_id_that_is_held(store: StateStore) -> None:
    with pytest.raises(NotFound):
        store.unlock("nothing")
    with store.lock("apply", lineage="lin"):
        held = store.holder().id
        with pytest.raises(NotFound, match=held):
            store.unlock("another")


def test_the_lineage_is_that_of_the_first_lock(store: StateStore) -> None:
    with store.lock("apply", lineage="first"):
        pass
    with store.lock("apply", lineage="second") as writer:
        assert writer.state.lineage == "first"


def test_reading_beside_a_writer_sees_what_is_committed(filled: StateStore) -> None:
    with filled.lock("apply", lineage="lin") as writer:
        writer.plan_applied("p")
        assert filled.read().serial == writer.state.serial


HOLDS = """
import sys
from sgpu_decl.storing.stores import open_state_store
with open_state_store(sys.argv[1]).lock("apply", lineage="lin") as writer:
    writer.plan_applied("first")
    print("held", flush=True)
    sys.stdin.read()
    writer.plan_applied("second")
"""
RACES = """
import sys
from sgpu_decl.errors import Locked
from sgpu_decl.storing.stores import open_state_store
store, done = open_state_store(sys.argv[1]), 0
while done < 10:
    try:
        with store.lock("apply", lineage=sys.argv[2]) as writer:
            writer.plan_applied(f"{sys.argv[2]}-{done}")
            done += 1
    except Locked:
        pass
"""


def test_a_process_that_holds_the_lock_keeps_another_out_until_it_is_done(
    store: StateStore,
) -> None:
    with start_program(HOLDS, store.url) as other:
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(Locked, match=f"process {other.pid}"),
            store.lock("apply", lineage="lin"),
        ):
            pass
        assert store.read().serial == 1
        other.stdin.close()
    with store.lock("apply", lineage="lin") as writer:
        assert writer.applied("second")


def test_the_lock_of_a_killed_process_is_taken_over(store: StateStore) -> None:
    with start_program(HOLDS, store.url) as other:
        assert other.stdout.readline() == "held\n"
        other.kill()
    assert other.returncode == -signal.SIGKILL
    assert store.holder().pid == other.pid
    assert store.read().serial == 1
    with store.lock("destroy", lineage="lin") as writer:
        assert store.holder().operation == "destroy"
        assert writer.applied("first")


def test_processes_that_race_from_nothing_lose_no_write(store: StateStore) -> None:
    racers = [start_program(RACES, store.url, name) for name in ("a", "b")]
    for racer in racers:
        with racer:
            assert racer.wait() == 0
    state = store.read()
    assert state.serial == 20
    assert state.lineage in {"a", "b"}


def test_a_lock_says_since_when_it_is_held(store: StateStore) -> None:
    with store.lock("apply", lineage="lin"):
        held = store.holder()
    assert abs((datetime.now(UTC) - held.since).total_seconds()) < 60
    assert held.pid == os.getpid()


def test_a_closed_store_is_opened_again_by_the_next_call(filled: StateStore) -> None:
    filled.close()
    filled.close()
    assert filled.read() is not None
