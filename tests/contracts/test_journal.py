"""What every journal promises (`storing.journal.port`), and what a state over one adds to
`test_state_store.py`: a lock that is a lease, a chain that nobody can change, and copies."""

import gzip
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from sgpu_decl.errors import Locked, NotFound, OtherProject, SgpuError, StateError
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.environment import Package, PackageList
from sgpu_decl.model.jsonable import NO_FIELDS, Json, Spec
from sgpu_decl.model.owner import Presence
from sgpu_decl.model.project_home import ProjectHome
from sgpu_decl.model.state import Resource
from sgpu_decl.storing.journal.entry import VERSION, digest, read_entry
from sgpu_decl.storing.journal.file_journal import FileJournal
from sgpu_decl.storing.journal.lock_lease import LockLease
from sgpu_decl.storing.journal.port import Compacted, Journal, JournalGap, Stored, StoreDown
from sgpu_decl.storing.journal.replica import Replica
from sgpu_decl.storing.journal.store import CHECKPOINT_EVERY, JournalStore
from sgpu_decl.storing.journal.writer import JournalWriter
from sgpu_decl.storing.state_store import Patience, StateWriter
from sgpu_decl.storing.stores import (
    DATABRICKS,
    OBJECT,
    POSTGRES,
    SHARED,
    SharedPlace,
    shared_journal,
    shared_store,
)
from tests.contracts.conftest import assert_of_the_group
from tests.sampling import sampled
from tests.shared_places import PLACES, fields_of, new_place
from tests.side_programs import start_program
from tests.storing.conftest import NOON, make_launch
from tests.support import PATIENCE

FOR_LONG = Patience(seconds=PATIENCE)
EVERYWHERE = pytest.mark.parametrize("place", PLACES, indirect=True)


@pytest.fixture(params=SHARED)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SharedPlace:
    return new_place(request, request.param, tmp_path)


@pytest.fixture
def journal(place: SharedPlace) -> Iterator[Journal]:
    opened = shared_journal(place, "default")
    yield opened
    opened.close()


class Machines:
    """Stores of one state on machines that share nothing else."""

    def __init__(self, place: SharedPlace, folder: Path) -> None:
        self.place = place
        self._folder = folder
        self._stores: list[JournalStore] = []

    def replica(self, name: str) -> Path:
        return self._folder / name / "default" / "replica.db"

    def store(self, name: str, *, lease: float = 60.0) -> JournalStore:
        folder = self.replica(name).parent
        store = shared_store(self.place, folder, lease=LockLease(seconds=lease))
        assert isinstance(store, JournalStore)
        self._stores.append(store)
        return store

    def close(self) -> None:
        for store in self._stores:
            store.close()


@pytest.fixture
def machines(place: SharedPlace, tmp_path: Path) -> Iterator[Machines]:
    made = Machines(place, tmp_path)
    yield made
    made.close()


def fill(store: JournalStore, *, plans: int = 1) -> None:
    done = make_launch()
    with store.lock("apply", lineage="lin") as writer:
        writer.begin(done.intent)
        writer.launched(done.intent, done.resource, done.attempt)
        for number in range(plans):
            writer.plan_applied(f"plan-{number}")


def broken(store: JournalStore) -> None:
    """The lock is unlocked by hand, on this machine."""
    holder = store.holder()
    assert holder is not None
    store.unlock(holder.id)


def over(writer: StateWriter, journal: object) -> JournalWriter:
    """Have a holder write to another journal."""
    assert isinstance(writer, JournalWriter)
    writer._journal = cast("Journal", journal)
    return writer


# The port


def added(journal: Journal, number: int, text: str) -> datetime:
    at = journal.append(number, text)
    assert at is not None
    return at


@EVERYWHERE
def test_an_entry_is_read_as_it_was_appended(journal: Journal) -> None:
    before = journal.now()
    assert journal.after(0) == []
    texts = {number: f'{{"n":{number},"t":"\\u00e9"}}' for number in (1, 2, 3)}
    times = [added(journal, number, text) for number, text in texts.items()]
    found = journal.after(1)
    assert [item.number for item in found] == [2, 3]
    assert found[1] == Stored(number=3, text='{"n":3,"t":"\\u00e9"}', at=times[2])
    assert journal.after(0, most=1)[0].at == times[0]
    assert journal.after(3) == []
    slack = timedelta(seconds=1)  # file systems give times in ticks
    assert before - slack <= times[0] <= times[2] <= journal.now() + slack


@EVERYWHERE
def test_a_number_is_given_once(journal: Journal) -> None:
    assert isinstance(journal.append(1, "first"), datetime)
    assert journal.append(1, "second") is None
    assert [item.text for item in journal.after(0)] == ["first"]


@EVERYWHERE
def test_an_entry_is_added_only_after_the_one_that_its_author_has_read(journal: Journal) -> None:
    with pytest.raises(JournalGap, match="entry 1 is missing"):
        journal.append(2, "second")
    assert journal.targets() == ()
    added(journal, 1, "first")
    with pytest.raises(JournalGap, match="is another one"):
        journal.append(2, "second", prev=digest("another first"))
    assert [item.text for item in journal.after(0)] == ["first"]
    assert journal.append(2, "second", prev=digest("first")) is not None
    assert journal.append(2, "third", prev=digest("another first")) is None


