"""A state in files of a Databricks workspace: what `tests/contracts` asks of no other place."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sgpu_decl.backends.databricks.api.workspace_files import VolumePlace, WorkspacePlace
from sgpu_decl.backends.databricks.api.workspace_state import making
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.owner import Presence
from sgpu_decl.storing.journal.append import append_once
from sgpu_decl.storing.journal.entry import NO_ENTRY, digest
from sgpu_decl.storing.journal.file_journal import FileJournal
from sgpu_decl.storing.journal.port import Compacted, JournalGap, StoreDown
from sgpu_decl.storing.proposals import KEPT
from sgpu_decl.storing.stores import (
    DATABRICKS,
    SharedPlace,
    open_state_store,
    shared_journal,
    shared_proposals,
    shared_store,
)
from sgpu_decl.testing.workspace import Effect, Fault, WorkspaceServer
from sgpu_decl.testing.workspace.clock import ahead
from tests.shared_places import VOLUME, folder_on_disk, new_place
from tests.storing.conftest import compacted, fill
from tests.support import refusing, some

ADDS = {DATABRICKS: "POST */workspace/import", VOLUME: "PUT */fs/files/*"}
READS = {DATABRICKS: "GET */workspace/export*", VOLUME: "[GP][EO]* */fs/[cf]*"}
LOOKS = {DATABRICKS: 1, VOLUME: 2}
"""Requests of one read. On a volume: POST create-download-url, then GET files where that fails."""
LISTS = {DATABRICKS: "GET */workspace/list*", VOLUME: "GET */fs/directories/*"}
HOUR = 3600.0


@pytest.fixture(params=[DATABRICKS, pytest.param(VOLUME, marks=pytest.mark.expensive)])
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def place(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> SharedPlace:
    return new_place(request, kind, tmp_path)


@pytest.fixture
def befall(files_server: WorkspaceServer, files_token: str) -> Iterator[Callable[[Fault], None]]:
    """Lets requests of the user go wrong."""
    key = files_server.tenants.of_token(files_token).key
    yield lambda fault: files_server.faults.add(fault, tenant=key)
    files_server.faults.clear()


def texts(journal: FileJournal, number: int = 0, most: int | None = None) -> list[str]:
    return [item.text for item in journal.after(number, most=most)]


def in_folders(journal: FileJournal, count: int) -> FileJournal:
    """The same journal, with `count` entries in a folder."""
    return FileJournal(replace(journal._root, in_folder=count), project="p", target="default")


def folders(journal: FileJournal) -> list[str]:
    """Those of entries."""
    return [entry.name for entry in journal._place.list(journal._entries) if entry.folder]


def files(journal: FileJournal, folder: str) -> list[str]:
    return [entry.name for entry in journal._place.list(folder) if not entry.folder]


def test_a_folder_that_is_not_there_begins_no_new_state(
    request: pytest.FixtureRequest, place: SharedPlace, files_server: WorkspaceServer
) -> None:
    folder = folder_on_disk(request, place)
    folder.rmdir()
    journal, proposals = shared_journal(place, "default"), shared_proposals(place, "default")
    calls: list[Callable[[], object]] = [
        journal.now,
        lambda: journal.after(0),
        lambda: journal.append(1, "first"),
        lambda: proposals.propose("a" * 32, b"x"),
    ]
    for call in calls:
        with refusing("state_unreachable", match="holds no shared state") as caught:
            call()
        assert f"`{files_server.url}` has no such folder" in caught.value.message
        assert place.address in (caught.value.hint or "")
    assert not folder.exists()
    assert shared_store(place, Path("/nowhere/default")).presence("lin") is Presence.UNKNOWN


@pytest.mark.parametrize(
    ("address", "profile", "command"),
    [
        ("/Workspace/Shared/a b", None, "databricks workspace mkdirs '/Workspace/Shared/a b'"),
        (
            "/Volumes/main/ml/x/y",
            "team",
            "databricks fs mkdirs dbfs:/Volumes/main/ml/x/y --profile team",
        ),
    ],
)
def test_the_command_that_makes_the_folder_is_said(
    address: str, profile: str | None, command: str
) -> None:
    place = SharedPlace(kind=DATABRICKS, address=address, project="p", profile=profile)
    assert making(place) == command


def test_who_may_not_write_is_told_which_folder_and_which_user(
    kind: str, place: SharedPlace, journal: FileJournal, befall: Callable[[Fault], None]
) -> None:
    body: dict[str, Json] = {"error_code": "PERMISSION_DENIED", "message": "not yours"}
    befall(Fault(pattern=ADDS[kind], effect=Effect.STATUS, times=0, status_code=403, body=body))
    with pytest.raises(SgpuError, match="not yours") as caught:
        journal.append(1, "first")
    assert not isinstance(caught.value, StoreDown)
    assert caught.value.code == "state_unreachable"
    assert f"`{place.address}`" in caught.value.message
    hint = caught.value.hint or ""
    assert place.address in hint
    assert isinstance(journal._place, WorkspacePlace | VolumePlace)
    assert journal._place._connection.user in hint
    assert ("WRITE VOLUME" in hint) is (kind == VOLUME)


@pytest.mark.expensive
def test_an_entry_whose_answer_is_lost_is_there_once(
    kind: str, journal: FileJournal, befall: Callable[[Fault], None]
) -> None:
    fill(journal, 1)  # makes the folder, too
    befall(Fault(pattern=ADDS[kind], effect=Effect.LOSE_ANSWER))
    assert append_once(journal, 2, "second", prev=digest("entry 1")) is not None
    befall(Fault(pattern=ADDS[kind], effect=Effect.LOSE_ANSWER))
    assert append_once(journal, 2, "another second", prev=digest("entry 1")) is None
    assert texts(journal) == ["entry 1", "second"]


def test_a_workspace_that_is_busy_is_asked_again(
    kind: str, journal: FileJournal, befall: Callable[[Fault], None]
) -> None:
    body: dict[str, Json] = {"error_code": "REQUEST_LIMIT_EXCEEDED", "message": "slow down"}
    befall(Fault(pattern=ADDS[kind], effect=Effect.STATUS, times=0, status_code=429, body=body))
    with pytest.raises(StoreDown, match="slow down"):
        append_once(journal, 1, "first", prev=NO_ENTRY, patience=0.0)


def test_an_entry_that_a_list_lacks_is_found_by_its_name(
    kind: str, journal: FileJournal, befall: Callable[[Fault], None]
) -> None:
    fill(journal, 1, 2)
    befall(Fault(pattern=ADDS[kind], effect=Effect.STALE, seen_by=LISTS[kind], reads=1))
    fill(journal, 3)
    assert texts(journal) == ["entry 1", "entry 2", "entry 3"]


def test_an_entry_that_is_not_shown_yet_is_not_taken_for_one_of_another_writer(
    kind: str, journal: FileJournal, befall: Callable[[Fault], None]
) -> None:
    fill(journal, 1)
    looks = LOOKS[kind]
    befall(Fault(pattern=ADDS[kind], effect=Effect.STALE, seen_by=READS[kind], reads=looks))
    assert append_once(journal, 2, "second", prev=digest("entry 1")) is not None
    assert texts(journal) == ["entry 1", "second"]


def test_an_entry_that_is_listed_and_cannot_be_read_yet_is_no_gap(
    kind: str, journal: FileJournal, befall: Callable[[Fault], None]
) -> None:
    fill(journal, 1, 2)
    befall(Fault(pattern=ADDS[kind], effect=Effect.STALE, seen_by=READS[kind], reads=50))
    with pytest.raises(StoreDown, match="does not show"):
        journal.append(3, "entry 3")
    assert texts(journal) == ["entry 1", "entry 2"]


def test_entries_of_several_folders_are_read_in_order(
    journal: FileJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = in_folders(journal, 3)
    fill(journal, *range(1, 8))
    every = [f"entry {number}" for number in range(1, 8)]
    for number in range(8):
        assert texts(journal, number) == every[number:]
    assert texts(journal, 1, most=4) == every[1:5]
    assert texts(journal, 4, most=2) == every[4:6]
    assert len(folders(journal)) == 3


@pytest.mark.parametrize("lost", [2, 4, 5])
def test_a_gap_is_found_within_a_folder_and_at_its_end(
    journal: FileJournal, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    journal = in_folders(journal, 3)
    fill(journal, *range(1, 8))
    journal._place.delete(journal._entry(lost))
    with pytest.raises(JournalGap, match=f"entry {lost} is missing"):
        journal.after(0)
    with pytest.raises(JournalGap, match=f"entry {lost} is missing"):
        journal.after(lost - 1)


def test_times_are_those_of_the_workspace(kind: str, journal: FileJournal) -> None:
    here = journal.now()
    with ahead(HOUR):
        at = some(journal.append(1, "first"))
        assert abs((at - here).total_seconds() - HOUR) < 60
        assert [item.at for item in journal.after(0)] == [at]
        assert 0 <= (journal.now() - at).total_seconds() < 60
    assert (at.microsecond == 0) or kind == DATABRICKS


def test_proposals_are_as_old_as_the_workspace_says(place: SharedPlace) -> None:
    behind = ahead(-2 * KEPT.total_seconds())
    with behind, closing(shared_proposals(place, "prod")) as store:
        store.propose("a" * 32, b"x")
        assert [item.content for item in store.proposals()] == [b"x"]


def test_what_could_not_be_read_again_is_not_written(
    journal: FileJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal._place, "part", 10)
    with refusing("state_unreachable", match="would have 11 bytes"):
        journal.append(1, "x" * 11)
    with pytest.raises(SgpuError, match="would have 11 bytes"):
        journal.put_checkpoint(256, b"y" * 11)
    assert journal.checkpoint() is None
    assert journal.append(1, "x" * 10) is not None
    assert journal.append(2, "y", prev=digest("x" * 10)) is not None


def test_a_store_is_found_again_with_its_login(place: SharedPlace, tmp_path: Path) -> None:
    named = replace(place, profile="team", host="https://dbc-1.cloud.databricks.com")
    url = shared_store(named, tmp_path / "default").url
    assert some(open_state_store(url)).url == url
    assert "profile=team" in url


def test_a_login_that_is_not_there_is_one_of_the_state(
    place: SharedPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATABRICKS_HOST")
    with refusing("state_unreachable", match="nothing says which Databricks workspace") as caught:
        shared_journal(place, "default").after(0)
    assert "set `state.profile`" in (caught.value.hint or "")


@pytest.mark.parametrize(("first", "in_folder"), [(2, 3), (3, 3), (5, 3), (7, 3), (9, 3), (6, 100)])
def test_entries_that_were_deleted_are_no_gap_wherever_their_folders_end(
    journal: FileJournal, monkeypatch: pytest.MonkeyPatch, first: int, in_folder: int
) -> None:
    journal = in_folders(journal, in_folder)
    fill(journal, *range(1, 10))
    compacted(journal, first)
    for number in range(9):
        if first == 2 or number >= first - 1:
            assert texts(journal, number) == [f"entry {item}" for item in range(number + 1, 10)]
            continue
        for most in (None, 2, 4):
            with pytest.raises(Compacted) as caught:
                journal.after(number, most=most)
            assert caught.value.first == first
    assert texts(journal, 0, most=1) == ["entry 1"]
    expected = {0, *range(first // in_folder, 9 // in_folder + 1)}
    assert len(folders(journal)) == len(expected)
    fill(journal, 10)


def test_a_crash_amid_the_deletion_leaves_no_journal_that_seems_to_end(
    journal: FileJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = in_folders(journal, 3)
    fill(journal, *range(1, 11))
    assert journal.put_checkpoint(8, b"all before")
    for number in (2, 4, 6, 7):  # 3 and 5 are left
        journal._place.delete(journal._entry(number))
    for number in range(7):
        with pytest.raises(Compacted):
            journal.after(number)
    assert texts(journal, 7) == [f"entry {number}" for number in (8, 9, 10)]
    journal.drop_before(8)
    assert folders(journal) == ["000000000", "000000002", "000000003"]


def test_a_gap_among_entries_that_a_checkpoint_holds_is_one(journal: FileJournal) -> None:
    fill(journal, 1, 2, 3, 4, 5)
    assert journal.put_checkpoint(5, b"all before")
    journal._place.delete(journal._entry(3))
    with pytest.raises(JournalGap, match="entry 3 is missing") as caught:
        journal.after(0)
    assert not isinstance(caught.value, Compacted)


def test_nothing_is_deleted_before_the_checkpoint_in_its_place_is_listed(
    kind: str, journal: FileJournal, befall: Callable[[Fault], None]
) -> None:
    fill(journal, 1, 2, 3)
    reads = 1 if kind == DATABRICKS else 2  # on a volume, to delete is to list first
    befall(Fault(pattern=ADDS[kind], effect=Effect.STALE, seen_by=LISTS[kind], reads=reads))
    assert journal.put_checkpoint(3, b"all before")
    with pytest.raises(StoreDown, match="does not list"):
        journal.drop_before(3)
    assert len(texts(journal)) == 3
    journal.drop_before(3)
    with pytest.raises(Compacted):
        journal.after(0)


def test_what_killed_processes_left_that_asked_for_the_time_is_deleted_with_the_old_entries(
    request: pytest.FixtureRequest, place: SharedPlace, journal: FileJournal
) -> None:
    fill(journal, 1, 2, 3)
    home = folder_on_disk(request, place) / "p" / "default"
    names = [f"now-{digit * 12}" for digit in "01"]
    for name in names:
        assert journal._place.create(f"{journal._home}/{name}", b"\n")
    then = time.time() - HOUR - 60
    os.utime(home / names[0], (then, then))
    compacted(journal, 3)
    assert files(journal, journal._home) == names[1:]


def test_a_number_whose_entry_is_deleted_while_it_is_added_is_not_given(
    place: SharedPlace, journal: FileJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(journal, 1, 2)
    create = journal._place.create

    def late(path: str, content: bytes) -> bool:
        # Others go on between the look at the entry before and the file.
        with closing(shared_journal(place, "default")) as other:
            assert isinstance(other, FileJournal)
            fill(other, 3, 4, 5)
            compacted(other, 5)
        return create(path, content)

    monkeypatch.setattr(journal._place, "create", late)
    assert journal.append(3, "late") is None
    assert files(journal, journal._folder(0)) == [
        "000000000001.json",
        "000000000005.json",
    ]
