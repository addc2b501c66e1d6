"""The launch folder on the head node, which the driver needs."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.backends.ray.cluster import driver, own_job
from sgpu_decl.backends.ray.cluster.driver import _unusable, main
from sgpu_decl.backends.ray.cluster.driver_status import DriverStatus
from sgpu_decl.backends.ray.cluster.head_folder import write_launch
from sgpu_decl.backends.ray.cluster.job_verdict import NO_STORAGE


@contextmanager
def another_user() -> Iterator[None]:
    """Only root, who may do everything, has to become somebody else."""
    before = os.getuid()
    if before == 0:
        os.setreuid(65534, 0)
    try:
        yield
    finally:
        if before == 0:
            os.setreuid(0, 0)


def packaged(folder: Path, **launch: Any) -> Path:
    """A folder with the package of a launch, as Ray unpacks it."""
    package = folder / "package"
    package.mkdir()
    (package / "agent.zip").touch()
    (package / "files").mkdir()
    (package / "files/spec.json").touch()
    known = {"token": "t", "launch": "runs/1", "back": "runs/1/back", "upstreams": []}
    (package / "launch.json").write_text(json.dumps({**known, **launch}))
    return package


def test_a_folder_of_another_user_is_refused_with_both_users(tmp_path: Path) -> None:
    launch = tmp_path / "launch"
    launch.mkdir()
    assert _unusable(str(launch)) is None
    launch.chmod(0o555)

    with another_user():
        reason = _unusable(str(launch))
        uid = os.getuid()

    assert reason is not None
    assert f"uid {os.stat(launch).st_uid}" in reason
    assert f"uid {uid}" in reason


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "is not on this node" in str(_unusable(str(tmp_path / "nothing")))


def test_a_cluster_that_the_driver_cannot_join_is_said_and_ends_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(**_: object) -> None:
        raise ConnectionError("no cluster answers")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    monkeypatch.setattr("ray.init", refuse)
    package = packaged(tmp_path, sent={})

    assert main(str(package)) == NO_STORAGE

    said = capfd.readouterr().err
    assert "it cannot join the cluster" in said
    assert "no cluster answers" in said
    assert list(package.iterdir()) == []


def test_a_driver_that_cannot_join_its_cluster_says_so_in_the_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise ConnectionError("no cluster answers")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ray.init", refuse)
    launch = tmp_path / "launch"
    launch.mkdir()

    assert main(str(packaged(tmp_path, launch=str(launch), sent=None))) == 70

    status = attempt_files.read_json(str(launch), attempt_files.STATUS)
    assert status is not None
    assert status["outcome"]["class"] == "platform"
    assert "no cluster answers" in status["outcome"]["first_cause"]["summary"]


@pytest.mark.parametrize("sent", [None, {"objects": "objects", "marker": "marker"}])
def test_a_driver_that_cannot_use_its_launch_folder_leaves_nothing_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: dict[str, str] | None
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    store = {b"gcs://t.values": b'{"secrets": {"WORD": "w"}}', b"gcs://t.cancel": b"{}"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ray.init", lambda **_: None)
    monkeypatch.setattr(own_job, "_internal_kv_get", store.get)
    monkeypatch.setattr(own_job, "_internal_kv_del", store.pop)
    # As on a head whose disk is full.
    monkeypatch.setattr(driver, "head_folder", lambda: str(tmp_path))
    monkeypatch.setattr(driver, "write_launch", full)

    assert main(str(packaged(tmp_path, sent=sent, secrets=True))) == NO_STORAGE

    assert store == {}


def test_the_marker_of_a_launch_is_not_there_before_its_other_files(tmp_path: Path) -> None:
    folder = tmp_path / "runs/1"
    files = {"marker": b"", "spec.json": b"{}", "nowhere/file": b""}
    with pytest.raises(FileNotFoundError):
        write_launch(str(tmp_path), str(folder), files, last="marker")
    assert (folder / "spec.json").exists()
    assert not (folder / "marker").exists()


def test_the_status_says_when_it_was_written(tmp_path: Path) -> None:
    status = DriverStatus(str(tmp_path))
    status.write(waiting_for="nodes")
    status.keep_alive()

    status.end({"state": "succeeded"})

    written = attempt_files.read_json(str(tmp_path), attempt_files.STATUS)
    assert written is not None
    assert written.pop("alive_at") <= attempt_files.stamp()
    assert written == {
        "v": 1, "state": "ended", "waiting_for": "nodes", "outcome": {"state": "succeeded"},
    }  # fmt: skip
