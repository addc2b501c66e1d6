"""A state in a bucket: what `tests/contracts` asks of no other place."""

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.errors import SgpuError
from sgpu_decl.model.bucket_url import bucket_url
from sgpu_decl.model.owner import Presence
from sgpu_decl.places.bucket import BucketAddress, BucketPlace, _opened
from sgpu_decl.places.file_place import PROBE
from sgpu_decl.storing.journal.append import append_once
from sgpu_decl.storing.journal.entry import digest
from sgpu_decl.storing.journal.file_journal import FileJournal
from sgpu_decl.storing.journal.port import Compacted, JournalGap, StoreDown
from sgpu_decl.storing.journal.store import JournalStore
from sgpu_decl.storing.proposals import KEPT
from sgpu_decl.storing.stores import (
    OBJECT,
    SharedPlace,
    open_state_store,
    shared_journal,
    shared_proposals,
    shared_store,
)
from tests.faulty_proxy import Answer, FaultyProxy, faulty_proxy
from tests.object_server import PAGE, ObjectServer
from tests.shared_places import new_place
from tests.storing.conftest import compacted, fill
from tests.support import refusing, some, until

HOUR = 3600.0
BUCKET = "sgpu_decl.places.bucket"
WRITTEN = (("Last-Modified", "Fri, 27 Nov 2026 12:00:00 GMT"), ("ETag", '"a"'))


@pytest.fixture
def direct(request: pytest.FixtureRequest, tmp_path: Path) -> SharedPlace:
    return new_place(request, OBJECT, tmp_path)


@pytest.fixture
def proxy(object_server: ObjectServer) -> Iterator[FaultyProxy]:
    with faulty_proxy(object_server.endpoint) as running:
        yield running


@pytest.fixture
def place(direct: SharedPlace, proxy: FaultyProxy) -> SharedPlace:
    return replace(direct, endpoint=proxy.url)


def probes(journal: FileJournal) -> list[str]:
    """What was made to learn the time."""
    found = journal._place.list(journal._home)
    return [entry.name for entry in found if entry.name.startswith(PROBE)]


def texts(journal: FileJournal, number: int = 0) -> list[str]:
    return [item.text for item in journal.after(number)]


def always(method: str, path: str) -> bool:
    return True


def deletes(method: str, path: str) -> bool:
    return method == "DELETE"


def adds_entry(method: str, path: str) -> bool:
    return method == "PUT" and path.endswith(".json")


def refusal(code: str, message: str) -> bytes:
    """As S3 writes one."""
    return (
        "<?xml version='1.0' encoding='UTF-8'?>\n"
        f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    ).encode()


def test_a_bucket_that_is_not_there_begins_no_new_state(place: SharedPlace) -> None:
    missing = replace(place, address="s3://nobodys-bucket/sgpu")
    journal, proposals = shared_journal(missing, "default"), shared_proposals(missing, "default")
    calls = (
        journal.now,
        lambda: journal.after(0),
        lambda: journal.append(1, "first"),
        lambda: journal.append(2, "second"),
        lambda: proposals.propose("a" * 32, b"x"),
        lambda: list(proposals.proposals()),
    )
    for call in calls:
        with refusing("state_unreachable", match="NoSuchBucket") as caught:
            call()
        assert missing.address in caught.value.message
        assert "`nobodys-bucket` exist there" in (caught.value.hint or "")
    assert shared_store(missing, Path("/nowhere/default")).presence("lin") is Presence.UNKNOWN


def test_credentials_that_are_refused_are_named_with_the_way_out(
    place: SharedPlace, journal: FileJournal, proxy: FaultyProxy
) -> None:
    said = "The AWS Access Key Id you provided does not exist in our records."
    proxy.answer(always, Answer(status=403, body=refusal("InvalidAccessKeyId", said)))
    for call in (journal.now, lambda: journal.after(0), lambda: journal.append(1, "first")):
        with pytest.raises(SgpuError, match="refuses this") as caught:
            call()
        assert not isinstance(caught.value, StoreDown)
        assert caught.value.code == "state_unreachable"
        assert place.address in caught.value.message
        assert "AWS_ACCESS_KEY_ID" in (caught.value.hint or "")
        assert f"InvalidAccessKeyId: {said}" in caught.value.message
        assert "<" not in caught.value.message