@EVERYWHERE
def test_the_newest_checkpoint_is_found_and_one_that_is_there_stays(journal: Journal) -> None:
    assert journal.checkpoint() is None
    journal.put_checkpoint(256, b"\x00first")
    journal.put_checkpoint(512, b"second")
    journal.put_checkpoint(512, b"third")
    assert journal.checkpoint() == (512, b"second")
    assert journal.oldest_checkpoint() == (256, b"\x00first")


@EVERYWHERE
def test_targets_are_those_with_entries(journal: Journal) -> None:
    assert journal.targets() == ()
    other = journal.of_target("prod")
    other.append(1, "x")
    assert journal.targets() == ("prod",)
    assert journal.after(0) == []
    other.close()


APPENDS = """
import sys
from sgpu_decl.storing.stores import SharedPlace, shared_journal
place = SharedPlace(**eval(sys.argv[1]))
journal, mine, number = shared_journal(place, "default"), 0, 0
journal.after(0)
print("ready", flush=True)
sys.stdin.readline()
while mine < int(sys.argv[3]):
    number += 1
    mine += journal.append(number, f"{sys.argv[2]}-{mine}") is not None
"""


@EVERYWHERE
def test_of_two_writers_that_race_each_gets_its_numbers_and_no_entry_is_lost(
    place: SharedPlace, journal: Journal
) -> None:
    fields = fields_of(place)
    each = 40 if place.kind in (DATABRICKS, OBJECT) else 250  # requests over HTTP take longer
    racers = [start_program(APPENDS, fields, name, each) for name in ("a", "b")]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    for racer in racers:
        with racer:
            assert racer.wait() == 0
    found = [item.text for item in journal.after(0)]
    expected = {f"{name}-{number}" for name in ("a", "b") for number in range(each)}
    assert len(found) == 2 * each
    assert set(found) == expected
    for name in ("a", "b"):
        assert [text for text in found if text.startswith(name)] == [
            f"{name}-{number}" for number in range(each)
        ]


# Copies


def test_another_machine_reads_what_one_has_written(machines: Machines) -> None:
    here, there = machines.store("here"), machines.store("there")
    fill(here)
    assert there.read_all() == here.read_all()
    with there.lock("apply", lineage="another") as writer:
        assert writer.state.lineage == "lin"
        writer.plan_applied("of there")
    with here.lock("apply", lineage="lin") as writer:
        assert writer.applied("of there")
    assert here.read() == there.read()


