"""The truth about an attempt from its folder alone, in every order in which things can break."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.attempt.attempt_status import clear_remains, read_attempt, request_cancel
from sgpu_decl.agent.system.locks import create_held, held
from sgpu_decl.agent.system.processes import boot_id, machine_id
from tests.agent.event_log import read_events

RANK = {"rank": 0, "node_rank": 0, "state": "running", "exit_code": None, "signal": None}


def leave(folder: Path, *, boot: str, ranks: list[dict[str, Any]]) -> None:
    """Leave a folder as a supervisor that died would: files, and locks that nobody holds."""
    (folder / "spec.json").write_text("{}")
    for name in ("guardian.lock", "supervisor.lock"):
        os.close(create_held(str(folder / name)))
    identity = {"machine": machine_id(), "boot": boot, "pid": 1, "start_time": 1, "token": "none"}
    (folder / "identity.json").write_text(json.dumps(identity))
    status = {"state": "running", "started_at": "2026-01-01T00:00:00.000Z", "ranks": ranks}
    (folder / "status.json").write_text(json.dumps(status))


def test_a_folder_that_was_never_launched_is_staging(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text("{}")
    assert read_attempt(tmp_path)["state"] == "staging"


def test_after_a_reboot_the_attempt_is_lost_with_its_node(tmp_path: Path) -> None:
    leave(tmp_path, boot="another", ranks=[RANK])
    status = read_attempt(tmp_path)
    assert (status["state"], status["class"]) == ("lost", "node_lost")
    assert status["ranks"][0]["state"] == "lost"


def test_on_the_same_boot_the_supervisor_was_lost(tmp_path: Path) -> None:
    leave(tmp_path, boot=boot_id(), ranks=[RANK])
    assert read_attempt(tmp_path)["class"] == "supervisor_lost"
    assert clear_remains(tmp_path) == 0


def test_a_lost_attempt_ended_when_something_of_it_was_seen_last(tmp_path: Path) -> None:
    leave(tmp_path, boot=boot_id(), ranks=[RANK])
    log = tmp_path / "ranks/0/0/stdout.log"
    log.parent.mkdir(parents=True)
    log.write_text("step 7")
    for path, then in ((tmp_path / "status.json", 1_767_000_000), (log, 1_767_000_060)):
        os.utime(path, (then, then))
    assert read_attempt(tmp_path)["ended_at"] == "2025-12-29T09:21:00.000Z"


def test_it_succeeded_if_every_rank_had_ended_well(tmp_path: Path) -> None:
    leave(tmp_path, boot="another", ranks=[{**RANK, "state": "succeeded", "exit_code": 0}])
    assert read_attempt(tmp_path)["state"] == "succeeded"


def test_only_the_guardian_alive_means_stopping(tmp_path: Path) -> None:
    leave(tmp_path, boot=boot_id(), ranks=[RANK])
    with (tmp_path / "guardian.lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert read_attempt(tmp_path)["state"] == "stopping"


def test_a_held_lock_means_what_the_snapshot_says(tmp_path: Path) -> None:
    leave(tmp_path, boot=boot_id(), ranks=[RANK])
    with (tmp_path / "supervisor.lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert read_attempt(tmp_path)["state"] == "running"
        (tmp_path / "status.json").write_text('{"state": "run')
        assert read_attempt(tmp_path)["state"] == "starting"


def test_locks_of_another_machine_are_not_judged(tmp_path: Path) -> None:
    leave(tmp_path, boot="another", ranks=[RANK])
    identity = json.loads((tmp_path / "identity.json").read_text())
    (tmp_path / "identity.json").write_text(json.dumps({**identity, "machine": "elsewhere"}))
    assert read_attempt(tmp_path)["state"] == "running"


def test_the_first_outcome_stays(tmp_path: Path) -> None:
    assert attempt_files.write_once(str(tmp_path), "outcome.json", b'{"state": "succeeded"}')
    assert not attempt_files.write_once(str(tmp_path), "outcome.json", b'{"state": "lost"}')
    assert read_attempt(tmp_path)["state"] == "succeeded"
    assert os.listdir(tmp_path) == ["outcome.json"]
    request_cancel(tmp_path)
    assert os.listdir(tmp_path) == ["outcome.json"]


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_object_reads_as_none(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "status.json").write_bytes(damage)
    assert attempt_files.read_json(str(tmp_path), "status.json") is None


def test_an_event_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    log = attempt_files.EventLog(str(tmp_path))
    log.append("state", durable=True, state="running")
    log.sync()
    log.append("odd", text="a\nb\u2028c\udcff")
    events = read_events(tmp_path)
    assert [event["seq"] for event in events] == [1, 2]
    assert events[1]["text"] == "a\nb\u2028c?"


def test_a_lock_file_is_held_from_its_first_moment(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    assert held(path) is None
    descriptor = create_held(path)
    assert held(path) is True
    with pytest.raises(FileExistsError):
        create_held(path)
    os.close(descriptor)
    assert held(path) is False
    assert os.listdir(tmp_path) == ["lock"]
