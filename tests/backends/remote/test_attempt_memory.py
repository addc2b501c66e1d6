"""What this machine remembers of attempts."""

import threading
from dataclasses import replace
from pathlib import Path

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.remote.launching.remote_launches import AttemptMemory
from tests.backends.launches import launching_of

RECORD = launching_of().record
FILE = "launch.json"


def memory(folder: Path) -> AttemptMemory:
    return AttemptMemory(AttemptLayout(folder), FILE)


def test_facts_are_there_for_the_next_command(tmp_path: Path) -> None:
    memory(tmp_path).remember(RECORD, seen=True)

    assert memory(tmp_path).get(RECORD)["seen"] is True


def test_facts_of_another_launch_do_not_count(tmp_path: Path) -> None:
    memory(tmp_path).remember(RECORD, seen=True)

    assert memory(tmp_path).get(replace(RECORD, token="other")) == {}


def test_facts_of_another_process_are_kept(tmp_path: Path) -> None:
    first, second = memory(tmp_path), memory(tmp_path)
    first.remember(RECORD, seen=True)
    assert second.get(RECORD)["seen"]
    first.remember(RECORD, ended={"state": "succeeded"})
    second.remember(RECORD, other=1)

    assert memory(tmp_path).get(RECORD).keys() >= {"seen", "ended", "other"}


def test_a_damaged_file_is_as_good_as_none(tmp_path: Path) -> None:
    memory(tmp_path).remember(RECORD, seen=True)
    (AttemptLayout(tmp_path).attempt(RECORD.ref) / FILE).write_bytes(b'{"v": 1, "tok')

    assert memory(tmp_path).get(RECORD) == {}


def test_a_folder_that_cannot_be_written_costs_the_next_command_a_question(tmp_path: Path) -> None:
    (tmp_path / "file").touch()  # in the way of the folder, also for root
    project = tmp_path / "file"
    noting = memory(project)
    noting.remember(RECORD, seen=True)
    noting.remember(RECORD, other=1)

    assert noting.get(RECORD).keys() >= {"seen", "other"}
    assert memory(project).get(RECORD) == {}


def test_no_fact_is_lost_that_several_threads_note_at_once(tmp_path: Path) -> None:
    shared = memory(tmp_path)
    begin = threading.Barrier(8)

    def note(number: int) -> None:
        begin.wait()
        for item in range(10):
            shared.remember(RECORD, **{f"{number}-{item}": True})

    threads = [threading.Thread(target=note, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    facts = {f"{number}-{item}" for number in range(8) for item in range(10)}
    assert facts <= shared.get(RECORD).keys()
    assert facts <= memory(tmp_path).get(RECORD).keys()
