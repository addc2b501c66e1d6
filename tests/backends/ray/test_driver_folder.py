"""The launch folder on the head node, which the driver needs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sgpu_decl.agent import attempt_files
from sgpu_decl.backends.ray.cluster.driver_status import DriverStatus


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


def test_a_folder_of_another_user_is_refused_with_both_users(tmp_path: Path) -> None:
    from sgpu_decl.backends.ray.cluster.driver import _unusable

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
    from sgpu_decl.backends.ray.cluster.driver import _unusable

    assert "is not on this node" in str(_unusable(str(tmp_path / "nothing")))


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
