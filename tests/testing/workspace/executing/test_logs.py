"""Logs of attempts: complete, in order, in chunks, page by page."""

from pathlib import Path

import pytest

from sgpu_decl.testing.workspace.executing import logs
from tests.testing.workspace.executing.conftest import User

_MIB = 1 << 20
_MANY = 3000


@pytest.fixture
def log(tmp_path: Path) -> logs.Log:
    return logs.Log(tmp_path, tmp_path, 2)


def everything(folder: Path, **how: object) -> list[str]:
    found: list[str] = []
    start = None
    while True:
        page = logs.read_page(folder, folder, start=start, **how)  # type: ignore[arg-type]
        found += [record.text for record in page.records]
        if page.next is None:
            return found
        start = page.next


def test_lines_are_whole_however_they_come(tmp_path: Path, log: logs.Log) -> None:
    for part in (b"one\ntw", b"o", b"\n\nfo", b"ur"):
        log.add(0, part)
    log.end(0)
    log.close()
    assert everything(tmp_path) == ["one", "two", "", "four"]
    assert (tmp_path / "node_0/logs-0.chunk.txt").read_text() == "one\ntwo\n\nfour"


def test_nodes_are_merged_in_the_order_of_time(tmp_path: Path, log: logs.Log) -> None:
    for number in range(6):
        log.add(number % 2, f"{number}\n".encode())
    log.close()
    records = logs.read_page(tmp_path, tmp_path).records
    assert [one.number for one in records] == list(range(6))
    assert len({one.time_ns for one in records}) == 6
    assert everything(tmp_path, size=4) == list("012345")
    assert everything(tmp_path, size=4, ascending=False) == list("543210")
    assert everything(tmp_path, size=1, node=1) == list("135")
    assert everything(tmp_path, size=2, node=1, ascending=False) == list("531")


def test_a_page_ends_where_times_do(tmp_path: Path, log: logs.Log) -> None:
    for number in range(4):
        log.add(0, f"{number}\n".encode())
    log.close()
    times = [one.time_ns for one in logs.read_page(tmp_path, tmp_path).records]
    assert times == sorted(times)
    assert everything(tmp_path, since_ns=times[2], size=1)[-1] == "3"
    assert everything(tmp_path, until_ns=times[0]) == []
    assert everything(tmp_path, until_ns=times[-1] + 1) == list("0123")


def test_a_new_look_with_the_same_start_finds_what_came(tmp_path: Path, log: logs.Log) -> None:
    log.add(0, b"a\nb\n")
    page = logs.read_page(tmp_path, tmp_path, size=1)
    log.add(0, b"c\n")
    log.close()
    assert everything(tmp_path, size=9)[page.next or 0 :] == ["b", "c"]


def test_chunks_are_full_and_no_line_is_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: logs.Log
) -> None:
    monkeypatch.setattr(logs, "_CHUNK", 100)
    lines = [f"{number:030}" for number in range(40)]
    log.add(0, "".join(f"{line}\n" for line in lines).encode())
    log.close()
    chunks = sorted(tmp_path.glob("node_0/*"), key=lambda path: int(path.stem[5:].split(".")[0]))
    assert len(chunks) == 14
    assert all(chunk.stat().st_size <= 100 for chunk in chunks)
    assert "".join(chunk.read_text() for chunk in chunks).split() == lines
    assert everything(tmp_path, size=7) == lines


def test_a_line_without_an_end_does_not_wait_for_ever(tmp_path: Path, log: logs.Log) -> None:
    log.add(0, b"x" * (_MIB + 5))
    log.close()
    assert everything(tmp_path) == ["x" * _MIB, "x" * 5]


def test_a_long_line_is_cut_wherever_it_ends(tmp_path: Path) -> None:
    log = logs.Log(tmp_path, tmp_path, 1, longest=4)
    log.add(0, b"abcd\nabcdefghi\nx\n")
    log.close()
    assert everything(tmp_path) == ["abcd", "abcd", "efgh", "i", "x"]


def test_all_lines_of_all_nodes_come_back(user: User) -> None:
    script = f"for i in range({_MANY}): print(i, 'x' * 1500)"
    run_id = user.submit(f'python -c "{script}"\n', count=2)
    assert user.ended(run_id).state.result_state.value == "SUCCESS"
    expected = [f"{number} {'x' * 1500}" for number in range(_MANY)]
    assert user.lines(run_id, node=0, ascending="true") == expected
    assert user.lines(run_id, node=1, ascending="false", page_size=700) == expected[::-1]
    assert len(user.lines(run_id)) == 2 * _MANY
    first = int(user.page(run_id, page_size=1)["log_records"][0]["time_unix_nano"]) // 10**9
    assert user.lines(run_id, to=first) == []
    assert len(user.lines(run_id, **{"from": first})) == 2 * _MANY
    tracked = user.output(run_id).ai_runtime_task_output.mlflow_run_id
    files = user.client.experiments.list_artifacts(run_id=tracked, path="logs/attempt_0/node_1")
    sizes = {one.path.rpartition("/")[2]: one.file_size for one in files}
    assert sorted(sizes) == ["logs-0.chunk.txt", "logs-1.chunk.txt"]
    assert sum(sizes.values()) == sum(len(line) + 1 for line in expected)
    assert max(sizes.values()) <= 4_000_000
