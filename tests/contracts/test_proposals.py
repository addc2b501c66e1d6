"""What everything that keeps proposals promises (`storing.proposals`)."""

import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sgpu_decl.errors import SgpuError
from sgpu_decl.storing.proposals import KEPT, ProposalStore
from sgpu_decl.storing.stores import (
    FOLDER,
    OBJECT,
    POSTGRES,
    SharedPlace,
    local_proposals,
    shared_proposals,
)
from tests.contracts.conftest import assert_of_the_group
from tests.object_server import ObjectServer
from tests.shared_places import PLACES, folder_on_disk, new_place

LOCAL = "local"
IDS = tuple(letter * 32 for letter in "abc")


class Place:
    """Where the proposals of a test lie; `place` is None for this machine's state. `folder` is that
    of the test, `on_disk` the one that holds those of all targets, if they are files."""

    def __init__(self, place: SharedPlace | None, folder: Path, on_disk: Path) -> None:
        self.place = place
        self._folder = folder
        self._on_disk = on_disk

    def store(self, target: str = "prod") -> ProposalStore:
        if self.place is None:
            return local_proposals(self._folder / ".sgpu" / target)
        return shared_proposals(self.place, target)

    def age(self, id: str, seconds: float) -> None:  # noqa: A002
        """Let a proposal of the target `prod` be that much older."""
        if self.place is not None and self.place.kind == POSTGRES:
            import psycopg

            table = f"{self.place.schema}.proposals"
            statement = f"UPDATE {table} SET at = at - make_interval(secs => %s) WHERE id = %s"
            with psycopg.connect(self.place.address, autocommit=True) as connection:
                connection.execute(statement.encode(), (seconds, id))
            return
        if self.place is not None and self.place.kind == OBJECT:
            assert self.place.endpoint is not None
            bucket, _, folder = self.place.address.removeprefix("s3://").partition("/")
            key = f"{folder}/p/prod/proposals/{id}.json.gz"
            ObjectServer(self.place.endpoint).age(bucket, key, seconds)
            return
        (file,) = (self._on_disk / "prod" / "proposals").glob(f"{id}*")
        then = time.time() - seconds
        os.utime(file, (then, then))


@pytest.fixture(params=(LOCAL, *PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == LOCAL:
        return Place(None, tmp_path, tmp_path / ".sgpu")
    made = new_place(request, request.param, tmp_path)
    return Place(made, tmp_path, folder_on_disk(request, made) / made.project)


@pytest.fixture
def store(place: Place) -> Iterator[ProposalStore]:
    with closing(place.store()) as opened:
        yield opened


def found(store: ProposalStore) -> dict[str, bytes]:
    return {item.id: item.content for item in store.proposals()}


def test_where_nobody_proposed_there_are_none_and_nothing_is_made(
    place: Place, store: ProposalStore, tmp_path: Path
) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert found(store) == {}
    assert sorted(tmp_path.rglob("*")) == before


def test_proposals_are_read_newest_first_as_they_were_written(
    place: Place, store: ProposalStore
) -> None:
    for age, id_ in ((60.0, IDS[1]), (0.0, IDS[0]), (30.0, IDS[2])):
        store.propose(id_, bytes(range(256)) + id_.encode())
        place.age(id_, age)
    with closing(place.store()) as another:
        assert found(another) == {id_: bytes(range(256)) + id_.encode() for id_ in IDS}
        assert [item.id for item in another.proposals()] == [IDS[0], IDS[2], IDS[1]]
        times = [item.at.timestamp() for item in another.proposals()]
    assert all(abs(time.time() - age - at) < 20 for age, at in zip((0, 30, 60), times, strict=True))


def test_those_of_another_target_are_not_seen(place: Place, store: ProposalStore) -> None:
    store.propose(IDS[0], b"x")
    with closing(place.store("dev")) as other:
        assert found(other) == {}


def test_old_proposals_do_not_count(place: Place, store: ProposalStore) -> None:
    for id_ in IDS[:2]:
        store.propose(id_, b"x")
    place.age(IDS[0], KEPT.total_seconds() + 60)
    place.age(IDS[1], KEPT.total_seconds() - 3600)
    assert set(found(store)) == {IDS[1]}
    store.propose(IDS[2], b"x")
    assert set(found(store)) == {IDS[1], IDS[2]}


def test_old_proposals_are_deleted_when_that_is_asked_for(
    place: Place, store: ProposalStore
) -> None:
    assert store.drop_expired() == 0
    for id_ in IDS:
        store.propose(id_, b"x")
    for id_ in IDS[:2]:
        place.age(id_, KEPT.total_seconds() + 60)
    assert store.drop_expired() == 2
    assert store.drop_expired() == 0
    assert set(found(store)) == {IDS[2]}


def test_a_folder_that_is_not_mounted_takes_no_proposal(tmp_path: Path) -> None:
    place = SharedPlace(kind=FOLDER, address=str(tmp_path), project="p")
    store = shared_proposals(place, "prod")
    for call in (lambda: store.propose(IDS[0], b"x"), lambda: list(store.proposals())):
        with pytest.raises(SgpuError, match="holds no shared state"):
            call()
    assert not list(tmp_path.iterdir())


def test_files_that_are_being_written_or_are_no_proposals_are_passed_over(
    folder_place: SharedPlace,
) -> None:
    store = shared_proposals(folder_place, "prod")
    store.propose(IDS[0], b"x")
    folder = Path(folder_place.address) / "p" / "prod" / "proposals"
    (folder / f".new-{IDS[1]}").write_bytes(b"ha")
    (folder / "notes.txt").write_bytes(b"ha")
    assert set(found(store)) == {IDS[0]}


def test_a_machine_whose_clock_is_wrong_deletes_no_proposals_of_others(
    folder_place: SharedPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time
    store = shared_proposals(folder_place, "prod")
    store.propose(IDS[0], b"x")
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: right() + 2 * KEPT.total_seconds())
        store.propose(IDS[1], b"y")
    assert found(store) == {IDS[0]: b"x", IDS[1]: b"y"}


def test_the_files_of_this_machine_are_its_users_alone(tmp_path: Path) -> None:
    local_proposals(tmp_path / ".sgpu" / "prod").propose(IDS[0], b"x")
    assert (tmp_path / ".sgpu" / ".gitignore").exists()
    (file,) = (tmp_path / ".sgpu" / "prod" / "proposals").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_those_of_a_shared_folder_are_of_its_group_whatever_the_umask(
    group_place: SharedPlace,
) -> None:
    """Whoever proposes first makes the folders in which others apply."""
    shared_proposals(group_place, "prod").propose(IDS[0], b"x")
    folder = Path(group_place.address) / "p" / "prod" / "proposals"
    assert_of_the_group(folder / f"{IDS[0]}.json.gz", below=group_place)
