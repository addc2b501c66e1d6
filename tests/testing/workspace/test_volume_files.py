"""The Files API on volumes, as the SDK uses it: single requests, ranges, pages, parts."""

import hashlib
import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from databricks.sdk.errors import AlreadyExists, BadRequest, NotFound
from databricks.sdk.service.catalog import VolumeType

from sgpu_decl.testing.workspace import WorkspaceServer
from tests.testing.workspace.conftest import Answer, call

ROOT = "/Volumes/main/default/files"
MIB = 1024 * 1024


def statuses(server: WorkspaceServer, token: str, start: str) -> list[tuple[str, int]]:
    recorded = call("GET", f"{server.url}/__testserver/requests", token=token).json["requests"]
    return [
        (f"{one['method']} {one['path']}", one["status"])
        for one in recorded
        if f"{one['method']} {one['path']}".startswith(start)
    ]


def test_files_come_back_as_they_were(client: Any) -> None:
    content = bytes(range(256)) * 5000
    client.files.upload(f"{ROOT}/some/where/a b.bin", io.BytesIO(content))
    assert client.files.download(f"{ROOT}/some/where/a b.bin").contents.read() == content
    known = client.files.get_metadata(f"{ROOT}/some/where/a b.bin")
    assert known.content_length == len(content)
    assert known.last_modified.endswith("GMT")
    client.files.delete(f"{ROOT}/some/where/a b.bin")
    for gone in (client.files.download, client.files.get_metadata, client.files.delete):
        with pytest.raises(NotFound):
            gone(f"{ROOT}/some/where/a b.bin")


def test_what_is_there_stays_where_told(client: Any) -> None:
    client.files.upload(f"{ROOT}/a", io.BytesIO(b"1"), overwrite=False)
    with pytest.raises(AlreadyExists):
        client.files.upload(f"{ROOT}/a", io.BytesIO(b"2"), overwrite=False)
    client.files.upload(f"{ROOT}/a", io.BytesIO(b"3"))
    assert client.files.download(f"{ROOT}/a").contents.read() == b"3"


def test_a_range_of_a_file_is_enough(client: Any, api: Callable[..., Answer]) -> None:
    client.files.upload(f"{ROOT}/digits", io.BytesIO(b"0123456789"))
    path = f"/api/2.0/fs/files{ROOT}/digits"
    for asked, got, shown in (
        ("bytes=2-4", b"234", "bytes 2-4/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=-3", b"789", "bytes 7-9/10"),
        ("bytes=8-100", b"89", "bytes 8-9/10"),
    ):
        answer = api("GET", path, Range=asked)
        assert (answer.status, answer.body) == (206, got)
        assert answer.headers["Content-Range"] == shown
    assert api("GET", path, Range="bytes=10-").status == 416


def test_folders_are_made_listed_and_deleted(client: Any) -> None:
    client.files.create_directory(f"{ROOT}/a/b")
    client.files.create_directory(f"{ROOT}/a/b")
    client.files.get_directory_metadata(f"{ROOT}/a")
    client.files.upload(f"{ROOT}/a/f", io.BytesIO(b"12345"))
    found = list(client.files.list_directory_contents(f"{ROOT}/a"))
    assert [(one.path, one.is_directory, one.file_size) for one in found] == [
        (f"{ROOT}/a/b", True, None),
        (f"{ROOT}/a/f", False, 5),
    ]
    with pytest.raises(BadRequest) as refused:
        client.files.delete_directory(f"{ROOT}/a")
    reasons = [one.reason for one in refused.value.get_error_info()]
    assert reasons == ["FILES_API_DIRECTORY_IS_NOT_EMPTY"]
    client.files.delete(f"{ROOT}/a/f")
    client.files.delete_directory(f"{ROOT}/a/b")
    client.files.delete_directory(f"{ROOT}/a")
    with pytest.raises(NotFound):
        client.files.get_directory_metadata(f"{ROOT}/a")


def test_listings_come_in_pages(client: Any, server: WorkspaceServer, token: str) -> None:
    for number in range(7):
        client.files.upload(f"{ROOT}/many/{number}", io.BytesIO(b""))
    found = client.files.list_directory_contents(f"{ROOT}/many", page_size=3)
    assert [one.name for one in found] == list("0123456")
    listings = statuses(server, token, "GET /api/2.0/fs/directories")
    assert listings == [(f"GET /api/2.0/fs/directories{ROOT}/many", 200)] * 3


def test_a_volume_has_to_be_there(client: Any) -> None:
    with pytest.raises(NotFound, match=r"'lab\.raw\.data' does not exist"):
        client.files.upload("/Volumes/lab/raw/data/x", io.BytesIO(b"1"))
    client.volumes.create("lab", "raw", "data", VolumeType.MANAGED)
    client.files.upload("/Volumes/lab/raw/data/x", io.BytesIO(b"1"))
    assert client.volumes.read("lab.raw.data").owner == client.current_user.me().user_name
    assert [one.name for one in client.volumes.list("lab", "raw")] == ["data"]
    client.volumes.delete("lab.raw.data")
    with pytest.raises(NotFound):
        client.files.download("/Volumes/lab/raw/data/x")
    with pytest.raises(BadRequest, match="Expected /Volumes/"):
        client.files.upload("/Volumes/lab/x", io.BytesIO(b"1"))