def dumped(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def test_a_copy_made_of_a_checkpoint_is_that_made_of_all_entries(
    machines: Machines, journal: Journal
) -> None:
    here = machines.store("here")
    fill(here, plans=CHECKPOINT_EVERY)
    checkpoint = journal.checkpoint()
    assert checkpoint is not None
    fill(here)
    fresh = machines.store("fresh")
    assert fresh.read() == here.read()
    assert dumped(machines.replica("fresh")) == dumped(machines.replica("here"))
    whole = machines.store("whole")
    whole._replica._from_checkpoint = lambda: whole._replica.position()  # type: ignore[method-assign]
    assert whole.read() == here.read()
    assert dumped(machines.replica("whole")) == dumped(machines.replica("here"))


def test_whose_state_it_is_is_the_same_on_another_machine_and_in_a_checkpoint(
    machines: Machines, journal: Journal
) -> None:
    here = machines.store("here")
    fill(here)
    home = ProjectHome(repository="github.com/team/vision", folder="a")
    here.claim(home)
    assert here.read() is not None
    for compact in (False, True):
        if compact:
            compacted(here, journal)
        there = JournalStore(journal, machines.replica(f"there-{compact}"), url=str)
        there._homes = lambda: (replace(home, folder="b"), home)
        assert there.read() == here.read()
        other = JournalStore(journal, machines.replica(f"other-{compact}"), url=str)
        other._homes = lambda: (replace(home, folder="b"),)
        with pytest.raises(OtherProject, match=r"vision, folder a\. This one .* folder b"):
            other.read()
        with pytest.raises(OtherProject), other.lock("apply", lineage="lin"):
            pass
    assert dumped(machines.replica("there-True")) == dumped(machines.replica("here"))


def test_every_kind_of_change_is_the_same_on_another_machine(machines: Machines) -> None:
    here, first, second, third = machines.store("here"), *map(make_launch, ("a", "b", "c"))
    job = Resource(
        address=Address.parse("job.nightly"), backend="databricks", owner="sgpu.yml",
        spec=NO_FIELDS, last=None, remote='{"id": "7", "token": "t", "workspace": "w"}',
    )  # fmt: skip
    made = replace(first.intent, token="of the job", address=job.address, launch=None, job=job)
    ended = replace(second.attempt, state=AttemptState.FAILED, exit_code=3, ended_at=NOON)
    with here.lock("apply", lineage="lin") as writer:
        for done in (first, second, third):
            writer.begin(done.intent)
            writer.launched(done.intent, done.resource, done.attempt)
        writer.begin(made)
        writer.made(made, job)
        writer.begin(make_launch("a", 2).intent)
        writer.abandon(make_launch("a", 2).intent)
        writer.begin(make_launch("other").intent)
        writer.record_packages([PackageList.of([Package("torch", "2.13.0")])])
        writer.record_attempts([ended])
        writer.record_resource(replace(first.resource, spec=Spec('{"gpus":4}'), gone=True))
        writer.plan_applied("plan-1")
        writer.move(Address.run("b"), Address.run("d"))
        writer.remove(Address.run("c"))
    assert machines.store("there").read_all() == here.read_all()
    assert dumped(machines.replica("there")) == dumped(machines.replica("here"))


def test_a_checkpoint_that_is_not_of_these_entries_is_left_alone(
    machines: Machines, journal: Journal
) -> None:
    here = machines.store("here")
    fill(here)
    last = here._replica.position().number
    other = journal.of_target("other")
    with JournalStore(other, machines.replica("other"), url=str).lock("apply", lineage="o") as own:
        for number in range(last):
            own.plan_applied(f"plan-{number}")
    _, data = Replica(machines.replica("other"), other).checkpoint()
    unfit = [b"no such file", gzip.compress(b"no database" * 100), data]
    for number, content in enumerate(unfit, start=last - 1):
        journal.put_checkpoint(number, content)
        assert machines.store(f"fresh-{number}").read() == here.read()
    other.close()


def leave_out(path: Path) -> None:
    """What an older sgpu, which knows one column less, makes of the entries."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE attempts SET code_digest = NULL")
        connection.execute("UPDATE journal SET columns = replace(columns, 'code_digest', '')")
        connection.commit()


def test_what_an_older_sgpu_left_out_of_a_copy_or_a_checkpoint_is_read_from_the_entries(
    machines: Machines, journal: Journal
) -> None:
    here = machines.store("here")
    fill(here)
    before = here.read_all()
    leave_out(machines.replica("here"))
    journal.put_checkpoint(*here._replica.checkpoint())
    assert machines.store("fresh").read_all() == before
    assert here.read_all() == before
    assert dumped(machines.replica("here")) == dumped(machines.replica("fresh"))
    with closing(sqlite3.connect(machines.replica("here"))) as connection:
        connection.execute("ALTER TABLE journal DROP COLUMN columns")  # made before there was one
    assert here.read_all() == before


# Entries that were deleted


def compacted(store: JournalStore, journal: Journal) -> int:
    """Delete all entries but the newest, and return the number of the first one that is left."""
    done = store.compact(0)
    assert done.first is not None
    left = [item.number for item in journal.after(done.first - 1)]
    assert left == list(range(done.first, left[-1] + 1))
    assert journal.after(0, most=1)[0].number == 1
    with pytest.raises(Compacted) as caught:
        journal.after(0)
    assert caught.value.first == done.first
    return done.first


def test_a_compacted_state_is_the_same_on_every_machine(
    machines: Machines, journal: Journal
) -> None:
    here, behind = machines.store("here"), machines.store("behind")
    fill(here)
    assert behind.read() is not None
    fill(here, plans=3)
    before = here.read_all()
    first = compacted(here, journal)
    assert first > 5
    assert here.read_all() == before
    assert behind.read_all() == before
    assert machines.store("fresh").read_all() == before
    assert dumped(machines.replica("fresh")) == dumped(machines.replica("here"))
    assert dumped(machines.replica("behind")) == dumped(machines.replica("here"))
    assert here.presence("lin") is Presence.PRESENT
    with behind.lock("apply", lineage="another") as writer:
        writer.plan_applied("after")
    with here.lock("apply", lineage="lin") as writer:
        assert writer.applied("after")
        assert writer.applied("plan-0")


def test_entries_that_are_not_old_stay(machines: Machines, journal: Journal) -> None:
    here = machines.store("here")
    fill(here)
    assert here.compact(3600).entries == 0
    assert journal.checkpoint() is None
    assert machines.store("there").compact(0).entries > 0
    empty = JournalStore(journal.of_target("empty"), machines.replica("empty"), url=str)
    assert empty.compact(0).entries == 0
    assert empty.read() is None


def test_a_state_can_be_compacted_again_and_shows_what_is_left(
    machines: Machines, journal: Journal
) -> None:
    here = machines.store("here")
    fill(here)
    first = compacted(here, journal)
    assert here.log(1000)[-1].number == first
    assert here.read_past(first) is not None
    with pytest.raises(NotFound, match="were deleted by `sgpu state compact`") as caught:
        here.read_past(first - 1)
    assert f"entry {first} is the oldest" in str(caught.value.hint)
    fill(here, plans=4)
    then = here.read_all()
    last = journal.after(first - 1)[-1].number
    again = compacted(here, journal)
    assert again > first
    assert here.read_past(again) is not None
    assert again >= last
    assert machines.store("fresh").read_all() == then
    oldest = journal.oldest_checkpoint()
    assert oldest is not None
    assert oldest[0] == again


def test_a_number_whose_entry_was_deleted_is_not_given_again(
    machines: Machines, journal: Journal
) -> None:
    here = machines.store("here")
    fill(here)
    texts = {item.number: item.text for item in journal.after(0)}
    first = compacted(here, journal)
    for number in (1, 2, first - 1, first):
        prev = digest(texts[number - 1]) if number > 1 else None
        assert journal.append(number, "again", prev=prev) is None
    assert machines.store("fresh").read() == here.read()


def test_who_lost_the_lock_before_the_state_was_compacted_writes_nothing(
    machines: Machines, journal: Journal
) -> None:
    here, there = machines.store("here"), machines.store("there")
    with here.lock("apply", lineage="lin") as writer:
        writer.plan_applied("p")
        broken(there)
        fill(there, plans=3)
        compacted(there, journal)
        for call in (writer.check_held, lambda: writer.plan_applied("q")):
            with pytest.raises(Locked) as caught:
                call()
            assert caught.value.code == "lock_lost"
    assert machines.store("fresh").read() == there.read()


def test_what_is_kept_of_deleted_entries_is_used_whatever_the_newest_checkpoint_lacks(
    machines: Machines, journal: Journal
) -> None:
    here = machines.store("here")
    fill(here)
    compacted(here, journal)
    fill(here, plans=2)
    before = here.read_all()
    older = machines.store("older")
    assert older.read() is not None
    leave_out(machines.replica("older"))
    journal.put_checkpoint(*older._replica.checkpoint())
    assert machines.store("fresh").read_all() == before
    assert older.read_all() == before


def test_a_copy_of_another_state_is_not_made_anew_of_deleted_entries(
    machines: Machines, journal: Journal
) -> None:
    here = machines.store("here")
    fill(here)
    other = JournalStore(journal.of_target("other"), machines.replica("behind"), url=str)
    with other.lock("apply", lineage="another") as writer:
        writer.plan_applied("p")
    compacted(here, journal)
    with pytest.raises(StateError, match="is of another state") as caught:
        machines.store("behind").read()
    assert caught.value.code == "state_diverged"
    assert f"delete `{machines.replica('behind')}`" in caught.value.hint


def test_what_a_newer_sgpu_has_written_is_not_compacted(
    machines: Machines, journal: Journal
) -> None:
    here = machines.store("here")
    fill(here)
    last = journal.after(0)[-1]
    entry = read_entry(last.number, last.text, store="s")
    cells: Json = {
        "address": "run.b",
        "backend": "local",
        "owner": "o",
        "spec": "{}",
        "gone": False,
        "numbered": 0,
        "remote": None,
        "last": None,
        "colour": "red",
    }
    newer = replace(
        entry,
        number=last.number + 1,
        prev=digest(last.text),
        serial=entry.serial + 1,
        ops=({"op": "record_resource", "resource": cells},),
    )
    assert journal.append(newer.number, newer.text, prev=newer.prev) is not None
    assert here.read() is not None
    with pytest.raises(StateError, match=f"entry {newer.number} .* newer sgpu"):
        here.compact(0)
    assert journal.after(0)[0].number == 1


def test_a_folder_does_not_give_a_number_whose_entry_is_deleted_while_it_is_added(
    folder_place: SharedPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, other = (shared_journal(folder_place, "default") for _ in range(2))
    assert isinstance(journal, FileJournal)
    for number in (1, 2):
        assert journal.append(number, f"entry {number}") is not None
    create = journal._place.create

    def late(path: str, content: bytes) -> bool:
        # Others go on between the look at the entry before and the link.
        for number in (3, 4, 5):
            assert other.append(number, f"entry {number}") is not None
        assert other.put_checkpoint(5, b"all before")
        other.drop_before(5)
        return create(path, content)

    monkeypatch.setattr(journal._place, "create", late)
    assert journal.append(3, "late") is None
    entries = Path(folder_place.address, "p", "default", "entries").glob("*.json")
    assert sorted(path.name for path in entries) == ["000000000001.json", "000000000005.json"]


def test_what_killed_writers_have_left_in_a_folder_is_deleted_with_the_old_entries(
    folder_place: SharedPlace, tmp_path: Path
) -> None:
    store = Machines(folder_place, tmp_path).store("here")
    fill(store)
    home = Path(folder_place.address) / "p" / "default"
    (home / "proposals").mkdir()
    old = [home / "entries" / f".{kind}-{'0' * 12}" for kind in ("new", "now")]
    old.append(home / "proposals" / f".new-{'0' * 12}")
    young = home / "entries" / f".new-{'1' * 12}"
    for draft in (*old, young):
        draft.touch()
    folders = [folder / f".new-{'2' * 12}" for folder in (home, home.parent, home.parent.parent)]
    for folder in folders:
        folder.mkdir()
    for draft in (*old, *folders):
        os.utime(draft, times=(time.time() - 3700,) * 2)
    store.compact(3600)  # no entry is as old
    assert store.compact(0).entries > 0
    assert young.exists()
    assert not any(draft.exists() for draft in (*old, *folders))


def test_a_copy_that_was_deleted_is_made_again(machines: Machines) -> None:
    here = machines.store("here")
    fill(here)
    before = here.read_all()
    for file in machines.replica("here").parent.iterdir():
        file.unlink()
    assert here.read_all() == before


def test_a_damaged_copy_says_what_to_delete(machines: Machines) -> None:
    here = machines.store("here")
    fill(here)
    replica = machines.replica("here")
    replica.with_name(replica.name + "-wal").unlink(missing_ok=True)
    replica.write_bytes(b"no database" * 100)
    with pytest.raises(StateError) as caught:
        here.read()
    assert f"delete `{replica}`" in caught.value.hint


# The lease

HOLDS = """
import os, sys
from pathlib import Path
from sgpu_decl.storing.journal.lock_lease import LockLease
from sgpu_decl.storing.stores import SharedPlace, shared_store
if sys.argv[4]:
    system, _, *more = os.uname()
    elsewhere = os.uname_result((system, sys.argv[4], *more))
    os.uname = lambda: elsewhere
place = SharedPlace(**eval(sys.argv[1]))
store = shared_store(place, Path(sys.argv[2]), lease=LockLease(seconds=float(sys.argv[3])))
with store.lock("apply", lineage="lin") as writer:
    writer.plan_applied("first")
    print("held", flush=True)
    for line in sys.stdin:
        try:
            writer.plan_applied(line.strip())
            print("written", flush=True)
        except Exception as error:
            print(getattr(error, "code", error), flush=True)
"""


def short_lease(place: SharedPlace) -> float:
    """One that a test can wait for. S3 gives times in whole seconds."""
    return 3.0 if place.kind == OBJECT else 1.0


def holding(machines: Machines, *, lease: float, host: str = "") -> "subprocess.Popen[str]":
    fields = fields_of(machines.place)
    other = start_program(HOLDS, fields, machines.replica("other").parent, lease, host)
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    return other


def test_the_lock_of_a_dead_process_of_this_machine_is_taken_over_at_once(
    machines: Machines,
) -> None:
    with holding(machines, lease=1000) as other:
        other.kill()
    with machines.store("here").lock("destroy", lineage="lin") as writer:
        assert writer.applied("first")


def test_the_lock_of_a_dead_process_elsewhere_is_taken_over_when_its_lease_is_over(
    machines: Machines,
) -> None:
    here = machines.store("here")
    with holding(machines, lease=2 * short_lease(machines.place), host="gpu-1") as other:
        other.kill()
    waits: list[Locked] = []
    patience = Patience(seconds=PATIENCE, on_wait=waits.append)
    with here.lock("destroy", lineage="lin", patience=patience) as writer:
        assert writer.applied("first")
    assert " on gpu-1 (process " in waits[0].message
    assert "taken over in " in waits[0].message


@pytest.mark.expensive
@pytest.mark.parametrize("hours", [-1, 1])
@pytest.mark.parametrize("place", [POSTGRES], indirect=True)
def test_a_clock_of_the_store_that_is_an_hour_off_decides_alone(
    place: SharedPlace, tmp_path: Path, hours: int
) -> None:
    import psycopg

    schema = f"clock_{place.schema}"
    with psycopg.connect(place.address, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        connection.execute(
            f"CREATE FUNCTION {schema}.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS "
            f"$$ SELECT pg_catalog.clock_timestamp() + interval '{hours} hours' $$".encode()
        )
    # What a path names before `pg_catalog` goes before the functions of PostgreSQL.
    path = f"%20search_path%3D{schema}%2Cpg_catalog"
    machines = Machines(
        replace(place, address=f"{place.address}&options=-c{path}"), tmp_path / "machines"
    )
    here = machines.store("here")
    with holding(machines, lease=3, host="gpu-1") as other:
        with closing(shared_journal(machines.place, "default")) as journal:
            off = journal.now() - datetime.now(UTC)
        assert abs(off - timedelta(hours=hours)) < timedelta(minutes=30)
        with pytest.raises(Locked), here.lock("destroy", lineage="lin"):
            pass
        other.kill()
    with here.lock("destroy", lineage="lin", patience=FOR_LONG) as writer:
        writer.check_held()
        assert writer.applied("first")
    machines.close()


@pytest.mark.expensive
def test_a_holder_that_writes_nothing_keeps_its_lock(machines: Machines) -> None:
    here, lease = machines.store("here"), short_lease(machines.place)
    with (
        holding(machines, lease=lease, host="gpu-1") as other,
        pytest.raises(Locked),
        here.lock("destroy", lineage="lin", patience=Patience(seconds=lease + 2)),
    ):
        pass
    assert other.returncode == 0


def test_a_paused_holder_whose_lease_was_taken_over_cannot_write(machines: Machines) -> None:
    here = machines.store("here")
    with holding(machines, lease=1, host="gpu-1") as other:
        other.send_signal(signal.SIGSTOP)
        try:
            with here.lock("destroy", lineage="lin", patience=FOR_LONG) as writer:
                writer.plan_applied("of here")
        finally:
            other.send_signal(signal.SIGCONT)
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdin.write("second\n")
        other.stdin.flush()
        assert other.stdout.readline() == "lock_lost\n"
        other.stdin.close()
    with here.lock("apply", lineage="lin") as writer:
        assert writer.applied("of here")
        assert not writer.applied("second")


def test_a_holder_that_was_paused_launches_nothing_before_it_has_written(
    machines: Machines,
) -> None:
    here = machines.store("here")
    with here.lock("apply", lineage="lin") as writer:
        assert isinstance(writer, JournalWriter)
        writer.check_held()
        writer._renewed -= 51
        with pytest.raises(Locked, match=r"recorded nothing for 5\d s") as caught:
            writer.check_held()
        assert caught.value.code == "lock_lost"
        writer.plan_applied("p")
        writer.check_held()


def test_a_holder_whose_lock_was_broken_launches_nothing(machines: Machines) -> None:
    here, there = machines.store("here"), machines.store("there")
    with here.lock("apply", lineage="lin") as writer:
        broken(there)
        for _ in range(2):  # as each launch of an apply asks
            with pytest.raises(Locked, match="unlocked by hand") as caught:
                writer.check_held()
            assert caught.value.code == "lock_lost"
        with there.lock("state mv", lineage="lin"), pytest.raises(Locked, match="`state mv`"):
            writer.check_held()


def test_a_holder_that_was_paused_and_not_replaced_goes_on(machines: Machines) -> None:
    here = machines.store("here")
    with here.lock("apply", lineage="lin") as writer:
        assert isinstance(writer, JournalWriter)
        writer.plan_applied("first")
        writer._renewed -= 1000
        assert writer.renew() > 0
        writer.plan_applied("second")
    assert here.read().serial == 2


def test_who_holds_the_lock_is_told_elsewhere_and_the_lock_can_be_broken_there(
    machines: Machines,
) -> None:
    here, there = machines.store("here"), machines.store("there")
    with here.lock("apply", lineage="lin") as writer:
        holder = there.holder()
        assert holder is not None
        assert (holder.operation, holder.pid) == ("apply", os.getpid())
        assert there.abandoned_lock() is None
        there.unlock(holder.id)
        with pytest.raises(Locked, match="unlocked by hand") as caught:
            writer.plan_applied("p")
        assert caught.value.code == "lock_lost"
        with there.lock("state mv", lineage="lin"), pytest.raises(Locked, match="`state mv`"):
            writer.plan_applied("p")
    assert here.read().serial == 0


DIES = """
import os, signal, sys
from pathlib import Path
from sgpu_decl.storing.stores import SharedPlace, shared_store
from tests.storing.conftest import make_launch

class DyingJournal:
    def __init__(self, journal):
        self._journal = journal
    def __getattr__(self, name):
        return getattr(self._journal, name)
    def append(self, number, text, *, prev=None):
        last = number == int(sys.argv[3])
        if last and sys.argv[4] == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        at = self._journal.append(number, text, prev=prev)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return at

store = shared_store(SharedPlace(**eval(sys.argv[1])), Path(sys.argv[2]))
store._journal = store._replica._journal = DyingJournal(store._journal)
done = make_launch()
with store.lock("apply", lineage="lin") as writer:
    writer.begin(done.intent)
    writer.launched(done.intent, done.resource, done.attempt)
    writer.plan_applied("plan-1")
"""


@pytest.mark.parametrize(
    "kill", sampled([(nth, when) for nth in range(1, 6) for when in ("before", "after")], quick=2)
)
def test_whoever_comes_after_a_kill_finds_what_was_appended_and_goes_on(
    machines: Machines, kill: tuple[int, str]
) -> None:
    number, moment = kill
    fields = fields_of(machines.place)
    folder = machines.replica("killed").parent
    with start_program(DIES, fields, folder, number, moment) as killed:
        assert killed.wait() == -signal.SIGKILL
    appended = number if moment == "after" else number - 1
    serial = min(max(appended - 1, 0), 3)
    here, again = machines.store("here"), machines.store("killed")
    with here.lock("apply", lineage="lin") as writer:
        state = writer.state
        assert state.serial == serial
        assert bool(state.intents) is (appended == 2)
        assert bool(state.resources) is (appended >= 3)
        writer.plan_applied("plan-2")
    with again.lock("apply", lineage="lin") as writer:
        assert writer.applied("plan-2")
        assert writer.state.serial == serial + 1
    assert again.read_all() == here.read_all()


# Answers that are lost


class LossyJournal:
    """A journal whose next answers are lost, after it has done what was asked."""

    def __init__(self, journal: Journal, lost: int) -> None:
        self._journal = journal
        self.lost = lost

    def __getattr__(self, name: str) -> object:
        return getattr(self._journal, name)

    def append(self, number: int, text: str, *, prev: str | None = None) -> datetime | None:
        at = self._journal.append(number, text, prev=prev)
        if self.lost > 0:
            self.lost -= 1
            raise StoreDown("the answer is lost", hint="ask again")
        return at


@pytest.mark.parametrize("lost", [1, 3])
def test_a_lost_answer_is_found_out_and_nothing_is_written_twice(
    machines: Machines, journal: Journal, lost: int
) -> None:
    here = machines.store("here")
    with here.lock("apply", lineage="lin") as writer:
        writer = over(writer, LossyJournal(journal, lost))
        writer.plan_applied("first")
        writer.plan_applied("second")
    assert here.read().serial == 2
    assert machines.store("there").read() == here.read()


class DownJournal(LossyJournal):
    """A journal that does not answer while it is down."""

    down = False

    def append(self, number: int, text: str, *, prev: str | None = None) -> datetime | None:
        if self.down:
            raise StoreDown("nobody answers", hint="ask again")
        return self._journal.append(number, text, prev=prev)


def test_nothing_is_recorded_while_the_store_is_down_and_all_goes_on_after(
    machines: Machines, journal: Journal
) -> None:
    here, done = machines.store("here"), make_launch()
    with here.lock("apply", lineage="lin") as writer:
        fragile = DownJournal(journal, 0)
        writer = over(writer, fragile)
        writer.begin(done.intent)
        fragile.down, writer._patience = True, 0.2
        for _ in range(5):  # once is waited for, not five times
            with pytest.raises(StoreDown):
                writer.launched(done.intent, done.resource, done.attempt)
        assert writer.state.serial == 1
        assert writer.state.intents == (done.intent,)
        fragile.down = False
        writer.launched(done.intent, done.resource, done.attempt)
    there = machines.store("there").read()
    assert there is not None
    assert there.serial == 2
    assert there.intents == ()


def test_a_renewal_does_not_wait_for_a_store_that_is_down(
    machines: Machines, journal: Journal
) -> None:
    here = machines.store("here")
    with here.lock("apply", lineage="lin") as writer:
        fragile = DownJournal(journal, 0)
        writer = over(writer, fragile)
        fragile.down = True
        began = writer._renewed = time.clock_gettime(time.CLOCK_BOOTTIME) - 30
        with pytest.raises(StoreDown):
            writer.renew()
        assert time.clock_gettime(time.CLOCK_BOOTTIME) - began < 30 + PATIENCE / 2
        assert writer._patience > 0  # what is to be recorded is tried for as long as ever
        fragile.down = False
        writer.plan_applied("p")


def test_what_the_store_did_not_take_is_settled_by_the_next_machine(
    machines: Machines, journal: Journal
) -> None:
    here, done = machines.store("here"), make_launch()
    with here.lock("apply", lineage="lin") as writer:
        fragile = DownJournal(journal, 0)
        writer = over(writer, fragile)
        writer.begin(done.intent)
        fragile.down, writer._patience = True, 0.0
        with pytest.raises(StoreDown):
            writer.launched(done.intent, done.resource, done.attempt)
    there = machines.store("there")
    assert there.holder() is not None  # its release was not taken either: the lease ends by itself
    state = there.read()
    assert state is not None
    assert state.intents == (done.intent,)


# A chain that nobody can change


def change(place: SharedPlace, number: int, text: str | None) -> None:
    """Change an entry, or delete it, as somebody with rights to the store may."""
    if place.kind == "folder":
        file = Path(place.address) / "p" / "default" / "entries" / f"{number:012}.json"
        file.unlink() if text is None else file.write_text(text)
        return
    if place.kind in (DATABRICKS, OBJECT):
        journal = shared_journal(place, "default")
        assert isinstance(journal, FileJournal)
        path = journal._entry(number)
        journal._place.delete(path)
        assert text is None or journal._place.create(path, text.encode())
        return
    assert place.kind == POSTGRES
    import psycopg

    with psycopg.connect(place.address, autocommit=True) as connection:
        table = f"{place.schema}.entries"
        if text is None:
            connection.execute(f"DELETE FROM {table} WHERE number = {number}")
        else:
            connection.execute(f"UPDATE {table} SET entry = %s WHERE number = {number}", [text])


def test_an_entry_that_was_changed_is_named(machines: Machines, journal: Journal) -> None:
    fill(machines.store("here"))
    text = journal.after(1, most=1)[0].text
    change(machines.place, 2, text.replace("train", "brain"))
    with pytest.raises(StateError, match=r"entry 2 of .* was changed"):
        machines.store("fresh").read()


def test_a_gap_is_never_read_over(machines: Machines) -> None:
    fill(machines.store("here"))
    change(machines.place, 3, None)
    with pytest.raises(StateError, match="entry 3 is missing"):
        machines.store("fresh").read()


def test_a_copy_from_before_a_restore_is_refused(machines: Machines, journal: Journal) -> None:
    here = machines.store("here")
    fill(here)
    last = journal.after(0)[-1].number
    change(machines.place, last, None)
    with pytest.raises(StateError, match="ends before entry") as caught:
        here.read()
    assert caught.value.code == "state_diverged"
    assert f"delete `{machines.replica('here')}`" in caught.value.hint
    assert machines.store("fresh").read() is not None


def test_a_holder_adds_nothing_to_a_store_that_lost_entries(
    machines: Machines, journal: Journal
) -> None:
    here = machines.store("here")
    fill(here)
    with here.lock("apply", lineage="lin") as writer:
        writer.plan_applied("lost")
        last = journal.after(0)[-1].number
        change(machines.place, last, None)
        change(machines.place, last - 1, None)
        with pytest.raises(StateError) as checked:
            writer.check_held()
        with pytest.raises(StateError, match="has lost entries") as caught:
            writer.plan_applied("after")
        assert checked.value.code == caught.value.code == "state_diverged"
    assert [item.number for item in journal.after(0)] == list(range(1, last - 1))
    assert machines.store("fresh").read() is not None


class RefusingJournal(LossyJournal):
    """A journal that refuses the next entry, for a reason that passes."""

    refusals = 1

    def append(self, number: int, text: str, *, prev: str | None = None) -> datetime | None:
        if self.refusals:
            self.refusals -= 1
            raise SgpuError("no space is left", hint="free some")
        return self._journal.append(number, text, prev=prev)


def test_a_renewal_that_was_refused_once_is_tried_again(
    machines: Machines, journal: Journal
) -> None:
    here, there = machines.store("here", lease=3.0), machines.store("there")
    with here.lock("apply", lineage="lin") as writer:
        refusing = RefusingJournal(journal, 0)
        writer = over(writer, refusing)
        before = len(journal.after(0))
        deadline = time.monotonic() + PATIENCE
        while len(journal.after(0)) == before:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert refusing.refusals == 0
        assert there.holder() == here.holder()


class LaggingJournal(LossyJournal):
    """A journal whose next reads do not show its last entry."""

    hidden = 0  # reads that do not show it

    def after(self, number: int, *, most: int | None = None) -> Sequence[Stored]:
        found = self._journal.after(number, most=most)
        if self.hidden > 0:
            self.hidden -= 1
            last = self._journal.after(0)[-1].number
            return [item for item in found if item.number < last]
        return found


@pytest.mark.parametrize("reads", [3, 1000])
def test_an_entry_that_is_not_shown_is_waited_for_and_not_for_ever(
    machines: Machines, journal: Journal, monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    monkeypatch.setattr("sgpu_decl.storing.journal.append._FIRST_PAUSE", 0.01)
    here, there = machines.store("here"), machines.store("there")
    lagging = LaggingJournal(journal, 0)
    with here.lock("apply", lineage="lin") as writer:
        assert isinstance(writer, JournalWriter)
        writer.plan_applied("p")
        broken(there)
        writer._journal = here._replica._journal = cast("Journal", lagging)
        lagging.hidden = reads
        with pytest.raises(SgpuError) as caught:
            writer.plan_applied("q")
        assert caught.value.code == ("lock_lost" if reads == 3 else "state_unusable")
        lagging.hidden = 0


@pytest.mark.parametrize("nth", [1, 2])
def test_a_lock_that_cannot_be_used_is_given_back(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """The copy is opened when the lock is read, and once more when it is used."""
    here = machines.store("here")
    fill(here)
    real, opened = here._replica.open, []

    def full(lineage: str) -> sqlite3.Connection:
        opened.append(lineage)
        if len(opened) >= nth:
            raise SgpuError("no space is left", code="state_unreachable")
        return real(lineage)

    with monkeypatch.context() as patched:
        patched.setattr(here._replica, "open", full)
        with pytest.raises(SgpuError, match="no space is left"), here.lock("x", lineage="lin"):
            pass
    assert machines.store("there").holder() is None
    assert here.holder() is None
    assert here.log(2)[1].operation == "x"


def test_an_entry_of_a_newer_sgpu_is_refused(machines: Machines, journal: Journal) -> None:
    here = machines.store("here")
    fill(here)
    last = journal.after(0)[-1]
    journal.append(last.number + 1, f'{{"v":{VERSION + 1}}}')
    with pytest.raises(StateError, match="newer sgpu") as caught:
        here.read()
    assert caught.value.code == "state_newer"


def test_of_two_lineages_at_once_the_first_entry_wins(machines: Machines) -> None:
    here, there = machines.store("here"), machines.store("there")
    with here.lock("apply", lineage="of here"):
        pass
    with there.lock("apply", lineage="of there") as writer:
        assert writer.state.lineage == "of here"
    assert there.presence("of there") is Presence.MISSING
    assert there.presence("of here") is Presence.PRESENT


def test_each_entry_names_who_wrote_it(machines: Machines, journal: Journal) -> None:
    fill(machines.store("here"))
    entries = [read_entry(item.number, item.text, store="s") for item in journal.after(0)]
    assert [entry.serial for entry in entries] == [0, 1, 2, 3, 3]
    assert {entry.writer.operation for entry in entries} == {"apply"}
    assert {entry.writer.host for entry in entries} == {os.uname().nodename}
    assert len({entry.writer.id for entry in entries}) == 1


def test_a_refused_change_leaves_no_entry(machines: Machines, journal: Journal) -> None:
    here = machines.store("here")
    fill(here)
    with here.lock("apply", lineage="lin") as writer:
        before = len(journal.after(0))
        done = make_launch()
        with pytest.raises(StateError, match="history"):
            writer.launched(done.intent, done.resource, replace(done.attempt, token="another"))
        assert len(journal.after(0)) == before
    with pytest.raises(SgpuError):
        here.unlock("nothing")


def test_a_folder_that_a_group_shares_is_shared_whatever_the_umask(
    group_place: SharedPlace,
) -> None:
    journal = shared_journal(group_place, "default")
    assert journal.append(1, "first") is not None
    journal.now()
    entries = Path(group_place.address) / "p" / "default" / "entries"
    assert_of_the_group(entries / "000000000001.json", below=group_place)
