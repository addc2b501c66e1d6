"""Files of the head node whose dashboard does not give what is there."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.backends.ray.head.head_place import _WINDOW, SMALL, HeadPlace
from sgpu_decl.backends.remote.watching.output_download import fetch_output
from sgpu_decl.errors import BackendError
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.places.file_place import PlaceMissing
from tests.backends.ray.answers import FILE, HEAD, NAMES, NODES, Answers, answering
from tests.support import PATIENCE


@pytest.fixture
def answers() -> Iterator[Answers]:
    with answering({NODES: {"data": {"result": {"result": [HEAD]}}}}) as running:
        running.by_path[FILE] = (500, "the agent of this node does not answer")
        yield running


@pytest.fixture
def files(answers: Answers) -> HeadPlace:
    return HeadPlace(answers.dashboard())


def has(answers: Answers, *names: str) -> None:
    """The dashboard lists these names for whatever it is asked."""
    answers.by_path[NAMES] = {"data": {"result": {"internal": list(names)}}}


def test_a_file_that_is_there_and_cannot_be_read_is_not_taken_for_an_empty_one(
    answers: Answers, files: HeadPlace, tmp_path: Path
) -> None:
    has(answers, "sgpu/a/b")
    for ask in (files.get, files.list, lambda path: files.fetch(path, tmp_path / "here")):
        with pytest.raises(BackendError, match="cannot be read now") as raised:
            ask("/sgpu/a/b")
        assert raised.value.retryable


def test_a_file_that_is_not_there_is_missing(answers: Answers, files: HeadPlace) -> None:
    has(answers)
    with pytest.raises(PlaceMissing):
        files.get("/sgpu/a/b")
    assert files.list("/sgpu/a") == ()


def test_the_files_of_a_head_that_was_just_started_are_waited_for(
    answers: Answers, files: HeadPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers.by_path[NAMES] = (500, "Agent for node id: h doesn't exist.")
    reader = "sgpu_decl.backends.ray.head.head_reader"
    monkeypatch.setattr(f"{reader}.time.sleep", lambda _: has(answers, "sgpu/a/b"))
    assert files.names("/sgpu/a", "*") == ["/sgpu/a/b"]

    answers.by_path[NAMES] = (500, "Agent for node id: h doesn't exist.")
    monkeypatch.setattr(f"{reader}._AGENT", -1.0)
    with pytest.raises(BackendError, match="does not list its files") as raised:
        files.names("/sgpu/a", "*")
    assert raised.value.retryable


def test_the_head_is_looked_for_again_while_nothing_is_found_on_it(
    answers: Answers, files: HeadPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgpu_decl.backends.ray.head.head_reader._SELDOM", 0.0)
    assert files.find("/sgpu/a/b") is None
    new_head = {**HEAD, "node_id": "i"}
    answers.by_path[NODES] = {"data": {"result": {"result": [new_head]}}}

    assert files.find("/sgpu/a/b") is None

    asked = [query for query in answers.queries if query.startswith("node_id=")]
    assert [query.partition("&")[0] for query in asked] == ["node_id=h", "node_id=i"]


def test_one_look_for_the_head_is_enough_while_a_file_is_waited_for(
    answers: Answers, files: HeadPlace
) -> None:
    for _ in range(5):
        assert files.find("/sgpu/a/b") is None
    assert sum(request == f"GET {NODES}" for request, _ in answers.requests) == 1


def test_what_is_not_there_is_deleted_without_a_depot(answers: Answers, files: HeadPlace) -> None:
    has(answers)
    files.delete("/sgpu/a/b")
    assert {request.split()[0] for request, _ in answers.requests} == {"GET"}


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/tmp/out"])
def test_a_head_cannot_name_files_outside_of_the_folder_of_the_output(
    files: HeadPlace, tmp_path: Path, name: str
) -> None:
    report = {"files": {f"output/{name}": {"bytes": 1, "sha256": "0" * 64}}}
    with pytest.raises(BackendError, match="outside of the output"):
        fetch_output(files, {"/sgpu/back/0/node_0": report}, tmp_path / "here", Quiet())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("result", "named"),
    [
        ({"internal": None}, "`internal`"),
        ({"internal": [1]}, "`internal`"),
        ({"worker.out": {"a": 1}}, "`worker.out`"),
        ([], "`data.result`"),
        (None, "`data.result`"),
    ],
)
def test_names_that_are_none_are_no_answer_of_ray(
    answers: Answers, files: HeadPlace, result: Any, named: str
) -> None:
    answers.by_path[NAMES] = {"data": {"result": result}}
    with pytest.raises(BackendError, match=f"`{NAMES}` gives .*{named}") as raised:
        files.names("/sgpu/a", "*")
    assert raised.value.code == "not_ray_dashboard"


@pytest.mark.parametrize(
    ("index", "named"),
    [
        ({"v": 1}, "no `entries`"),
        ({"v": 1, "entries": {"b.txt": None}}, "no entry of `b.txt`"),
        ({"v": 1, "entries": {"b": {"size": "large", "modified": 1}}}, "a `size`"),
        ({"v": 1, "entries": {"b": {"size": 1, "modified": []}}}, "a `modified`"),
        ([1], "no `entries`"),
        ((200, "<html>log in</html>"), "no JSON: <html>"),
    ],
)
def test_an_index_that_is_none_is_no_answer_of_ray(
    answers: Answers, files: HeadPlace, index: Any, named: str
) -> None:
    answers.by_path[FILE] = index
    with pytest.raises(BackendError, match=f"`/sgpu/a/.*gives {named}") as raised:
        files.list("/sgpu/a")
    assert raised.value.code == "not_ray_dashboard"


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ({"v": 1, "job": "depot"}, "no `now`"),
        ({"v": 1, "job": ["depot"], "now": 1.0}, "a `job`"),
        ({"v": 1, "now": 1.0}, "no `job`"),
        ([1], "no `job`"),
        ((200, "<html>"), "no JSON"),
    ],
)
def test_an_answer_that_no_depot_gives_is_named(
    answers: Answers, files: HeadPlace, answer: Any, named: str
) -> None:
    answers.by_path |= {FILE: answer, "/api/jobs/depot": {"status": "RUNNING"}}
    answers.by_path["/api/packages/gcs/*"] = {}
    with pytest.raises(BackendError, match=f"gives {named}") as raised:
        files.now()
    assert raised.value.code == "not_ray_dashboard"


def test_a_refusal_of_the_depot_without_words_is_named_by_its_code(
    answers: Answers, files: HeadPlace
) -> None:
    answer = {"v": 1, "now": time.time(), "job": "depot"}
    answers.by_path |= {FILE: answer, "/api/jobs/depot": {"status": "RUNNING"}}
    answers.by_path["/api/packages/gcs/*"] = {}
    files.now()
    answers.by_path[FILE] = {**answer, "error": {"code": "remote_broken", "message": None}}
    with pytest.raises(BackendError, match="refuses a request: remote_broken"):
        files.put("/sgpu/a", b"x")


@pytest.mark.parametrize(("node", "starts"), [("h", 0), ("gone", 1), (None, 0)])
def test_a_depot_is_started_where_the_node_of_the_last_one_is_gone(
    answers: Answers, files: HeadPlace, node: str | None, starts: int
) -> None:
    answers.by_path[FILE] = {"v": 1, "now": time.time(), "job": "depot"}
    answers.by_path["/api/jobs/depot"] = {"status": "RUNNING", "driver_node_id": node}
    answers.by_path |= {"/api/packages/gcs/*": {}, "/api/jobs/": {"submission_id": "another"}}

    files.now()

    assert [request for request, _ in answers.requests].count("POST /api/jobs/") == starts


@pytest.mark.parametrize("failing", ["sent", "answered"])
def test_pieces_that_fail_do_not_keep_later_files_waiting(
    answers: Answers,
    files: HeadPlace,
    tmp_path: Path,
    failing: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sgpu_decl.backends.ray.head.head_place._PIECE", SMALL)
    answer = {"v": 1, "now": time.time(), "job": "depot"}
    answers.by_path |= {FILE: answer, "/api/jobs/depot": {"status": "RUNNING"}}
    answers.by_path["/api/packages/gcs/*"] = {}
    files.now()
    if failing == "sent":
        answers.by_path["/api/packages/gcs/*"] = (400, "no")
    else:
        answers.by_path[FILE] = {**answer, "error": {"code": "no_room", "message": "full"}}
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(3 * SMALL)
    errors: list[str] = []

    def put_twice_as_often_as_there_is_room() -> None:
        for _ in range(2 * _WINDOW):
            try:
                files.put("/sgpu/objects/packs/a", large)
            except BackendError as error:
                errors.append(error.code)

    thread = threading.Thread(target=put_twice_as_often_as_there_is_room, daemon=True)
    thread.start()
    thread.join(PATIENCE)

    assert len(errors) == 2 * _WINDOW
    assert len(set(errors)) == 1


def test_an_interrupt_does_not_wait_for_the_pieces_that_are_under_way(
    answers: Answers, files: HeadPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgpu_decl.backends.ray.head.head_place._PIECE", SMALL)
    answer = {"v": 1, "now": time.time(), "job": "depot"}
    answers.by_path |= {FILE: answer, "/api/jobs/depot": {"status": "RUNNING"}}
    answers.by_path["/api/packages/gcs/*"] = {}
    files.now()
    answers.by_path[FILE] = (500, "no answer yet")
    waits: list[float] = []

    def interrupted(seconds: float) -> None:
        waits.append(seconds)
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupting:
        interrupting.setattr("sgpu_decl.backends.ray.head.depot_client.time.sleep", interrupted)
        with pytest.raises(KeyboardInterrupt):
            files.put("/sgpu/objects/packs/a", bytes(3 * SMALL))
    assert len(waits) == 1

    answers.by_path[FILE] = answer
    files.put("/sgpu/objects/packs/a", bytes(3 * SMALL))  # and they have left their room
