"""MLflow runs that trackers on nodes leave open."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu_decl.agent.attempt.attempt_files import OPEN_RUNS
from sgpu_decl.agent.node.node_report import REPORT, seal
from sgpu_decl.agent.node.platform_attempts import PlatformAttempts
from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.remote.launching.remote_launches import RemoteLaunches
from sgpu_decl.backends.remote.watching.remote_attempts import note_open_run
from sgpu_decl.backends.remote.watching.remote_status import RemoteStatus
from sgpu_decl.model.attempt import AttemptState, FailureClass
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.launch import LaunchRecord
from tests.backends.remote.conftest import Shared

TRACKED = {"run_id": "r1", "tracking_uri": "http://server"}
Ended = Callable[..., Path]


@pytest.fixture
def ended(shared: Callable[..., Shared], tmp_path: Path) -> Ended:
    """Notes an attempt whose node 0 was lost, before or after its report; returns the folder of
    open runs."""
    here = shared()
    record: LaunchRecord = here.request("def main(): pass\n").record

    def note(*, in_the_way: bool = False, **report: bool) -> Path:
        home = tmp_path / "project" / ".sgpu"
        if in_the_way:
            home.mkdir(parents=True)
            (home / OPEN_RUNS).touch()  # in the way of the folder, also for root
        launches = RemoteLaunches(AttemptLayout(home / "state"), lambda _: here.area)
        target = PlatformAttempts(f"{launches.folder(record)}/back").claim()
        Path(target).mkdir(exist_ok=True)
        if report:
            (Path(target) / REPORT).write_bytes(seal(files={}, **report))
        status = RemoteStatus(
            view=AttemptView(
                ref=record.ref, backend="ray", state=AttemptState.FAILED,
                failure=FailureClass.NODE_LOST,
            ),
            brought=launches.results(record).newest(),
            tracked=TRACKED,
        )  # fmt: skip
        assert status.brought == 0
        note_open_run(launches, record, status)
        return home / OPEN_RUNS

    return note


def test_the_run_of_an_attempt_whose_first_node_was_lost_is_closed_later(ended: Ended) -> None:
    [entry] = ended().iterdir()

    assert json.loads(entry.read_text())["end"]["status"] == "FAILED"


def test_a_run_that_its_tracker_closed_is_not_closed_again(ended: Ended) -> None:
    assert not ended(open_run=False).exists()


def test_a_run_that_its_tracker_left_open_is_closed_later(ended: Ended) -> None:
    assert list(ended(open_run=True).iterdir())


def test_a_project_that_cannot_be_written_leaves_the_run_open(ended: Ended) -> None:
    assert ended(in_the_way=True).is_file()