def test_a_machine_without_credentials_is_told_how_to_give_some(
    journal: FileJournal, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", proxy.url)  # that of a machine without a role
    proxy.answer(lambda _, path: path.startswith("/latest"), Answer(status=404))
    with refusing("state_unreachable") as caught:
        journal.after(0)
    assert "set AWS_ACCESS_KEY_ID" in (caught.value.hint or "")


def test_a_login_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "federated.json"
    file.write_text('{"type": "external_account"}')
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    place = SharedPlace(kind=OBJECT, address="gs://team/sgpu", project="p")
    with refusing("state_unreachable", match="external_account") as caught:
        shared_journal(place, "default").after(0)
    assert "GOOGLE_BEARER_TOKEN" in (caught.value.hint or "")


@pytest.mark.expensive
def test_a_server_that_does_not_answer_is_given_up_and_named(
    place: SharedPlace,
    journal: FileJournal,
    proxy: FaultyProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("_ANSWER_SECONDS", "_SLOW_SECONDS"):
        monkeypatch.setattr(f"{BUCKET}.{name}", 0.5)
    proxy.silence()
    for call in (lambda: journal.after(0), lambda: journal.append(1, "first"), journal.now):
        before = len(proxy.requests)
        with pytest.raises(StoreDown, match="cannot be reached") as caught:
            call()
        until(lambda: len(proxy.requests) > before)  # noqa: B023  called at once
        assert len(proxy.requests) == before + 1  # it is not waited for twice
        assert proxy.url in caught.value.message
        assert caught.value.code == "state_unreachable"


def test_a_server_that_is_not_there_is_named(place: SharedPlace) -> None:
    journal = shared_journal(replace(place, endpoint="http://127.0.0.1:1"), "default")
    with pytest.raises(StoreDown, match=r"127\.0\.0\.1:1.*cannot be reached"):
        journal.after(0)


def test_a_server_that_is_busy_is_asked_again(journal: FileJournal, proxy: FaultyProxy) -> None:
    busy = Answer(status=503, body=refusal("SlowDown", "Please reduce your request rate."))
    proxy.answer(adds_entry, busy)
    with pytest.raises(StoreDown, match="SlowDown: Please reduce"):
        journal.append(1, "first")
    assert len([one for one in proxy.requests if adds_entry(*one)]) > 1
    proxy.clear()
    fill(journal, 1)


# obstore itself asks up to four times
@pytest.mark.parametrize("lost", [1, pytest.param(4, marks=pytest.mark.expensive)])
def test_an_entry_whose_answer_is_lost_is_there_once(
    journal: FileJournal, proxy: FaultyProxy, lost: int
) -> None:
    fill(journal, 1)
    proxy.lose(adds_entry, times=lost)
    assert append_once(journal, 2, "second", prev=digest("entry 1")) is not None
    proxy.lose(adds_entry, times=lost)
    assert append_once(journal, 2, "another second", prev=digest("entry 1")) is None
    assert texts(journal) == ["entry 1", "second"]


def test_an_entry_of_another_writer_that_is_just_being_added_is_not_one_that_is_there(
    journal: FileJournal, proxy: FaultyProxy
) -> None:
    fill(journal, 1)
    proxy.answer(adds_entry, Answer(status=409, body=refusal("ConditionalRequestConflict", "x")))
    with pytest.raises(StoreDown, match="is busy"):
        journal.append(2, "second")
    assert texts(journal) == ["entry 1"]


def test_a_server_that_writes_over_objects_is_refused(
    journal: FileJournal, proxy: FaultyProxy
) -> None:
    proxy.leave_out("If-None-Match")
    with refusing("state_unreachable", match="writes over an object"):
        journal.append(1, "first")
    assert texts(journal) == []


def test_times_are_those_of_the_store(
    direct: SharedPlace, journal: FileJournal, object_server: ObjectServer
) -> None:
    here = journal.now()
    object_server.ahead(HOUR)
    try:
        fill(journal, 1)
        (first,) = journal.after(0)
        assert abs((first.at - here).total_seconds() - HOUR) < 60
        for asked in (journal, shared_journal(direct, "default")):
            assert abs((asked.now() - first.at).total_seconds()) < 60
    finally:
        object_server.ahead(0)


def test_the_time_is_counted_on_and_asked_again_after_a_while(
    journal: FileJournal, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = journal.now()
    asked = len(proxy.requests)
    assert journal.now() >= first
    assert len(proxy.requests) == asked
    monkeypatch.setattr("sgpu_decl.places.file_place._COUNTED", 0.0)
    journal.now()
    assert len(proxy.requests) == 2 * asked


def test_a_user_who_adds_objects_and_nothing_else_applies(
    place: SharedPlace, proxy: FaultyProxy, tmp_path: Path, object_server: ObjectServer
) -> None:
    """As one whom Google lets create objects: it takes the right to delete one to write over it."""
    proxy.answer(deletes, Answer(status=403, body=refusal("AccessDenied", "no")))
    store = shared_store(place, tmp_path / "default")
    assert isinstance(store, JournalStore)
    for plan in ("p", "q"):
        with store.lock("apply", lineage="lin") as writer:
            writer.plan_applied(plan)
    for (method, path), headers in zip(proxy.requests, proxy.headers, strict=True):
        assert method != "PUT" or headers["if-none-match"] == "*", path
    proxy.clear()
    journal = store._journal
    assert isinstance(journal, FileJournal)
    (left,) = probes(journal)
    bucket, _, folder = place.address.removeprefix("s3://").partition("/")
    object_server.age(bucket, f"{folder}{journal._home}/{left}", 2 * HOUR)
    assert store.compact(0).entries > 0
    assert probes(journal) == []


def test_proposals_are_as_old_as_the_store_says(
    direct: SharedPlace, object_server: ObjectServer
) -> None:
    object_server.ahead(-2 * KEPT.total_seconds())
    try:
        with closing(shared_proposals(direct, "prod")) as store:
            store.propose("a" * 32, b"x")
            assert [item.content for item in store.proposals()] == [b"x"]
    finally:
        object_server.ahead(0)


def test_who_may_not_delete_proposes_all_the_same(
    place: SharedPlace, proxy: FaultyProxy, object_server: ObjectServer
) -> None:
    proxy.answer(deletes, Answer(status=403, body=refusal("AccessDenied", "no")))
    bucket, _, folder = place.address.removeprefix("s3://").partition("/")
    with closing(shared_proposals(place, "prod")) as store:
        store.propose("a" * 32, b"old")
        key = f"{folder}/p/prod/proposals/{'a' * 32}.json.gz"
        object_server.age(bucket, key, 2 * KEPT.total_seconds())
        store.propose("b" * 32, b"new")
        assert [item.content for item in store.proposals()] == [b"new"]
        with pytest.raises(SgpuError, match="may not delete"):
            store.drop_expired()
        proxy.clear()
        assert store.drop_expired() == 1


def test_a_number_is_not_given_whose_entry_is_deleted_while_it_is_added(
    direct: SharedPlace, journal: FileJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(journal, 1, 2)
    other = shared_journal(direct, "default")
    assert isinstance(other, FileJournal)
    create = journal._place.create

    def late(path: str, content: bytes) -> bool:
        fill(other, 3, 4, 5)  # others go on between the look at the entry before and the request
        compacted(other, 5)
        return create(path, content)

    monkeypatch.setattr(journal._place, "create", late)
    assert journal.append(3, "late") is None
    assert [item.number for item in other.after(4)] == [5]
    with pytest.raises(Compacted):
        other.after(2, most=1)


@pytest.mark.expensive
def test_entries_that_do_not_count_any_more_are_neither_read_nor_given_again(
    journal: FileJournal, proxy: FaultyProxy
) -> None:
    """As after a crash between the two steps of `state compact`."""
    fill(journal, 1, 2, 3, 4)
    assert journal.put_checkpoint(4, b"all before")
    proxy.answer(
        lambda method, path: deletes(method, path) and path.endswith(".json"),
        Answer(status=500, body=b""),
    )
    with pytest.raises(StoreDown):
        journal.drop_before(4)
    proxy.clear()
    for number in (0, 1, 2):
        with pytest.raises(Compacted) as caught:
            journal.after(number)
        assert caught.value.first == 4
    assert [item.number for item in journal.after(0, most=1)] == [1]
    assert texts(journal, 3) == ["entry 4"]
    for number in (2, 3, 4):
        assert journal.append(number, "again", prev=digest(f"entry {number - 1}")) is None
    journal.drop_before(4)
    names = [entry.name for entry in journal._place.list(journal._entries)]
    assert names == ["000000000001.json", "000000000004.json", "compacted-000000000003"]


@pytest.mark.expensive
def test_who_may_not_delete_does_not_compact_and_hides_nothing(
    place: SharedPlace, proxy: FaultyProxy, tmp_path: Path
) -> None:
    store = shared_store(place, tmp_path / "default")
    assert isinstance(store, JournalStore)
    with store.lock("apply", lineage="lin") as writer:
        writer.plan_applied("p")
    log = store.log(100)
    proxy.answer(deletes, Answer(status=403, body=refusal("AccessDenied", "Access Denied")))
    with refusing(
        "compact_refused", match=r"may not delete anything there.*Access Denied"
    ) as caught:
        store.compact(0)
    assert place.address in (caught.value.hint or "")
    assert store.log(100)[-len(log) :] == log
    proxy.clear()
    assert store.compact(0).entries > 0


def test_large_entries_and_checkpoints_are_sent_in_one_request(
    journal: FileJournal, proxy: FaultyProxy
) -> None:
    entry, checkpoint = "x" * (2 << 20), b"y" * (6 << 20)
    assert journal.append(1, entry) is not None
    assert journal.put_checkpoint(1, checkpoint)
    assert not journal.put_checkpoint(1, b"z")
    assert texts(journal) == [entry]
    assert journal.checkpoint() == (1, checkpoint)
    assert not [path for _, path in proxy.requests if "upload" in path]


@pytest.mark.expensive
def test_entries_that_are_listed_in_several_answers_are_read_in_order(
    direct: SharedPlace,
) -> None:
    journal = shared_journal(direct, "default")
    assert isinstance(journal, FileJournal)
    every = range(1, PAGE + 21)

    def add(number: int) -> bool:
        return journal._place.create(journal._entry(number), f"entry {number}".encode())

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(add, every))
    assert texts(journal) == [f"entry {number}" for number in every]
    found = [item.number for item in journal.after(PAGE - 10, most=20)]
    assert found == list(range(PAGE - 9, PAGE + 11))
    journal._place.delete(journal._entry(PAGE + 5))
    with pytest.raises(JournalGap, match=f"entry {PAGE + 5} is missing"):
        journal.after(0)


def test_an_entry_takes_three_requests_and_a_look_two(
    journal: FileJournal, proxy: FaultyProxy
) -> None:
    fill(journal, 1, 2)
    proxy.requests.clear()
    fill(journal, 3)
    assert [method for method, _ in proxy.requests] == ["GET", "PUT", "GET"]
    proxy.requests.clear()
    journal.after(2)
    assert [method for method, _ in proxy.requests] == ["GET", "GET"]


def test_a_machine_without_the_library_is_told_how_to_install_it(
    direct: SharedPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = shared_store(direct, tmp_path / "default")
    monkeypatch.setitem(sys.modules, "obstore", None)
    with refusing("sdk_missing", match="obstore") as caught:
        store.read()
    assert "pip install 'obstore>=0.12,<0.13'`" in str(caught.value.hint)
    assert store.presence("lin") is Presence.UNKNOWN


def test_a_store_is_found_again_with_its_server(direct: SharedPlace, tmp_path: Path) -> None:
    named = replace(direct, region="eu-central-1")
    url = shared_store(named, tmp_path / "default").url
    assert some(open_state_store(url)).url == url
    assert "region=eu-central-1" in url
    assert open_state_store(f"{url}&colour=red") is None


def test_variables_do_not_say_which_server_has_the_bucket(
    object_login: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": "http://elsewhere",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
        "AWS_REGION": "eu-west-1",
        "AZURE_STORAGE_ACCOUNT_NAME": "elsewhere",
        "AZURE_STORAGE_ENDPOINT": "http://elsewhere",
        "AZURE_STORAGE_USE_EMULATOR": "true",
    }.items():
        monkeypatch.setenv(name, value)
    url = some(bucket_url("s3://team/sgpu"))
    for region, host in ((None, "eu-west-1"), ("eu-central-1", "eu-central-1")):
        config: Any = _opened(BucketAddress(url=url, region=region), upload=False).config
        assert config["endpoint"] == f"https://s3.{host}.amazonaws.com"
        assert str(config["virtual_hosted_style_request"]).lower() == "false"
    container = some(bucket_url("az://team/sgpu"))
    config = _opened(BucketAddress(url=container, account="ours"), upload=False).config
    assert config["endpoint"] == "https://ours.blob.core.windows.net"
    assert config["account_name"] == "ours"


@pytest.mark.parametrize(
    ("url", "header"),
    [("az://team/sgpu", "if-none-match"), ("gs://team/sgpu", "x-goog-if-generation-match")],
)
def test_azure_and_google_are_told_to_add_an_object_only_where_there_is_none(
    proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str, header: str
) -> None:
    """What they answer is as their documentation has it; there is no server of theirs here."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0")
    account = tmp_path / "account.json"
    login = {"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": True}
    account.write_text(json.dumps(login))
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(account))
    named = some(bucket_url(url))
    bucket = BucketPlace(BucketAddress(url=named, endpoint=proxy.url, account="ours"))
    there = (*WRITTEN, ("Content-Length", "1"))
    proxy.answer(lambda method, _: method == "HEAD", Answer(status=200, headers=there))
    proxy.answer(lambda _, path: path.endswith("taken"), Answer(status=412))
    proxy.answer(lambda _, path: path.endswith("free"), Answer(status=201, headers=WRITTEN))
    assert bucket.create("free", b"x")
    assert proxy.headers[-1][header] in ("*", "0")
    assert not bucket.create("taken", b"x")
