"""Logs: every page, node and attempt; and without the platform's log service."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.api import Session
from sgpu_decl.backends.databricks.watching import logs
from sgpu_decl.backends.remote.log_lines import Deduplicator, NodeLine, line_of
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.jsonable import Json
from sgpu_decl.testing.workspace import Effect, Fault, WorkspaceServer
from tests.cli.conftest import Shell
from tests.support import PATIENCE

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
    assert seen.new([same, same], 0) == [same, same]
    assert seen.new([same, same, same, NodeLine(6, 1, "x")], 0) == [same, NodeLine(6, 1, "x")]
    assert seen.new([NodeLine(6, 1, "x")], 6) == []


def ended(opened: Session) -> AttemptRef:
    (ref,) = opened.apply(opened.plan()).launched
    opened.runs.wait([ref], timeout=PATIENCE)
    opened.record_ended()
    return ref


def test_every_page_is_read(
    session: Callable[[], Session], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "train.py").write_text("def main(n):\n    for i in range(25):\n        print(i)\n")
    monkeypatch.setattr(logs, "_PAGE", 7)
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
