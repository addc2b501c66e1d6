"""DBFS through the SDK: streams of blocks, and all else."""

import base64
import io
from typing import Any

import pytest
from databricks.sdk.errors import NotFound, PermissionDenied
from databricks.sdk.errors.base import DatabricksError
from databricks.sdk.errors.platform import ResourceAlreadyExists

MIB = 1024 * 1024


def test_files_travel_in_blocks(client: Any) -> None:
    content = bytes(range(256)) * 10_000
    client.dbfs.upload("/a/b.bin", io.BytesIO(content))
    with client.dbfs.open("/a/b.bin", read=True) as stream:
        assert stream.read() == content
    assert client.dbfs.get_status("/a/b.bin").file_size == len(content)


def test_a_stream_that_is_not_closed_is_not_seen(client: Any) -> None:
    handle = client.dbfs.create("/a.bin").handle
    client.dbfs.add_block(handle, base64.b64encode(b"one").decode())
    with pytest.raises(NotFound):
        client.dbfs.get_status("/a.bin")
    client.dbfs.add_block(handle, base64.b64encode(b"two").decode())
    client.dbfs.close(handle)
    assert base64.b64decode(client.dbfs.read("/a.bin", offset=2, length=2).data) == b"et"
    with pytest.raises(NotFound):
        client.dbfs.close(handle)


def test_small_files_are_put_at_once(client: Any) -> None:
    client.dbfs.put("/a.txt", contents="aGVsbG8=")
    with pytest.raises(ResourceAlreadyExists):
        client.dbfs.put("/a.txt", contents="")
    client.dbfs.put("/a.txt", contents="", overwrite=True)
    assert client.dbfs.get_status("/a.txt").file_size == 0


def test_folders_are_made_listed_moved_and_deleted(client: Any) -> None:
    client.dbfs.mkdirs("/a/b")
    client.dbfs.put("/a/f", contents="aGVsbG8=")
    found = [(one.path, one.is_dir, one.file_size) for one in client.dbfs.list("/a")]
    assert found == [("/a/b", True, 0), ("/a/f", False, 5)]
    assert client.dbfs.exists("/a/b")
    client.dbfs.move("/a", "/moved")
    assert [one.path for one in client.dbfs.list("/moved/f")] == ["/moved/f"]
    with pytest.raises(NotFound):
        client.dbfs.move("/a", "/b")
    with pytest.raises(DatabricksError) as refused:
        client.api_client.do("POST", "/api/2.0/dbfs/delete", body={"path": "/moved"})
    assert refused.value.error_code == "IO_ERROR"
    client.dbfs.delete("/moved", recursive=True)
    assert not client.dbfs.exists("/moved")


def test_blocks_and_reads_have_a_limit(client: Any) -> None:
    handle = client.dbfs.create("/a.bin").handle
    with pytest.raises(DatabricksError) as refused:
        client.dbfs.add_block(handle, base64.b64encode(b"x" * (MIB + 1)).decode())
    assert refused.value.error_code == "MAX_BLOCK_SIZE_EXCEEDED"
    client.dbfs.close(handle)
    with pytest.raises(DatabricksError) as refused:
        client.dbfs.read("/a.bin", length=MIB + 1)
    assert refused.value.error_code == "MAX_READ_SIZE_EXCEEDED"


def test_volumes_are_no_business_of_this_api(client: Any) -> None:
    with pytest.raises(PermissionDenied, match="No operations allowed"):
        client.api_client.do("GET", "/api/2.0/dbfs/list", query={"path": "dbfs:/Volumes/main/a/b"})
