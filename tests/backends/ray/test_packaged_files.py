"""Files of launches that wait for the package of their job."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.backends.ray.head.head_place import SMALL
from sgpu_decl.backends.ray.head.packaged_files import FOLDER, PackagedFiles
from sgpu_decl.backends.remote.staging.lease import YOUNG
from sgpu_decl.backends.remote.staging.remote_layout import MARKER
from sgpu_decl.places.file_place import PlaceMissing
from tests.backends.ray.answers import FILE, HEAD, NAMES, NODES, Answers, answering

LAUNCH = "/sgpu/runs/lineage/train/1-token"
JOBS = "/api/jobs/"


@pytest.fixture
def answers() -> Iterator[Answers]:
    with answering({NODES: {"data": {"result": {"result": [HEAD]}}}}) as running:
        running.by_path |= {FILE: (500, "no such file"), NAMES: {"data": {"result": {}}}}
        yield running


@pytest.fixture
def files(answers: Answers, tmp_path: Path) -> PackagedFiles:
    made = PackagedFiles(answers.dashboard(), tmp_path / "waiting")
    made.make_folder(LAUNCH)
    made.put(f"{LAUNCH}/spec.json", b"{}")
    return made


def test_a_launch_folder_waits_here_and_outlives_the_process(
    answers: Answers, files: PackagedFiles, tmp_path: Path
) -> None:
    again = PackagedFiles(answers.dashboard(), tmp_path / "waiting")

    assert again.get(f"{LAUNCH}/spec.json") == b"{}"
    assert again.packaged(LAUNCH) == {"spec.json": b"{}"}
    assert answers.requests == []
    for path in (tmp_path / "waiting").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0


def test_what_was_deleted_or_sent_waits_no_longer(files: PackagedFiles) -> None:
    files.put(f"{LAUNCH}/staging", b"1")
    files.delete(f"{LAUNCH}/staging")
    assert files.packaged(LAUNCH) == {"spec.json": b"{}"}

    files.forget(LAUNCH)

    assert files.packaged(LAUNCH) == {}
    with pytest.raises(PlaceMissing):
        files.get(f"{LAUNCH}/spec.json")


def test_launches_do_not_see_the_files_of_each_other(files: PackagedFiles) -> None:
    files.make_folder(f"{LAUNCH}0")
    files.put(f"{LAUNCH}0/spec.json", b"[]")
    assert files.packaged(LAUNCH) == {"spec.json": b"{}"}
    files.delete(f"{LAUNCH}0")
    assert files.packaged(LAUNCH) == {"spec.json": b"{}"}


def test_a_file_that_a_killed_process_was_writing_is_no_file_of_the_launch(
    files: PackagedFiles, tmp_path: Path
) -> None:
    (here,) = (tmp_path / "waiting").iterdir()
    (here / ".new-0123456789ab").write_bytes(b"{")
    assert files.packaged(LAUNCH) == {"spec.json": b"{}"}


def test_what_waits_of_launches_that_were_given_up_is_deleted_after_a_day(
    files: PackagedFiles, tmp_path: Path
) -> None:
    staged, young = f"{LAUNCH}0", f"{LAUNCH}1"
    files.make_folder(staged)
    files.put(f"{staged}/{MARKER}", b"{}")
    for path in (tmp_path / "waiting").iterdir():
        os.utime(path, (time.time() - YOUNG - 60,) * 2)
    files.make_folder(young)
    files.put(f"{young}/spec.json", b"{}")

    files.sweep()

    assert files.packaged(LAUNCH) == {}
    assert files.packaged(staged) == {MARKER: b"{}"}
    assert files.packaged(young) == {"spec.json": b"{}"}


def test_content_goes_to_the_head_after_a_lease_of_each_launch_whose_files_stay_here(
    answers: Answers, files: PackagedFiles
) -> None:
    other = f"{LAUNCH}0"
    files.make_folder(other)
    files.put(f"{other}/spec.json", b"[]")
    answers.by_path[FILE] = {"v": 1, "now": time.time(), "job": "depot"}
    answers.by_path |= {"/api/jobs/depot": {"status": "RUNNING"}, "/api/packages/gcs/*": {}}

    files.put("/sgpu/objects/code/c0de.tar.gz", b"code")
    files.forget(other)
    files.put(f"{LAUNCH}/inputs.pkl", bytes(SMALL + 1))

    sent = [json.loads(body.partition(b"\n")[0]) for _, body in answers.bodies if body]
    assert [(item["do"], item.get("path")) for item in sent if item["do"] != "piece"] == [
        ("hello", None),
        ("folder", LAUNCH[6:]),
        ("put", f"{LAUNCH[6:]}/staging"),
        ("folder", other[6:]),
        ("put", f"{other[6:]}/staging"),
        ("put", "objects/code/c0de.tar.gz"),
        ("join", f"{LAUNCH[6:]}/inputs.pkl"),
    ]
    assert files.packaged(LAUNCH) == {"spec.json": b"{}"}


def test_a_job_is_under_way_whose_launch_folder_is_not_known(
    answers: Answers, files: PackagedFiles
) -> None:
    job = {"submission_id": "a", "status": "PENDING", "metadata": {FOLDER: LAUNCH}}
    others = [
        {"submission_id": "b", "status": "RUNNING", "metadata": None},
        {"submission_id": "c", "status": "RUNNING", "metadata": {}},
        {"submission_id": None, "status": "RUNNING", "metadata": None},
    ]
    for jobs, has_unseen_launch in (
        ([], False),
        (others, False),
        ([*others, job], True),
        ([{**job, "status": "STOPPED"}], False),
        ([{**job, "status": "RUNNING", "driver_info": {"id": "01000000"}}], True),
    ):
        answers.by_path[JOBS] = jobs
        assert files.has_unseen_launch([f"{LAUNCH}0"]) is has_unseen_launch
        assert not files.has_unseen_launch([LAUNCH])
