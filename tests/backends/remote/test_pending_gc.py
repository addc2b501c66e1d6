"""Staging folders in which gc is due."""

from pathlib import Path

import pytest

from sgpu_decl.backends.remote.staging.remote_gc import PendingGc
from tests.mounts import fill, small_disk

A, B = {"path": "/Workspace/a"}, {"path": "/Workspace/b"}


def test_a_folder_is_remembered_before_the_project_has_a_state(tmp_path: Path) -> None:
    pending = PendingGc(tmp_path / ".sgpu" / "default" / "unfreed.json")
    pending.add(A)
    assert pending.all() == (A,)
    pending.remove(A)
    assert pending.all() == ()


@pytest.mark.parametrize("length", range(12))
def test_a_file_that_was_cut_short_stops_no_gc(tmp_path: Path, length: int) -> None:
    pending = PendingGc(tmp_path / "unfreed.json")
    pending.add(A)
    content = (tmp_path / "unfreed.json").read_bytes()
    (tmp_path / "unfreed.json").write_bytes(content[:length])
    assert pending.all() == ()
    pending.remove(A)
    pending.add(B)
    assert PendingGc(tmp_path / "unfreed.json").all() == (B,)


@pytest.mark.parametrize(
    "garbage",
    [b"7", b"null", b'"/a"', b'{"path": "/a"}', b'[5, null, ["/a"]]', b"\xff\x00", b"[" * 99_999],
)
def test_a_file_that_something_else_wrote_stops_no_gc(tmp_path: Path, garbage: bytes) -> None:
    (tmp_path / "unfreed.json").write_bytes(garbage)
    pending = PendingGc(tmp_path / "unfreed.json")
    assert pending.all() == ()
    pending.remove(A)
    pending.add(B)
    assert PendingGc(tmp_path / "unfreed.json").all() == (B,)


def test_processes_add_and_settle_side_by_side(tmp_path: Path) -> None:
    one, two = (PendingGc(tmp_path / "unfreed.json") for _ in range(2))
    one.add(A)
    two.add(B)
    one.remove(A)
    assert one.all() == two.all() == (B,)


def test_a_full_disk_keeps_nothing_from_being_deleted(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with small_disk(disk, 64 << 10):
        pending = PendingGc(disk / "unfreed.json")
        fill(disk / "filler")
        pending.add(A)
        assert pending.all() == (A,)
        pending.remove(A)
        assert pending.all() == ()
        (disk / "filler").unlink()
        pending.add(A)
        pending.add(B)
        fill(disk / "filler")
        pending.remove(A)  # nobody can write that, so gc looks there once more
        assert B in pending.all()
