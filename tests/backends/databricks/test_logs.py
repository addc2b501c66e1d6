"""Logs: every page, node and attempt; and without the platform's log service."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu_decl.api import Session
from sgpu_decl.backends.databricks import logs
from sgpu_decl.backends.databricks.lines import Record, Seen, line_of
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.testing.workspace import Effect, Fault, WorkspaceServer

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
    line = line_of(REF, Record(1, 0, body))

    assert (line.rank, line.stream, line.text) == (rank, stream, text)


def test_equal_lines_of_one_moment_are_as_many_as_they_are() -> None:
    seen = Seen()
    same = Record(5, 0, "x")
    assert seen.new([same, same], 0) == [same, same]
    assert seen.new([same, same, same, Record(6, 1, "x")], 0) == [same, Record(6, 1, "x")]
    assert seen.new([Record(6, 1, "x")], 6) == []


def ended(opened: Session) -> AttemptRef:
    (ref,) = opened.apply(opened.plan()).launched
    opened.runs.wait([ref], timeout=120)
    opened.record_ended()
    return ref


def test_every_page_is_read(
    session: Callable[[], Session], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "train.py").write_text("def main(n):\n    for i in range(25):\n        print(i)\n")
    monkeypatch.setattr(logs, "_PAGE", 7)
    opened = session()
    ref = ended(opened)

    read = [it for it in opened.runs.logs(ref, ranks=(1,), follow=False) if it is not None]

    assert [it.text for it in read] == [str(i) for i in range(25)]


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

    read = [it for it in opened.runs.logs(ref, ranks=(0, 1), follow=False) if it is not None]

    assert opened.runs.status(ref).state is AttemptState.SUCCEEDED
    assert len([it for it in read if it.text == "up"]) >= 3


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

    read = [it for it in opened.runs.logs(ref, ranks=(0,), follow=False) if it is not None]

    assert {it.text for it in read} == {"hello from 0", "and more"}
