"""The records of attempts on their host: which of them stay after a crash, and for how long."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sgpu_decl.agent.attempt.attempt_files import encode
from sgpu_decl.agent.attempt.host_record import (
    abandoned_records,
    delete_useless_records,
    record_path,
)
from sgpu_decl.agent.system import host_locks


@pytest.fixture(autouse=True)
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "host").mkdir()
    monkeypatch.setattr(host_locks, "_SHARED", str(tmp_path / "host"))


def abandoned(run_dir: Path, token: str) -> str:
    """The record of an attempt whose guardian and supervisor were killed."""
    path = record_path(str(run_dir))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Path(path).write_bytes(encode({"run_dir": str(run_dir), "token": token}) + b"\n")
    return path


def test_a_record_is_deleted_when_its_attempt_was_deleted_and_left_no_process(
    tmp_path: Path,
) -> None:
    present, deleted = tmp_path / "runs" / "train" / "1", tmp_path / "runs" / "train" / "2"
    present.mkdir(parents=True)
    stays, goes = abandoned(present, "one"), abandoned(deleted, "two")
    assert set(abandoned_records()) == {stays, goes}

    delete_useless_records()

    assert abandoned_records() == [stays]


def test_a_record_stays_while_a_process_of_its_attempt_lives(tmp_path: Path) -> None:
    record = abandoned(tmp_path / "runs" / "train" / "1", "three")
    orphan = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        env={**os.environ, "SGPU_COOKIE": "three"},
    )
    try:
        delete_useless_records()
        assert abandoned_records() == [record]
    finally:
        orphan.communicate()

    delete_useless_records()

    assert abandoned_records() == []
    assert not os.path.exists(os.path.dirname(record))
