"""What a machine whose `RAY_ADDRESS` names another cluster makes of a launch."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.ray.clusters import Clusters
from sgpu_decl.backends.ray.head.head_reader import ROOT
from sgpu_decl.backends.ray.head.packaged_files import FOLDER, PackagedFiles
from sgpu_decl.backends.ray.launching.ray_launches import RayLaunches
from sgpu_decl.backends.ray.ray_attempts import RayAttempts
from sgpu_decl.backends.remote.launching.remote_reference import RemoteReference
from sgpu_decl.backends.remote.staging.remote_layout import RemoteLayout
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.places.folder import FolderPlace
from tests.backends.launches import launching_of
from tests.backends.ray.answers import FILE, HEAD, NAMES, NODES, Answers, answering

GONE = "http://127.0.0.1:9"
NOBODY = {
    "/api/version": {"session_name": "one"},
    NODES: {"data": {"result": {"result": [HEAD]}}},
    NAMES: {"data": {"result": {}}},
    FILE: (500, "no such file"),
}

Open = Callable[..., tuple[RayLaunches, RayAttempts]]


def record_of(*, storage: Path | None = None, **place: str) -> LaunchRecord:
    """A launch with or without storage, whose reference names a place."""
    block = {"kind": "ray", **({"storage": str(storage)} if storage else {})}
    spec = {"entrypoint": "t.py:f", "gpus": 1, "type": "CPU", "backend": block}
    record = launching_of(spec=json.dumps(spec)).record
    folder = RemoteLayout(str(storage) if storage else ROOT).launch(record)
    reference = RemoteReference(folder=folder, facts={"session": "one", **place})
    return replace(record, reference=reference.text)


@pytest.fixture
def launched_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    """The cluster that a launch was submitted to; `RAY_ADDRESS` names another one."""
    with answering(NOBODY) as cluster, answering(NOBODY) as other:
        other.by_path["/api/version"] = {"session_name": "two"}
        monkeypatch.setenv("RAY_ADDRESS", other.url)
        yield cluster


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    with closing(Clusters()) as clusters:

        def head_area(url: str) -> StagingArea:
            files = PackagedFiles(clusters.at(url), tmp_path / "waiting")
            return StagingArea(RemoteLayout(ROOT), files, key={"address": url})

        def shared_area(_: Any) -> StagingArea:
            root = tmp_path / "storage"
            return StagingArea(RemoteLayout(str(root)), FolderPlace(root), key={})

        made = []

        def open_(*, shared_state: bool = True) -> tuple[RayLaunches, RayAttempts]:
            layout = AttemptLayout(tmp_path / "state")
            launches = RayLaunches(
                layout, shared_area, head_area, clusters, shared_state=lambda: shared_state
            )
            made.append(RayAttempts(launches, clusters))
            return launches, made[-1]

        yield open_
        for attempts in made:
            attempts.close()


def has_job(cluster: Answers, record: LaunchRecord, status: str) -> None:
    job = {"status": status, "metadata": {FOLDER: RemoteLayout(ROOT).launch(record)}}
    cluster.by_path[f"/api/jobs/{record.token}"] = job


def test_a_run_is_asked_at_the_address_that_the_state_names(
    launched_on: Answers, opened: Open
) -> None:
    record = record_of(address=launched_on.url)
    has_job(launched_on, record, "RUNNING")
    launches, attempts = opened()

    assert attempts.elsewhere(record) is None
    assert attempts.look([record])[record.ref].state.active
    assert not launches.shares_area(record, launches.config(record))


def test_a_run_that_its_own_cluster_does_not_have_is_lost(
    launched_on: Answers, opened: Open
) -> None:
    record = record_of(address=launched_on.url)
    _, attempts = opened()

    assert attempts.look([record]) == {}
    assert attempts.elsewhere(record) is None


def test_a_run_is_not_lost_because_its_cluster_cannot_be_reached_from_here(
    launched_on: Answers, opened: Open
) -> None:
    record = record_of(address=GONE)
    _, attempts = opened()

    assert attempts.look([record]) == {}
    elsewhere = attempts.elsewhere(record)
    assert elsewhere is not None
    assert f"the Ray cluster at {GONE}" in elsewhere.reason


@pytest.mark.parametrize("session", ["one", "another"])
def test_an_address_of_another_machine_is_no_address_of_this_one(
    launched_on: Answers, opened: Open, session: str
) -> None:
    record = record_of(address=launched_on.url, machine="gpu-1", session=session)
    has_job(launched_on, record, "RUNNING")
    _, attempts = opened()

    elsewhere = attempts.elsewhere(record)

    assert (elsewhere is None) == (session == "one")  # one cluster may be reached on both
    assert elsewhere is None or "an address of gpu-1" in elsewhere.reason


@pytest.mark.parametrize("status", ["RUNNING", "SUCCEEDED"])
def test_a_run_whose_storage_is_not_here_is_not_lost(
    launched_on: Answers, opened: Open, tmp_path: Path, status: str
) -> None:
    record = record_of(storage=tmp_path / "storage", address=launched_on.url)
    has_job(launched_on, record, status)
    _, attempts = opened()

    assert attempts.look([record]) == {}
    elsewhere = attempts.elsewhere(record)
    assert elsewhere is not None
    assert str(tmp_path / "storage") in elsewhere.reason


def test_a_launch_that_was_never_submitted_is_known_by_its_cluster(
    launched_on: Answers, opened: Open, tmp_path: Path
) -> None:
    record = record_of(storage=tmp_path / "storage", address=launched_on.url)
    _, attempts = opened()

    assert attempts.elsewhere(record) is None


@pytest.mark.parametrize("shared_state", [True, False])
def test_a_launch_that_is_begun_names_its_cluster(
    launched_on: Answers, opened: Open, shared_state: bool
) -> None:
    launches, _ = opened(shared_state=shared_state)
    begun = replace(record_of(), reference=None)

    place = json.loads(launches.reference(begun))

    assert place == {
        "address": os.environ["RAY_ADDRESS"],
        "session": "two",
        "folder": RemoteLayout(ROOT).launch(begun),
        **({"machine": os.uname().nodename} if shared_state else {}),
    }
