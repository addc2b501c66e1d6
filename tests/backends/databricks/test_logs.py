"""Logs: every page, node and attempt; and without the platform's log service."""

import os
from collections import Counter
from pathlib import Path
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgpu_decl.backends.databricks.watching import workspace_logs
from sgpu_decl.backends.databricks.watching.workspace_logs import Deduplicator
from sgpu_decl.backends.remote.watching.node_logs import NodeLine, line_of
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.rank_output import LogLines
from tests.backends.databricks.bench import DatabricksBench
from tests.cli.conftest import Shell
from tests.support import until

REF = AttemptRef(Address.run("hello"), 1)


@pytest.mark.parametrize(
    ("body", "rank", "stream", "text"),
    [
        ("[rank 3] x\n", 3, "stdout", "x"),
        ("[rank 12 err] y", 12, "stderr", "y"),
        ("[rank 0] ", 0, "stdout", ""),
        ("[rank 1] [rank 2] z", 1, "stdout", "[rank 2] z"),
        ("sgpu: on its way", None, "stderr", "sgpu: on its way"),
    ],
)
def test_which_rank_a_line_is_of(body: str, rank: int | None, stream: str, text: str) -> None:
    line = line_of(REF, NodeLine(1, 0, body))

    assert (line.rank, line.stream, line.text) == (rank, stream, text)


def test_equal_lines_of_one_moment_are_as_many_as_they_are() -> None:
    seen = Deduplicator()
    same = NodeLine(5, 0, "x")
    assert list(seen.new([same, same])) == [same, same]
    assert list(seen.new([same, same, same, NodeLine(6, 1, "x")])) == [same, NodeLine(6, 1, "x")]
    assert list(seen.new([NodeLine(6, 1, "x")])) == []


LINES = st.builds(NodeLine, st.integers(0, 5).map(lambda at: at * 7 * 10**9), st.integers(0, 1),
                  st.sampled_from("ab"))  # fmt: skip


@given(st.lists(st.tuples(LINES, st.integers(0, 3)), max_size=25), st.lists(st.integers(0, 5)))
def test_each_line_is_new_once_whenever_it_comes(
    arriving: list[tuple[NodeLine, int]], backs: list[int]
) -> None:
    """Each line is there from one question on. Questions go back to any time, the last to all."""
    seen = Deduplicator()
    shown: list[NodeLine] = []
    for number, back in enumerate([*backs[:5], 0]):
        there = [
            line for line, arrival in arriving if arrival <= number or number == len(backs[:5])
        ]
        there.sort(key=lambda line: line.time_ns)
        shown += seen.new([line for line in there if line.time_ns >= back * 7 * 10**9])
    assert Counter(shown) == Counter(line for line, _ in arriving)


ENTRY = Struct("<QIIII")
SECOND = 10**9


class Index:
    """What the log service of the emulated workspace has of the one attempt."""

    def __init__(self, bench: DatabricksBench) -> None:
        self._folder = bench.tenant.folder / "attempts"

    def await_lines(self, number: int) -> list[tuple[int, ...]]:
        """The entries, once there are so many."""
        until(lambda: list(self._folder.glob("*/lines.index")) and len(self.entries()) >= number)
        return self.entries()

    def entries(self) -> list[tuple[int, ...]]:
        return list(ENTRY.iter_unpack(self._file.read_bytes()))

    def put(self, entries: list[tuple[int, ...]]) -> None:
        self._file.write_bytes(b"".join(ENTRY.pack(*entry) for entry in entries))

    @property
    def _file(self) -> Path:
        (file,) = self._folder.glob("*/lines.index")
        return file


def prints_and_waits(bench: DatabricksBench, lines: int, last: str = "") -> Path:
    """Have each rank print numbers, wait for a file, and print its last line; that file."""
    go = bench.project.parent / "go"
    bench.code(
        "import os, time\n"
        "def main(n):\n"
        f"    for number in range({lines}):\n"
        "        print(number, flush=True)\n"
        f"    while not os.path.exists({str(go)!r}):\n"
        "        time.sleep(0.05)\n"
        f"    print({last!r}) if {last!r} else None\n"
    )
    return go


