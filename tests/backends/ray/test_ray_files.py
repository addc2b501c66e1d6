"""Files of the head node: what a failed upload leaves for the next one."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sgpu_decl.backends.ray.head import ray_files
from sgpu_decl.backends.ray.head.ray_files import RayFiles
from sgpu_decl.errors import BackendError
from tests.backends.ray.answers import Answers, answering
from tests.support import PATIENCE

FILE, PACKAGES = "/api/v0/logs/file", "/api/packages/gcs/*"
HEAD = {"node_id": "h", "is_head_node": True, "state": "ALIVE"}
ANSWER = {"v": 1, "root": "/there", "now": time.time(), "job": "depot"}


@pytest.fixture
def answers() -> Iterator[Answers]:
    """A head whose depot has done all that it is asked."""
    by_path = {
        "/api/v0/nodes": {"data": {"result": {"result": [HEAD]}}},
        "/api/jobs/depot": {"status": "RUNNING"},
        FILE: ANSWER,
        PACKAGES: {},
    }
    with answering(by_path) as running:
        yield running


@pytest.mark.parametrize(
    "failure",
    [{PACKAGES: (400, "no")}, {FILE: {**ANSWER, "error": {"code": "no_room", "message": "full"}}}],
    ids=["not taken", "refused"],
)
def test_pieces_that_fail_do_not_keep_later_files_waiting(
    answers: Answers, tmp_path: Path, failure: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_files, "_PIECE", ray_files._SMALL)
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(3 * ray_files._SMALL)
    errors: list[str] = []

    with closing(answers.dashboard()) as dashboard:
        files = RayFiles(dashboard)
        files.now()
        answers.by_path |= failure

        def put_twice_as_often_as_there_is_room() -> None:
            for _ in range(2 * ray_files._WINDOW):
                try:
                    files.put("/sgpu/objects/packs/a", large)
                except BackendError as error:
                    errors.append(error.code)

        thread = threading.Thread(target=put_twice_as_often_as_there_is_room, daemon=True)
        thread.start()
        thread.join(PATIENCE)

    assert len(errors) == 2 * ray_files._WINDOW
    assert len(set(errors)) == 1
