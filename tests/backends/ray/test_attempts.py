"""How an attempt stands when a cluster does not answer, or another one does."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.node.node_report import REPORT, seal
from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.ray.clusters import Clusters
from sgpu_decl.backends.ray.head.head_reader import ROOT
from sgpu_decl.backends.ray.head.packaged_files import PackagedFiles
from sgpu_decl.backends.ray.launching.ray_launches import RayLaunches
from sgpu_decl.backends.ray.ray_attempts import RayAttempts
from sgpu_decl.backends.remote.launching.remote_launches import RemoteLaunches
from sgpu_decl.backends.remote.staging.remote_layout import RemoteLayout
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from sgpu_decl.errors import BackendError, NotFound
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.places.folder import FolderPlace
from tests.backends.launches import launching_of
from tests.backends.ray.answers import FILE, HEAD, NAMES, NODES, Answers, answering

SPEC = {"entrypoint": "t.py:f", "gpus": 1, "type": "CPU", "backend": {"kind": "ray"}}
RETRIED = launching_of(spec=json.dumps({**SPEC, "retry": {"max": 1, "on": ["infra"]}})).record
RECORD = launching_of(spec=json.dumps(SPEC)).record
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
    area = StagingArea(RemoteLayout(str(tmp_path)), FolderPlace(tmp_path), key={})
    launches = RemoteLaunches(AttemptLayout(tmp_path / "state"), lambda _: area)
    with closing(Clusters()) as clusters, closing(RayAttempts(launches, clusters)) as opened:
        yield opened


@contextmanager
def on_head(answers: Answers, folder: Path) -> Iterator[RayAttempts]:
    """Attempts of a cluster without storage; the one of `RECORD` was begun."""
    with closing(Clusters()) as clusters:
        files = PackagedFiles(clusters.at(answers.url), folder / "waiting")
        area = StagingArea(RemoteLayout(ROOT), files, key={})
        layout = AttemptLayout(folder / "state")
        launches = RayLaunches(layout, lambda _: area, lambda _: area, clusters)
        launches.memory.remember(RECORD, marker={"address": answers.url, "session": "one"})
        with closing(RayAttempts(launches, clusters)) as attempts:
            yield attempts


def write_status(folder: Path, status: Mapping[str, Any], *, age: float) -> None:
    launch = Path(RemoteLayout(str(folder)).launch(RECORD))
    launch.mkdir(parents=True, exist_ok=True)
    written = {**status, "alive_at": attempt_files.stamp(time.time() - age)}
    (launch / "status.json").write_text(json.dumps(written))


def looked(
    attempts: RayAttempts, answers: Answers, *, session: str = "one", record: LaunchRecord = RECORD
) -> AttemptView:
    marker = {"address": answers.url, "session": session}
    return attempts.status(record, marker).view


def bring_back(folder: Path, state: str, failure: str | None = None) -> None:
    """The agents end, and node 0 brings back its report."""
    node = Path(RemoteLayout(str(folder)).launch(RECORD)) / "back/0/node_0"
    node.mkdir(parents=True)
    code = 0 if state == "succeeded" else 1
    outcome = {"v": 1, "state": state, "exit_code": code, "class": failure, "restart": 0}
    (node / REPORT).write_bytes(seal(outcome=outcome, exit_code=code, files={}))


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


@pytest.mark.parametrize("session", ["one", "another"])
def test_a_status_that_is_seen_before_its_content_ends_nothing(
    attempts: RayAttempts, answers: Answers, tmp_path: Path, session: str
) -> None:
    write_status(tmp_path, RUNNING, age=1)
    (file,) = tmp_path.rglob("status.json")
    content = file.read_bytes()
    job = {"submission_id": RECORD.token, "status": "RUNNING"}
    if session == "one":
        answers.by_path[f"/api/jobs/{RECORD.token}"] = job

    for length in range(len(content)):
        for rest in (b"", bytes(len(content) - length)):
            file.write_bytes(content[:length] + rest)
            view = looked(attempts, answers, session=session)
            assert view.state == "starting"
            assert "status.json" in (view.unavailable or "")
    file.write_bytes(content)
    assert looked(attempts, answers, session=session).state == "running"
    file.write_bytes(content[:9])
    assert looked(attempts, answers, session=session).state == "running"


def test_a_driver_that_ends_while_its_cluster_does_not_answer_has_ended(
    attempts: RayAttempts, answers: Answers, tmp_path: Path
) -> None:
    write_status(tmp_path, RUNNING, age=1)

    def ending() -> tuple[int, str]:
        write_status(tmp_path, ENDED, age=0)
        return 503, "starting"

    answers.by_path[f"/api/jobs/{RECORD.token}"] = ending

    assert looked(attempts, answers).state == "succeeded"


STOPPED = {"status": "STOPPED", "end_time": 1}
KILLED = {"status": "FAILED", "driver_exit_code": -9, "end_time": 1}
SILENT = (503, "starting")


@pytest.mark.parametrize("answer", [STOPPED, KILLED, None, SILENT])
@pytest.mark.parametrize(("state", "failure"), [("succeeded", None), ("failed", "exception")])
def test_an_outcome_of_the_agents_counts_whatever_ray_says(
    attempts: RayAttempts, answers: Answers, tmp_path: Path, answer: Any, state: str, failure: Any
) -> None:
    write_status(tmp_path, RUNNING, age=9999)
    bring_back(tmp_path, state, failure)
    if answer is not None:
        answers.by_path[f"/api/jobs/{RECORD.token}"] = answer

    view = looked(attempts, answers)

    assert (view.state, view.failure, view.unavailable) == (state, failure, None)


@pytest.mark.parametrize(
    ("answer", "state"), [(STOPPED, "cancelled"), (KILLED, "lost"), (SILENT, "running")]
)
def test_an_outcome_that_a_retry_may_follow_does_not_count(
    attempts: RayAttempts, answers: Answers, tmp_path: Path, answer: Any, state: str
) -> None:
    write_status(tmp_path, RUNNING, age=9999)
    bring_back(tmp_path, "failed", "node_lost")
    answers.by_path[f"/api/jobs/{RECORD.token}"] = answer

    assert looked(attempts, answers, record=RETRIED).state == state
    assert looked(attempts, answers).failure == "node_lost"


def test_agents_that_stopped_without_their_driver_have_not_ended_a_run_of_a_silent_cluster(
    attempts: RayAttempts, answers: Answers, tmp_path: Path
) -> None:
    write_status(tmp_path, RUNNING, age=9999)
    bring_back(tmp_path, "cancelled")
    answers.by_path[f"/api/jobs/{RECORD.token}"] = SILENT

    view = looked(attempts, answers)

    assert (view.state, view.unavailable is not None) == ("running", True)


def test_an_attempt_that_ran_does_not_start_again_in_an_outage(
    answers: Answers, tmp_path: Path
) -> None:
    answers.by_path[NODES] = {"data": {"result": {"result": [HEAD]}}}
    answers.by_path[NAMES] = {"data": {"result": {"internal": ["sgpu/x"]}}}
    answers.by_path[FILE] = {**RUNNING, "alive_at": attempt_files.stamp()}
    job = {"submission_id": RECORD.token, "status": "RUNNING"}
    answers.by_path[f"/api/jobs/{RECORD.token}"] = job
    with on_head(answers, tmp_path) as attempts:
        assert looked(attempts, answers).state == "running"

    answers.by_path = dict.fromkeys(answers.by_path, SILENT)
    with on_head(answers, tmp_path) as attempts:  # another process, which never saw it run
        view = looked(attempts, answers)

    assert (view.state, view.unavailable is not None) == ("running", True)
    assert view.started_at is not None


def test_an_end_without_a_cluster_is_final_once_its_first_node_has_brought_back_all(
    attempts: RayAttempts, answers: Answers, tmp_path: Path
) -> None:
    marker = {"address": answers.url, "session": "one"}
    answers.by_path[f"/api/jobs/{RECORD.token}"] = SILENT
    assert not attempts.status(RECORD, marker).final

    bring_back(tmp_path, "succeeded")

    assert attempts.status(RECORD, marker).final


def test_an_end_that_is_known_does_not_depend_on_results_that_cannot_be_read_now(
    answers: Answers, tmp_path: Path
) -> None:
    answers.by_path[NODES] = {"data": {"result": {"result": [HEAD]}}}
    answers.by_path[NAMES] = {"data": {"result": {"internal": ["sgpu/x"]}}}
    contents: dict[str, Any] = {"status.json": ENDED}

    def content() -> Any:
        name = parse_qs(answers.queries[-1])["filename"][0].rpartition("/")[2]
        return contents.get(name, (500, "the agent of this node does not answer"))

    answers.by_path[FILE] = content
    with on_head(answers, tmp_path) as attempts:
        view = attempts.look([RECORD])[RECORD.ref]
        assert view.state == "succeeded"
        assert "cannot be read now" in (view.unavailable or "")

        # The head restarted: it has nothing any more, and another session.
        contents.clear()
        answers.by_path[NAMES] = {"data": {"result": {}}}
        view = attempts.look([RECORD])[RECORD.ref]
        assert (view.state, view.unavailable) == ("succeeded", None)
        with pytest.raises(NotFound, match="are gone") as gone:
            attempts.output(RECORD, Quiet())
        assert gone.value.code == "attempt_freed"


def test_a_job_that_was_stopped_before_its_driver_began_left_nothing_that_could_be_gone(
    answers: Answers, tmp_path: Path
) -> None:
    answers.by_path[NODES] = {"data": {"result": {"result": [HEAD]}}}
    answers.by_path[NAMES] = {"data": {"result": {}}}
    answers.by_path[f"/api/jobs/{RECORD.token}"] = STOPPED
    with on_head(answers, tmp_path) as attempts:
        assert attempts.look([RECORD])[RECORD.ref].state == "cancelled"
        lines, _ = attempts.log(RECORD, None, follow=False).read()
        assert list(lines) == []
        with pytest.raises(BackendError, match="nothing of") as nothing:
            attempts.output(RECORD, Quiet())
        assert nothing.value.code == "nothing_yet"