@pytest.mark.expensive
def test_lines_that_come_late_to_the_log_service_are_shown_once(bench: DatabricksBench) -> None:
    """The index of the emulated service gets some lines later than others that are newer: 20 s,
    31 s and 10 minutes. Another one comes after lines of the same moment."""
    go, index = prints_and_waits(bench, 40, "end"), Index(bench)
    run = bench.launch()
    entries = index.await_lines(80)
    newest = entries[-1][0]
    ages = [900 - 10 * at for at in range(80)]  # the oldest is 15 minutes old, the newest 110 s
    whole = [(newest - age * SECOND, *entry[1:]) for age, entry in zip(ages, entries, strict=True)]
    late = {10, 11, 40, len(whole) - 4, len(whole) - 3, len(whole) - 2}
    index.put([entry for at, entry in enumerate(whole) if at not in late])

    shown: list[tuple[int | None, str]] = []
    for item in run.session.runs.follow([run.ref], ranks=(0, 1)):
        if isinstance(item, LogLines):
            shown.append((item.rank, item.text))
        if len(shown) == len(whole) - len(late) and not go.exists():
            index.put(whole)
            go.touch()

    wanted = [(rank, str(number)) for rank in (0, 1) for number in range(40)]
    assert sorted(shown) == sorted([*wanted, (0, "end"), (1, "end")])


@pytest.mark.expensive
def test_lines_are_looked_for_far_back_now_and_then(
    bench: DatabricksBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace_logs, "_SOMETIMES", 0.0)
    go, index = prints_and_waits(bench, 2), Index(bench)
    run = bench.launch()
    found = index.await_lines(4)
    old = [(found[0][0] - 600 * SECOND, *found[0][1:]), *found[1:]]
    index.put(old[1:])

    shown = 0
    for item in run.session.runs.follow([run.ref], ranks=(0, 1)):
        shown += isinstance(item, LogLines)
        if shown == 3:
            index.put(old)
        if shown == 4:  # while the run goes on
            go.touch()
    assert shown == 4


def test_every_page_is_read(bench: DatabricksBench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.code("def main(n):\n    for i in range(25):\n        print(i)\n")
    monkeypatch.setattr(workspace_logs, "_PAGE", 7)

    assert bench.run().texts(1) == [str(i) for i in range(25)]


@pytest.mark.expensive
def test_lines_of_earlier_attempts_of_the_platform_are_shown(bench: DatabricksBench) -> None:
    bench.declare(more="retry: {max: 1}\n")
    bench.code("import time\ndef main(n):\n    print('up', flush=True)\n    time.sleep(2)\n")
    bench.hook("lose_node", node=0, after_lines=1)

    run = bench.run()

    assert run.status.state is AttemptState.SUCCEEDED
    assert run.texts(0, 1).count("up") >= 3


SERVICE = "GET */ai-training/workflows/by-run-id/*"
NO_SERVICE = {"error_code": "ENDPOINT_NOT_FOUND", "message": "No API found"}
NO_RUN = {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "There is no log of it"}
DISABLED = {"error_code": "FEATURE_DISABLED", "message": "not here"}


def test_chunks_are_read_where_the_log_service_has_nothing(bench: DatabricksBench) -> None:
    text = "10%\\r20%\\x0c30%\\u2028done"
    bench.code(f"def main(n):\n    print('{text}')\n    print('more')\n")
    run = bench.run()

    for status, body in ((404, NO_SERVICE), (404, NO_RUN), (200, {"log_records": []})):
        bench.fault(SERVICE, status_code=status, body=body, times=0)
        for follow in (False, True):
            read = run.texts(0, follow=follow)
            assert read == ["10%\r20%\x0c30%\u2028done", "more"], body
        bench.no_faults()


@pytest.mark.expensive
@pytest.mark.parametrize(
    ("more", "status", "body"),
    [
        ("mlflow: {artifact_location: /Volumes/main/default/files/runs}\n", 404, NO_SERVICE),
        ("", 403, DISABLED),
    ],
    ids=["as files of a volume", "where the workspace has no log service"],
)
def test_chunks_are_read(
    bench: DatabricksBench, more: str, status: int, body: dict[str, str]
) -> None:
    bench.declare(more=more)
    run = bench.run()
    bench.fault(SERVICE, status_code=status, body=body, times=0)

    assert set(run.texts(0)) == {"hello from 0", "and more"}


@pytest.mark.expensive
def test_logs_that_are_nowhere_are_no_empty_ones(bench: DatabricksBench) -> None:
    bench.run()
    bench.fault(SERVICE, status_code=404, body=NO_RUN, times=0)
    bench.fault("GET */mlflow/artifacts/list*", status_code=200, body={"files": []}, times=0)

    shell = Shell(bench.project, dict(os.environ))
    for options in ((), ("-f",), ("-o", "json")):
        said = shell.here("logs", "hello", *options)
        assert said.code == 1, said
        assert "has no log of `hello#1`" in said.out + said.err


@pytest.mark.expensive
def test_ranks_that_wrote_nothing_leave_empty_logs(bench: DatabricksBench) -> None:
    bench.code("def main(n):\n    pass\n")
    run = bench.run()

    assert list(run.session.runs.logs(run.ref, ranks=(0,), follow=False)) == []
