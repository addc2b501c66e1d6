"""Files that are replaced whole."""

import errno
import os
from pathlib import Path

import pytest

from sgpu_decl.atomic_files import write_atomic


def modes(folder: Path) -> dict[str, int]:
    return {
        os.path.relpath(path, folder): path.stat().st_mode & 0o777
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_file_is_replaced_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("a longer text")
    path.chmod(0o644)
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert modes(tmp_path) == {"file": 0o600}


def test_what_was_there_stays_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomic(path, b"new")
    assert caught.value.filename == os.fspath(path)
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["file"])
    write_atomic(path, b"cached", durable=False)
    assert path.read_bytes() == b"cached"
