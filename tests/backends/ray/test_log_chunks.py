"""Logs of nodes in files of bounded size: written on the head, and read over its dashboard."""

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from sgpu_decl.backends.ray.cluster.log_copies import CHUNK, LogChunks
from sgpu_decl.backends.ray.head.head_place import HeadPlace
from sgpu_decl.backends.ray.ray_attempts import HeadLogs
from sgpu_decl.errors import BackendError
from tests.backends.ray.answers import FILE, HEAD, NAMES, NODES, Answers, answering

LOGS = "/sgpu/runs/1/logs"


def written(folder: Path) -> bytes:
    paths = sorted(folder.iterdir(), key=lambda path: int(path.stem))
    return b"".join(path.read_bytes() for path in paths)


def test_lines_are_whole_in_files_of_bounded_size(tmp_path: Path) -> None:
    chunks, lines = LogChunks(str(tmp_path)), b"0123456789\n" * (CHUNK // 4)

    chunks.write(lines)

    assert written(tmp_path) == lines
    for path in tmp_path.iterdir():
        assert path.stat().st_size <= CHUNK
        assert path.read_bytes().endswith(b"\n")


def test_a_line_that_is_longer_than_a_file_goes_on_in_the_next(tmp_path: Path) -> None:
    chunks = LogChunks(str(tmp_path))
    long = b"x" * (2 * CHUNK + 10) + b"\n"

    for lines in (b"one\n", long, b"two\n" + long + b"three\n"):
        chunks.write(lines)

    assert written(tmp_path) == b"one\n" + long + b"two\n" + long + b"three\n"
    assert max(path.stat().st_size for path in tmp_path.iterdir()) == CHUNK


def test_a_full_disk_costs_lines_and_the_log_says_so(tmp_path: Path) -> None:
    chunks = LogChunks(str(tmp_path))
    full = tmp_path / "0.log"
    for line in (b"one\n", b"two\n"):
        full.symlink_to("/dev/full")
        chunks.write(line)
        assert not os.path.lexists(full)

    chunks.write(b"three\n")
    chunks.write(b"four\n")

    note = b"sgpu: 8 bytes of this log are missing: the disk was full\n"
    assert written(tmp_path) == note + b"three\nfour\n"


@pytest.fixture
def answers() -> Iterator[Answers]:
    """A head with three files of the log of node 0."""
    with answering({NODES: {"data": {"result": {"result": [HEAD]}}}}) as running:
        names = [f"{LOGS[1:]}/0/0/{number}.log" for number in range(3)]
        running.by_path[NAMES] = {"data": {"result": {"internal": names}}}
        yield running


def has(answers: Answers, *contents: bytes | None) -> None:
    """The files have these contents; None if one cannot be read now."""

    def content() -> tuple[int, str]:
        query = parse_qs(answers.queries[-1])
        found = contents[int(query["filename"][0][-5])]
        return (500, "no such file") if found is None else (200, found.decode())

    answers.by_path[FILE] = content


def test_a_file_that_cannot_be_read_now_is_read_at_the_next_look(answers: Answers) -> None:
    logs = HeadLogs(HeadPlace(answers.dashboard()), LOGS)
    has(answers, b"a\nb\n", None, b"d\n")
    assert list(logs.new_lines(last=False)) == [(0, b"a\nb")]

    has(answers, b"a\nb\n", b"c\n", b"d\n")

    assert list(logs.new_lines(last=True)) == [(0, b"c"), (0, b"d")]


@pytest.mark.parametrize("contents", [(b"a\n", None, b"c\n"), (b"a\n", b"b\n", None)])
def test_a_log_that_lacks_a_file_at_its_end_is_not_taken_for_whole(
    answers: Answers, contents: tuple[bytes | None, ...]
) -> None:
    logs = HeadLogs(HeadPlace(answers.dashboard()), LOGS)
    has(answers, *contents)
    with pytest.raises(BackendError, match="cannot be read now"):
        list(logs.new_lines(last=True))


def test_a_line_in_several_files_is_read_once_it_is_whole(answers: Answers) -> None:
    logs = HeadLogs(HeadPlace(answers.dashboard()), LOGS)
    has(answers, b"a\nb", None, b"d")
    assert list(logs.new_lines(last=False)) == [(0, b"a")]
    has(answers, b"a\nb", b"c", b"d")
    assert list(logs.new_lines(last=False)) == []

    has(answers, b"a\nb", b"c", b"d\n\ne\n")

    assert list(logs.new_lines(last=True)) == [(0, b"bcd\n\ne")]
    assert list(logs.new_lines(last=True)) == []
