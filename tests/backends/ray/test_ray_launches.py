"""Where launches without storage lie, and whether they were started."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.ray.clusters import Clusters
from sgpu_decl.backends.ray.head.head_reader import ROOT
from sgpu_decl.backends.ray.head.packaged_files import FOLDER, PackagedFiles
from sgpu_decl.backends.ray.launching.ray_launches import RayLaunches
from sgpu_decl.backends.remote.staging.remote_layout import MARKER, RemoteLayout, Uses
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from tests.backends.launches import launching_of
from tests.backends.ray.answers import FILE, HEAD, NAMES, NODES, Answers, answering

RECORD = launching_of(
    spec=json.dumps({"entrypoint": "t.py:f", "gpus": 1, "type": "CPU", "backend": {"kind": "ray"}})
).record
LAUNCH = RemoteLayout(ROOT).launch(RECORD)
USES = Uses(agent="a", code=None, environment=None)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    """A cluster without a file, which `RAY_ADDRESS` names."""
    with answering({NODES: {"data": {"result": {"result": [HEAD]}}}}) as running:
        running.by_path |= {FILE: (500, "no such file"), NAMES: {"data": {"result": {}}}}
        running.by_path["/api/version"] = {"session_name": "one"}
        monkeypatch.setenv("RAY_ADDRESS", running.url)
        yield running


@pytest.fixture
def launches(tmp_path: Path) -> Iterator[RayLaunches]:
    with closing(Clusters()) as clusters:

        def head_area(url: str) -> StagingArea:
            files = PackagedFiles(clusters.at(url), tmp_path / "waiting")
            return StagingArea(RemoteLayout(ROOT), files, key={"address": url})

        def area_of(config: Any) -> StagingArea:
            return head_area(clusters.of(config).address.url)

        yield RayLaunches(AttemptLayout(tmp_path / "state"), area_of, head_area, clusters)


def stage(launches: RayLaunches) -> None:
    launches.area(RECORD).files.make_folder(LAUNCH)
    launches.mark(RECORD, USES)


def waiting(launches: RayLaunches) -> dict[str, bytes]:
    files = launches.area(RECORD).files
    assert isinstance(files, PackagedFiles)
    return files.packaged(LAUNCH)


def has_job(answers: Answers, status: str, **fields: Any) -> None:
    job = {"status": status, "metadata": {FOLDER: LAUNCH}, **fields}
    answers.by_path[f"/api/jobs/{RECORD.token}"] = job


def test_a_launch_that_was_started_lies_where_its_job_is_after_the_address_has_changed(
    answers: Answers, launches: RayLaunches, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(launches)
    launches.mark(RECORD, USES, address=answers.url, session="one")
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:9")

    assert launches.area(RECORD).key == {"address": answers.url}
    assert not launches.shares_area(RECORD, launches.config(RECORD))


@pytest.mark.parametrize("facts", [{}, {"driver_info": {"id": "01000000"}}])
@pytest.mark.parametrize("staged", [True, False])
def test_a_job_that_goes_on_was_started_before_its_driver_has_written_the_marker(
    answers: Answers, launches: RayLaunches, staged: bool, facts: Mapping[str, Any]
) -> None:
    if staged:
        stage(launches)
    has_job(answers, "RUNNING", **facts)

    marker = launches.marker(RECORD)

    assert marker == {"token": RECORD.token, "address": answers.url, "session": "one"}
    assert launches.was_started(RECORD)


def test_the_marker_of_the_head_counts_for_more_than_one_that_waits(
    answers: Answers, launches: RayLaunches
) -> None:
    stage(launches)
    has_job(answers, "SUCCEEDED")
    written = {"token": RECORD.token, "uses": {}, "address": answers.url, "session": "one"}
    answers.by_path[FILE] = written

    assert launches.marker(RECORD) == written

    assert waiting(launches) == {}


def test_what_waits_is_deleted_that_a_process_left_when_it_died_after_the_start(
    answers: Answers, launches: RayLaunches
) -> None:
    stage(launches)
    started = {"token": RECORD.token, "address": answers.url, "session": "one"}
    launches.memory.remember(RECORD, marker=started)

    assert launches.marker(RECORD) == started

    assert waiting(launches) == {}


def test_a_launch_that_is_given_up_leaves_nothing_here_while_its_cluster_does_not_answer(
    answers: Answers, launches: RayLaunches
) -> None:
    stage(launches)
    assert waiting(launches).keys() == {MARKER}
    answers.by_path |= {FILE: (503, "soon"), NAMES: (503, "soon")}

    launches.unstage(RECORD)

    assert waiting(launches) == {}


def test_a_job_that_ended_without_a_launch_folder_leaves_what_waits(
    answers: Answers, launches: RayLaunches
) -> None:
    has_job(answers, "SUCCEEDED")
    assert launches.marker(RECORD) is None
    stage(launches)
    marker = launches.marker(RECORD)
    assert marker is not None
    assert marker.keys() == {"reports", "token", "uses"}
    assert launches.area(RECORD).files.get(f"{LAUNCH}/{MARKER}")