def test_sixty_mebibytes_come_in_parts_and_back_in_ranges(
    client: Any, server: WorkspaceServer, token: str, tmp_path: Path
) -> None:
    source = tmp_path / "source.bin"
    source.write_bytes(random.Random(1).randbytes(60 * MIB))
    client.files.upload_from(f"{ROOT}/big.bin", str(source))
    parts = statuses(server, token, "PUT /__storage/")
    assert [status for _, status in parts] == [200] * 6
    assert statuses(server, token, "PUT /api/") == []
    client.files.download_to(f"{ROOT}/big.bin", str(tmp_path / "back.bin"))
    assert digest(tmp_path / "back.bin") == digest(source)
    tenant = server.tenants.of_token(token)
    assert list((tenant.folder / "uploads").iterdir()) == []


def digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@pytest.fixture
def in_parts(client: Any) -> Callable[..., None]:
    """Upload 8 parts of 1 MiB each, one after the other."""
    client.config.files_ext_multipart_upload_min_stream_size = 1
    client.files._config.files_ext_multipart_upload_min_stream_size = 1
    content = b"".join(bytes([number]) * MIB for number in range(8))

    def upload(**settings: Any) -> None:
        client.files.upload(
            f"{ROOT}/parts.bin", io.BytesIO(content), part_size=MIB, use_parallel=False, **settings
        )

    return upload


def test_an_upload_that_breaks_at_part_seven_leaves_nothing(
    client: Any, server: WorkspaceServer, token: str, in_parts: Callable[..., None]
) -> None:
    rule = {"pattern": "PUT /__storage/*/7", "status_code": 400, "times": 0}
    call("POST", f"{server.url}/__testserver/fault", token=token, data=rule)
    with pytest.raises(BadRequest):
        in_parts()
    assert len(statuses(server, token, "PUT /__storage/")) == 7
    # By a link that it asks for, or, since 0.162 of the SDK, by a call: its parts are gone.
    assert list((server.tenants.of_token(token).folder / "uploads").iterdir()) == []
    with pytest.raises(NotFound):
        client.files.get_metadata(f"{ROOT}/parts.bin")
    assert list(client.files.list_directory_contents(ROOT)) == []


def test_a_part_whose_connection_is_cut_is_sent_again(
    client: Any, server: WorkspaceServer, token: str, in_parts: Callable[..., None]
) -> None:
    rule = {"pattern": "PUT /__storage/*/7", "effect": "cut"}
    call("POST", f"{server.url}/__testserver/fault", token=token, data=rule)
    in_parts()
    got = client.files.download(f"{ROOT}/parts.bin").contents.read()
    assert [got[number * MIB] for number in range(8)] == list(range(8))
    assert len(got) == 8 * MIB


def test_what_is_there_stays_in_parts_too(client: Any, in_parts: Callable[..., None]) -> None:
    client.files.upload(f"{ROOT}/parts.bin", io.BytesIO(b""))
    with pytest.raises(AlreadyExists):
        in_parts(overwrite=False)
    assert client.files.get_metadata(f"{ROOT}/parts.bin").content_length == 0


def test_parts_must_be_those_that_came(api: Callable[..., Answer]) -> None:
    path = f"/api/2.0/fs/files{ROOT}/p"
    begun = api("POST", f"{path}?action=initiate-upload").json
    session = begun["multipart_upload"]["session_token"]
    asked = {"path": f"{ROOT}/p", "session_token": session, "start_part_number": 1, "count": 2}
    urls = api("POST", "/api/2.0/fs/create-upload-part-urls", asked).json["upload_part_urls"]
    etags = [call("PUT", one["url"], data=b"part").headers["ETag"] for one in urls]
    end = f"{path}?action=complete-upload&upload_type=multipart&session_token={session}"
    wrong = [{"part_number": 1, "etag": etags[0]}, {"part_number": 2, "etag": "other"}]
    assert api("POST", end, {"parts": wrong}).status == 400
    swapped = [{"part_number": 2, "etag": etags[1]}, {"part_number": 1, "etag": etags[0]}]
    assert api("POST", end, {"parts": swapped}).status == 400
    assert api("GET", path).status == 404
    right = [{"part_number": number, "etag": etags[number - 1]} for number in (1, 2)]
    assert api("POST", end, {"parts": right}).status == 200
    assert api("GET", path).body == b"partpart"
    assert api("POST", end, {"parts": right}).status == 404


def test_urls_of_parts_expire(api: Callable[..., Answer]) -> None:
    begun = api("POST", f"/api/2.0/fs/files{ROOT}/p?action=initiate-upload").json
    session = begun["multipart_upload"]["session_token"]
    asked = {
        "path": f"{ROOT}/p", "session_token": session, "start_part_number": 1, "count": 1,
        "expire_time": "2020-01-01T00:00:00Z",
    }  # fmt: skip
    [one] = api("POST", "/api/2.0/fs/create-upload-part-urls", asked).json["upload_part_urls"]
    answer = call("PUT", one["url"], data=b"part")
    assert answer.status == 403
    assert b"<Message>Request has expired</Message>" in answer.body
