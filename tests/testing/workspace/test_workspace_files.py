"""Workspace files through the SDK, and what only other clients send."""

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest
from databricks.sdk.errors import BadRequest, NotFound
from databricks.sdk.errors.base import DatabricksError
from databricks.sdk.errors.platform import InvalidParameterValue, ResourceAlreadyExists
from databricks.sdk.service.workspace import ImportFormat, Language, ObjectType

from tests.testing.workspace.conftest import Answer

AUTO = ImportFormat.AUTO
NOTEBOOK = b"# Databricks notebook source\nprint(1)\n"


@pytest.fixture
def home(client: Any) -> str:
    return f"/Users/{client.current_user.me().user_name}"


def test_files_come_back_as_they_were(client: Any, home: str) -> None:
    content = bytes(range(256)) * 300 + b"\r\n--\r\n"
    client.workspace.upload(f"{home}/data.bin", content, format=AUTO)
    assert client.workspace.download(f"/Workspace{home}/data.bin").read() == content
    status = client.workspace.get_status(f"/Workspace{home}/data.bin")
    assert (status.object_type, status.path) == (ObjectType.FILE, f"{home}/data.bin")
    assert status.size == len(content)
    assert status.modified_at >= status.created_at > 1_600_000_000_000


def test_content_comes_as_base64_too(client: Any, home: str) -> None:
    client.workspace.import_(f"{home}/a.txt", content="aGVsbG8=", format=AUTO)
    assert client.workspace.export(f"{home}/a.txt").content == "aGVsbG8="
    assert client.workspace.download(f"{home}/a.txt").read() == b"hello"
    with pytest.raises(InvalidParameterValue, match="base64"):
        client.workspace.import_(f"{home}/b.txt", content="%%%", format=AUTO)
    with pytest.raises(InvalidParameterValue, match="No input data"):
        client.workspace.import_(f"{home}/b.txt", content="", format=AUTO)
    with pytest.raises(DatabricksError, match="No input data"):
        client.workspace.upload(f"{home}/b.txt", b"", format=AUTO)


def test_other_clients_send_the_bytes_alone(
    client: Any, api: Callable[..., Answer], home: str
) -> None:
    path = f"/api/2.0/workspace-files/import-file{home}/with%20space.bin"
    assert api("POST", path, b"one").status == 200
    empty = f"/api/2.0/workspace-files/import-file{home}/empty"
    assert api("POST", empty, b"").status == 200
    assert client.workspace.download(f"{home}/empty").read() == b""
    refused = api("POST", path, b"two")
    assert (refused.status, refused.json["error_code"]) == (409, "RESOURCE_ALREADY_EXISTS")
    assert api("POST", f"{path}?overwrite=true", b"x" * 3_000_000).status == 200
    assert client.workspace.download(f"{home}/with space.bin").read() == b"x" * 3_000_000


def test_a_file_needs_its_folder(client: Any, home: str, api: Callable[..., Answer]) -> None:
    with pytest.raises(NotFound, match=r"parent folder \(.*/none\) does not exist"):
        client.workspace.upload(f"{home}/none/a", b"1", format=AUTO)
    answer = api("POST", f"/api/2.0/workspace-files/import-file{home}/none/a", b"1")
    assert (answer.status, answer.json["error_code"]) == (404, "RESOURCE_DOES_NOT_EXIST")
    client.workspace.mkdirs(f"{home}/none/deep")
    client.workspace.upload(f"{home}/none/a", b"1", format=AUTO)


def test_what_is_there_stays_unless_told_otherwise(client: Any, home: str) -> None:
    client.workspace.upload(f"{home}/a", b"1", format=AUTO)
    before = client.workspace.get_status(f"{home}/a")
    with pytest.raises(ResourceAlreadyExists, match="overwrite=true"):
        client.workspace.upload(f"{home}/a", b"2", format=AUTO)
    assert client.workspace.download(f"{home}/a").read() == b"1"
    client.workspace.upload(f"{home}/a", b"2", format=AUTO, overwrite=True)
    assert client.workspace.download(f"{home}/a").read() == b"2"
    after = client.workspace.get_status(f"{home}/a")
    assert (after.object_id, after.created_at) == (before.object_id, before.created_at)


def test_notebooks_lose_their_extension(client: Any, home: str) -> None:
    client.workspace.upload(f"{home}/note.py", NOTEBOOK, format=AUTO)
    client.workspace.upload(f"{home}/plain.py", b"print(1)\n", format=AUTO)
    client.workspace.upload(f"{home}/book.ipynb", b"{}", format=AUTO)
    found = {one.path: (one.object_type, one.language) for one in client.workspace.list(home)}
    assert found == {
        f"{home}/book": (ObjectType.NOTEBOOK, Language.PYTHON),
        f"{home}/note": (ObjectType.NOTEBOOK, Language.PYTHON),
        f"{home}/plain.py": (ObjectType.FILE, None),
    }
    assert client.workspace.download(f"{home}/note").read() == NOTEBOOK
    with pytest.raises(NotFound):
        client.workspace.get_status(f"{home}/note.py")
    with pytest.raises(DatabricksError, match=r"asked: FILE, actual: NOTEBOOK"):
        client.workspace.upload(f"{home}/note", b"x", format=AUTO, overwrite=True)


