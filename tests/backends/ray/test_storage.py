"""What is deleted of an attempt whose driver has written its outcome, and has not exited yet."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.ray import ray_backend
from sgpu_decl.backends.ray.clusters import Clusters
from sgpu_decl.backends.ray.head.head_reader import ROOT
from sgpu_decl.backends.ray.head.packaged_files import FOLDER, PackagedFiles
from sgpu_decl.backends.ray.launching.ray_launches import RayLaunches
from sgpu_decl.backends.ray.ray_attempts import RayAttempts
from sgpu_decl.backends.ray.ray_backend import RayStorage
from sgpu_decl.backends.remote.staging.remote_gc import PendingGc
from sgpu_decl.backends.remote.staging.remote_layout import RemoteLayout, Uses
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from tests.backends.launches import launching_of
from tests.backends.ray.answers import FILE, HEAD, NAMES, NODES, Answers, answering

SPEC = {"entrypoint": "t.py:f", "gpus": 1, "type": "CPU", "backend": {"kind": "ray"}}
RECORD = launching_of(spec=json.dumps(SPEC)).record
LAUNCH = RemoteLayout(ROOT).launch(RECORD)
ENDED = {"state": "ended", "outcome": {"state": "succeeded", "exit_code": 0, "class": None}}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    """A cluster whose files all say that the attempt has succeeded, and that a folder is empty."""
    with answering({NODES: {"data": {"result": {"result": [HEAD]}}}}) as running:
        running.by_path |= {FILE: {**ENDED, "entries": {}}, NAMES: {"data": {"result": {}}}}
        running.by_path["/api/version"] = {"session_name": "one"}
        monkeypatch.setenv("RAY_ADDRESS", running.url)
        yield running


@pytest.fixture
def opened(answers: Answers, tmp_path: Path) -> Iterator[tuple[RayStorage, RayLaunches]]:
    layout = AttemptLayout(tmp_path / "state")
    with closing(Clusters()) as clusters:

        def head_area(url: str) -> StagingArea:
            files = PackagedFiles(clusters.at(url), tmp_path / "waiting")
            return StagingArea(RemoteLayout(ROOT), files, key={"address": url})

        def area_of(config: Any) -> StagingArea:
            return head_area(clusters.of(config).address.url)

        launches = RayLaunches(layout, area_of, head_area, clusters)
        launches.mark(RECORD, Uses(agent="a", code=None, environment=None), address=answers.url,
                      session="one")  # fmt: skip
        with closing(RayAttempts(launches, clusters)) as attempts:
            pending = PendingGc(tmp_path / "gc.json")
            yield (
                RayStorage(layout, attempts, pending, lambda key: head_area(key["address"])),
                launches,
            )


def has_job(answers: Answers, *statuses: str) -> None:
    """Have the job say one after the other, and the last one from then on."""
    left = list(statuses)

    def job() -> dict[str, Any]:
        status = left.pop(0) if len(left) > 1 else left[0]
        return {"status": status, "metadata": {FOLDER: LAUNCH}}

    answers.by_path[f"/api/jobs/{RECORD.token}"] = job


def test_what_was_freed_right_after_its_end_is_not_taken_for_a_launch_that_starts(
    answers: Answers, opened: tuple[RayStorage, RayLaunches]
) -> None:
    storage_of_ray, launches = opened
    has_job(answers, "RUNNING", "RUNNING", "SUCCEEDED")

    assert storage_of_ray.free(RECORD) > 0

    answers.by_path[FILE] = (500, "no such file")
    assert launches.marker(RECORD) is None


def test_a_driver_that_does_not_exit_keeps_what_its_attempt_left(
    answers: Answers, opened: tuple[RayStorage, RayLaunches], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_backend, "_EXIT", 0.0)
    storage_of_ray, launches = opened
    has_job(answers, "RUNNING")

    assert storage_of_ray.free(RECORD) == 0

    assert launches.was_started(RECORD)
