"""Logs: every page, node and attempt; and without the platform's log service."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgpu_decl.api import Session
from sgpu_decl.backends.databricks.watching import workspace_logs
from sgpu_decl.backends.databricks.watching.workspace_logs import Deduplicator
from sgpu_decl.backends.remote.watching.node_logs import NodeLine, line_of
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.rank_output import LogLines
from sgpu_decl.testing.workspace import Effect, Fault, WorkspaceServer
from tests.cli.conftest import Shell
from tests.support import PATIENCE, until

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


@pytest.mark.expensive
def test_lines_that_come_late_to_the_log_service_are_shown_once(
    session: Callable[[], Session], project: Path, server: WorkspaceServer, token: str
) -> None:
    """The index of the emulated service gets some lines later than others that are newer: 20 s,
    31 s and 10 minutes. Another one comes after lines of the same moment."""
    go = project.parent / "go"
    (project / "train.py").write_text(
        "import os, time\n"
        "def main(n):\n"
        "    for number in range(40):\n"
        "        print(number, flush=True)\n"
        f"    while not os.path.exists({str(go)!r}):\n"
        "        time.sleep(0.05)\n"
        "    print('end')\n"
    )
    opened = session()
    (ref,) = opened.apply(opened.plan()).launched
    index = server.tenants.of_token(token).folder / "attempts"

    def entries() -> list[tuple[int, ...]]:
        (file,) = index.glob("*/lines.index")
        return list(Struct("<QIIII").iter_unpack(file.read_bytes()))

    def put(found: list[tuple[int, ...]]) -> None:
        (file,) = index.glob("*/lines.index")
        file.write_bytes(b"".join(Struct("<QIIII").pack(*entry) for entry in found))

    until(lambda: list(index.glob("*/lines.index")) and len(entries()) >= 80)
    second = 10**9
    newest = entries()[-1][0]
    ages = [900 - 10 * at for at in range(80)]  # the oldest is 15 minutes old, the newest 110 s
    whole = [
        (newest - age * second, *entry[1:]) for age, entry in zip(ages, entries(), strict=True)
    ]
    late = {10, 11, 40, len(whole) - 4, len(whole) - 3, len(whole) - 2}
    put([entry for at, entry in enumerate(whole) if at not in late])

    shown: list[tuple[int | None, str]] = []
    for item in opened.runs.follow([ref], ranks=(0, 1)):
        if isinstance(item, LogLines):
            shown.append((item.rank, item.text))
        if len(shown) == len(whole) - len(late) and not go.exists():
            put(whole)
            go.touch()

    wanted = [(rank, str(number)) for rank in (0, 1) for number in range(40)]
    assert sorted(shown) == sorted([*wanted, (0, "end"), (1, "end")])


@pytest.mark.expensive
def test_lines_are_looked_for_far_back_now_and_then(
    session: Callable[[], Session], project: Path, server: WorkspaceServer, token: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(workspace_logs, "_SOMETIMES", 0.0)
    go, index = project.parent / "go", server.tenants.of_token(token).folder / "attempts"
    (project / "train.py").write_text(
        "import os, time\n"
        "def main(n):\n"
        "    print('one', flush=True)\n"
        "    print('two', flush=True)\n"
        f"    while not os.path.exists({str(go)!r}):\n"
        "        time.sleep(0.05)\n"
    )
    opened = session()
    (ref,) = opened.apply(opened.plan()).launched
    until(lambda: [path for path in index.glob("*/lines.index") if path.stat().st_size >= 4 * 24])
    (file,) = index.glob("*/lines.index")
    found = list(Struct("<QIIII").iter_unpack(file.read_bytes()))
    old = [(found[0][0] - 600 * 10**9, *found[0][1:]), *found[1:]]
    file.write_bytes(b"".join(Struct("<QIIII").pack(*entry) for entry in old[1:]))

    shown = 0
    for item in opened.runs.follow([ref], ranks=(0, 1)):
        shown += isinstance(item, LogLines)
        if shown == 3:
            file.write_bytes(b"".join(Struct("<QIIII").pack(*entry) for entry in old))
        if shown == 4:  # while the run goes on
            go.touch()
    assert shown == 4


def ended(opened: Session) -> AttemptRef:
    (ref,) = opened.apply(opened.plan()).launched
    opened.runs.wait([ref], timeout=PATIENCE)
    opened.record_ended()
    return ref


def test_every_page_is_read(
    session: Callable[[], Session], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "train.py").write_text("def main(n):\n    for i in range(25):\n        print(i)\n")
    monkeypatch.setattr(workspace_logs, "_PAGE", 7)
    opened = session()
    ref = ended(opened)

    read = [log for log in opened.runs.logs(ref, ranks=(1,), follow=False) if log is not None]

    assert [item.text for item in read] == [str(i) for i in range(25)]


@pytest.mark.expensive
def test_lines_of_earlier_attempts_of_the_platform_are_shown(
    session: Callable[[], Session], project: Path, server: WorkspaceServer, token: str
) -> None:
    run = (project / "run.yaml").read_text()
    (project / "run.yaml").write_text(run + "retry: {max: 1}\n")
    (project / "train.py").write_text(
        "import time\ndef main(n):\n    print('up', flush=True)\n    time.sleep(2)\n"
    )
    server.faults.add(
        Fault(pattern="POST */runs/submit", effect=Effect.HOOK, hook="lose_node",
              arguments={"node": 0, "after_lines": 1}),
        tenant=server.tenants.of_token(token).key,
    )  # fmt: skip
    opened = session()
    ref = ended(opened)

    read = [log for log in opened.runs.logs(ref, ranks=(0, 1), follow=False) if log is not None]

    assert opened.runs.status(ref).state is AttemptState.SUCCEEDED
    assert len([item for item in read if item.text == "up"]) >= 3


NO_SERVICE = {"error_code": "ENDPOINT_NOT_FOUND", "message": "No API found"}
NO_RUN = {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "There is no log of it"}
NO_FILES: dict[str, Json] = {"files": []}


def answering(
    server: WorkspaceServer, token: str, path: str, status: int, body: dict[str, Any]
) -> None:
    server.faults.add(
        Fault(pattern=f"GET {path}", effect=Effect.STATUS, times=0, status_code=status, body=body),
        tenant=server.tenants.of_token(token).key,
    )


def test_chunks_are_read_where_the_log_service_has_nothing(
    session: Callable[[], Session], project: Path, server: WorkspaceServer, token: str
) -> None:
    text = "10%\\r20%\\x0c30%\\u2028done"
    (project / "train.py").write_text(f"def main(n):\n    print('{text}')\n    print('more')\n")
    opened = session()
    ref = ended(opened)

    for status, body in ((404, NO_SERVICE), (404, NO_RUN), (200, {"log_records": []})):
        answering(server, token, "*/ai-training/workflows/by-run-id/*", status, body)
        for follow in (False, True):
            read = [
                log for log in opened.runs.logs(ref, ranks=(0,), follow=follow) if log is not None
            ]
            assert [item.text for item in read] == ["10%\r20%\x0c30%\u2028done", "more"], body
        server.faults.clear(server.tenants.of_token(token).key)


@pytest.mark.expensive
def test_chunks_that_lie_in_a_volume_are_read_as_its_files(
    session: Callable[[], Session], project: Path, server: WorkspaceServer, token: str
) -> None:
    place = "mlflow: {artifact_location: /Volumes/main/default/files/runs}\n"
    (project / "run.yaml").write_text((project / "run.yaml").read_text() + place)
    opened = session()
    ref = ended(opened)
    answering(server, token, "*/ai-training/workflows/by-run-id/*", 404, NO_SERVICE)

    read = [log for log in opened.runs.logs(ref, ranks=(0,), follow=False) if log is not None]

    assert {item.text for item in read} == {"hello from 0", "and more"}


@pytest.mark.expensive
def test_logs_that_are_nowhere_are_no_empty_ones(
    session: Callable[[], Session], project: Path, server: WorkspaceServer, token: str
) -> None:
    opened = session()
    ended(opened)
    answering(server, token, "*/ai-training/workflows/by-run-id/*", 404, NO_RUN)
    answering(server, token, "*/mlflow/artifacts/list*", 200, NO_FILES)

    shell = Shell(project, dict(os.environ))
    for options in ((), ("-f",), ("-o", "json")):
        said = shell.here("logs", "hello", *options)
        assert said.code == 1, said
        assert "has no log of `hello#1`" in said.out + said.err


@pytest.mark.expensive
def test_ranks_that_wrote_nothing_leave_empty_logs(
    session: Callable[[], Session], project: Path
) -> None:
    (project / "train.py").write_text("def main(n):\n    pass\n")
    opened = session()
    ref = ended(opened)

    assert list(opened.runs.logs(ref, ranks=(0,), follow=False)) == []


@pytest.mark.expensive
def test_chunks_are_read_where_the_workspace_has_no_log_service(
    session: Callable[[], Session], server: WorkspaceServer, token: str
) -> None:
    opened = session()
    ref = ended(opened)
    server.faults.add(
        Fault(pattern="GET */ai-training/workflows/by-run-id/*", effect=Effect.STATUS, times=0,
              status_code=403, body={"error_code": "FEATURE_DISABLED", "message": "not here"}),
        tenant=server.tenants.of_token(token).key,
    )  # fmt: skip

    read = [log for log in opened.runs.logs(ref, ranks=(0,), follow=False) if log is not None]

    assert {item.text for item in read} == {"hello from 0", "and more"}
