"""How an attempt stands when a cluster does not answer, or another one does."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent import attempt_files
from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.ray.clusters import Clusters
from sgpu_decl.backends.ray.watching.attempts import RayAttempts
from sgpu_decl.backends.remote.folder_files import FolderFiles
from sgpu_decl.backends.remote.launches import RemoteLaunches
from sgpu_decl.backends.remote.remote_layout import RemoteLayout
from sgpu_decl.backends.remote.staging_area import StagingArea
from sgpu_decl.model.attempt_view import AttemptView
from tests.backends.launches import launching_of
from tests.backends.ray.answers import Answers, answering

RECORD = launching_of(
    spec=json.dumps({"entrypoint": "t.py:f", "gpus": 1, "type": "CPU", "backend": {"kind": "ray"}})
).record
RUNNING = {"v": 1, "state": "running", "started_at": "2026-11-23T08:00:00.000Z"}
ENDED = {
    **RUNNING,
    "state": "ended",
    "outcome": {"state": "succeeded", "exit_code": 0, "class": None},
}


@pytest.fixture
def answers() -> Iterator[Answers]:
    with answering({"/api/version": {"session_name": "one"}}) as running:
        yield running


@pytest.fixture
def attempts(tmp_path: Path) -> Iterator[RayAttempts]:
    area = StagingArea(RemoteLayout(str(tmp_path)), FolderFiles(tmp_path), key={})
    launches = RemoteLaunches(AttemptLayout(tmp_path / "state"), lambda _: area)
    with closing(Clusters()) as clusters, closing(RayAttempts(launches, clusters)) as opened:
        yield opened


def write_status(folder: Path, status: Mapping[str, Any], *, age: float) -> None:
    launch = Path(RemoteLayout(str(folder)).launch(RECORD))
    launch.mkdir(parents=True, exist_ok=True)
    written = {**status, "alive_at": attempt_files.stamp(time.time() - age)}
    (launch / "status.json").write_text(json.dumps(written))


def looked(attempts: RayAttempts, answers: Answers, *, session: str = "one") -> AttemptView:
    marker = {"address": answers.url, "session": session}
    return attempts.status(RECORD, marker).view


def test_a_job_that_its_own_cluster_does_not_have_is_lost(
    attempts: RayAttempts, answers: Answers, tmp_path: Path
) -> None:
    write_status(tmp_path, RUNNING, age=1)

    view = looked(attempts, answers)

    assert (view.state, view.failure, view.unavailable) == ("lost", "supervisor_lost", None)


@pytest.mark.parametrize(("age", "state"), [(1, "running"), (100, "running"), (130, "lost")])
def test_another_session_says_nothing_of_a_run_whose_driver_lives(
    attempts: RayAttempts, answers: Answers, tmp_path: Path, age: float, state: str
) -> None:
    write_status(tmp_path, RUNNING, age=age)

    view = looked(attempts, answers, session="another")

    assert view.state == state
    assert ("another session of Ray" in (view.unavailable or "")) == (state == "running")


def test_a_driver_that_ends_while_its_cluster_does_not_answer_has_ended(
    attempts: RayAttempts, answers: Answers, tmp_path: Path
) -> None:
    write_status(tmp_path, RUNNING, age=1)

    def ending() -> tuple[int, str]:
        write_status(tmp_path, ENDED, age=0)
        return 503, "starting"

    answers.by_path[f"/api/jobs/{RECORD.token}"] = ending

    assert looked(attempts, answers).state == "succeeded"
