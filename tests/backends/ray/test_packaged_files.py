"""Files of launches that wait for the package of their job."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.backends.ray.head.packaged_files import FOLDER, PackagedFiles
from sgpu_decl.backends.remote.files import RemoteMissing
from tests.backends.ray.answers import Answers, answering

LAUNCH = "/sgpu/runs/lineage/train/1-token"
FILE, NAMES, NODES, JOBS = "/api/v0/logs/file", "/api/v0/logs", "/api/v0/nodes", "/api/jobs/"
HEAD = {"node_id": "h", "is_head_node": True, "state": "ALIVE"}


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
    with pytest.raises(RemoteMissing):
        files.get(f"{LAUNCH}/spec.json")


def test_launches_do_not_see_the_files_of_each_other(files: PackagedFiles) -> None:
    files.make_folder(f"{LAUNCH}0")
    files.put(f"{LAUNCH}0/spec.json", b"[]")
    assert files.packaged(LAUNCH) == {"spec.json": b"{}"}
    files.delete(f"{LAUNCH}0")
    assert files.packaged(LAUNCH) == {"spec.json": b"{}"}


def test_a_job_is_under_way_until_its_driver_has_written_the_folder(
    answers: Answers, files: PackagedFiles
) -> None:
    job = {"status": "PENDING", "metadata": {FOLDER: LAUNCH}}
    others = [{"status": "RUNNING", "metadata": None}, {"status": "RUNNING", "metadata": {}}]
    for jobs, under_way in (
        ([], False),
        (others, False),
        ([*others, job], True),
        ([{**job, "status": "STOPPED"}], False),
        ([{**job, "driver_info": {"id": "01000000"}}], False),
    ):
        answers.by_path[JOBS] = jobs
        assert files.under_way() is under_way

    answers.by_path |= {JOBS: [job], NAMES: {"data": {"result": {"internal": ["sgpu/x"]}}}}
    assert not files.under_way()