def test_source_is_the_default_format_and_asks_for_a_language(client: Any, home: str) -> None:
    client.workspace.upload(f"{home}/a.py", b"print(1)")
    assert client.workspace.get_status(f"{home}/a.py").object_type is ObjectType.NOTEBOOK
    with pytest.raises(DatabricksError, match=r"Perhaps you forgot .*AUTO"):
        client.workspace.upload(f"{home}/a.txt", b"hello")


def test_folders_are_listed_and_deleted_with_what_is_in_them(client: Any, home: str) -> None:
    client.workspace.mkdirs(f"{home}/a/b/c")
    client.workspace.mkdirs(f"{home}/a/b/c")
    client.workspace.upload(f"{home}/a/b/f", b"1", format=AUTO)
    names = [one.path for one in client.workspace.list(f"{home}/a", recursive=True)]
    assert names == [f"{home}/a/b/f"]
    with pytest.raises(BadRequest) as refused:
        client.workspace.delete(f"{home}/a")
    assert refused.value.error_code == "DIRECTORY_NOT_EMPTY"
    client.workspace.delete(f"{home}/a", recursive=True)
    with pytest.raises(NotFound, match="doesn't exist"):
        client.workspace.delete(f"{home}/a", recursive=True)
    with pytest.raises(NotFound):
        list(client.workspace.list(f"{home}/a"))


def test_what_comes_back_after_a_deletion_is_new(client: Any, home: str) -> None:
    ids = []
    for _ in range(2):
        client.workspace.mkdirs(f"{home}/a")
        client.workspace.upload(f"{home}/a/f", b"1", format=AUTO)
        ids.append(client.workspace.get_status(f"{home}/a/f").object_id)
        client.workspace.delete(f"{home}/a", recursive=True)
    assert ids[0] < ids[1]


def test_a_folder_cannot_be_where_a_file_is(client: Any, home: str) -> None:
    client.workspace.upload(f"{home}/f", b"1", format=AUTO)
    for path in (f"{home}/f", f"{home}/f/below"):
        with pytest.raises(ResourceAlreadyExists, match="not a folder"):
            client.workspace.mkdirs(path)


def test_imports_and_exports_have_a_limit(
    client: Any, api: Callable[..., Answer], home: str
) -> None:
    big = b"x" * (10 * 1024 * 1024 + 1)
    with pytest.raises(BadRequest, match=r"exceeded max size \(10485760 bytes\)"):
        client.workspace.import_(f"{home}/big", content=b64encode(big).decode(), format=AUTO)
    client.workspace.upload(f"{home}/big", big, format=AUTO)
    answer = api("POST", f"/api/2.0/workspace-files/import-file{home}/big?overwrite=true", big)
    assert answer.status == 200
    with pytest.raises(BadRequest, match=r"\(10485761 bytes\), exceeded max size") as refused:
        client.workspace.download(f"{home}/big")
    assert refused.value.error_code == "BAD_REQUEST"


@pytest.mark.parametrize("path", ["relative", "/Users/../../etc/passwd", f"/Shared/{'n' * 256}"])
def test_paths_that_are_none_are_refused(client: Any, path: str) -> None:
    with pytest.raises(InvalidParameterValue):
        client.workspace.mkdirs(path)


def test_what_a_node_writes_is_seen(client: Any, server: Any, home: str, token: str) -> None:
    file = server.tenants.of_token(token).tree("Workspace") / home.removeprefix("/") / "result.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"{}")
    first = client.workspace.get_status(f"{home}/result.json")
    assert client.workspace.get_status(f"{home}/result.json").object_id == first.object_id
    assert client.workspace.download(f"{home}/result.json").read() == b"{}"


@pytest.mark.expensive
def test_forms_have_a_limit_of_their_own(client: Any, home: str) -> None:
    client.workspace.upload(f"{home}/large", bytes(449_000_000), format=AUTO)
    assert client.workspace.get_status(f"{home}/large").size == 449_000_000
    with pytest.raises(BadRequest, match="exceeded max size"):
        client.workspace.upload(f"{home}/larger", bytes(450_000_001), format=AUTO)


def test_json_of_another_content_type_is_json(
    client: Any, api: Callable[..., Answer], home: str
) -> None:
    client.workspace.mkdirs(f"{home}/a/b")
    body = json.dumps({"path": f"{home}/a", "recursive": True}).encode()
    answer = api("POST", "/api/2.0/workspace/delete", body, **{"Content-Type": "text/json"})
    assert answer.status == 200
