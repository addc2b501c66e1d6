"""What ranks leave in SGPU_OUTPUT_DIR, brought here from the nodes."""

import hashlib
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.node.node_report import REPORT, read_report, seal
from sgpu_decl.api import Session
from sgpu_decl.errors import BackendError, NotFound
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.jsonable import Json
from sgpu_decl.testing.workspace import Effect, Fault, WorkspaceServer
from tests.support import PATIENCE

CODE = """\
import os, pathlib
def main(n):
    rank, folder = os.environ["RANK"], pathlib.Path(os.environ["SGPU_OUTPUT_DIR"])
    (folder / "shards").mkdir()
    (folder / "shards" / f"{rank}.bin").write_bytes(b"x" * 100_000)
    (folder / "log.txt").write_text(rank)
    if rank == "1":
        (folder / "shards" / "large.bin").write_bytes(bytes(range(250)) * 70_000)
"""
LARGE = bytes(range(250)) * 70_000  # three parts


@pytest.fixture
def ended(session: Callable[[], Session], project: Path) -> Session:
    (project / "train.py").write_text(CODE)
    opened = session()
    (ref,) = opened.apply(opened.plan()).launched
    with pytest.raises(BackendError) as early:
        opened.runs.output(ref)
    assert early.value.code == "nothing_yet"
    opened.runs.wait([ref], timeout=PATIENCE)
    return opened


@pytest.fixture
def ended_with(session: Callable[[], Session], project: Path) -> Callable[[str], AttemptRef]:
    """Run a `train.py` to its end."""

    def run(code: str) -> AttemptRef:
        (project / "train.py").write_text(code)
        opened = session()
        (ref,) = opened.apply(opened.plan()).launched
        opened.runs.wait([ref], timeout=PATIENCE)
        assert opened.runs.status(ref).state is AttemptState.SUCCEEDED
        return ref

    return run


class Told:
    def __init__(self) -> None:
        self.steps: list[tuple[str, int, int]] = []

    def advance(self, phase: str, done: int, total: int) -> None:
        self.steps.append((phase, done, total))


def test_files_of_all_nodes_come_into_one_folder_once(
    ended: Session, server: WorkspaceServer, token: str
) -> None:
    (ref,) = ended.runs.find("hello")
    told = Told()

    kept = ended.runs.output(ref, told)

    names = {
        path.relative_to(kept.folder).as_posix()
        for path in kept.folder.rglob("*")
        if path.is_file()
    }
    assert names == {
        "shards/0.bin",
        "shards/1.bin",
        "shards/large.bin",
        "log.txt",
        "node_1/log.txt",
    }
    assert [(kept.folder / item).read_text() for item in ("log.txt", "node_1/log.txt")] == [
        "0",
        "1",
    ]
    assert (kept.folder / "shards/1.bin").read_bytes() == b"x" * 100_000
    assert (kept.folder / "shards/large.bin").read_bytes() == LARGE
    assert (kept.files, kept.bytes, kept.lacking) == (5, 17_700_002, ())
    done = [step for _, step, _ in told.steps]
    assert done == sorted(done)
    assert 0 < done[len(done) // 2] < 17_700_002
    assert told.steps[-1] == ("fetching", 17_700_002, 17_700_002)
    assert kept.folder.parent == ended.runs.output(ref).folder.parent
    key = server.tenants.of_token(token).key
    asked = [item for item in server.recording.all(key) if item.path.endswith("/workspace/export")]
    read = [item.query["path"] for item in asked if item.query["path"].partition("/back/")[2]]
    assert len(read) == len(set(read)), "each file and each part once"
    assert not list((kept.folder.parent / ".fetching").iterdir())


def test_of_a_launch_folder_that_was_deleted_what_is_here_is_shown_or_the_rest_reported_gone(
    ended: Session, tenant: Path
) -> None:
    (ref,) = ended.runs.find("hello")
    kept = ended.runs.output(ref)
    for launch in tenant.glob("Workspace/Users/*/.sgpu/runs/*/hello/*"):
        shutil.rmtree(launch)

    assert ended.runs.output(ref) == kept

    next(path for path in kept.folder.rglob("*") if path.is_file()).unlink()
    with pytest.raises(NotFound) as gone:
        ended.runs.output(ref)

    assert gone.value.code == "attempt_freed"
    assert f"Files that were fetched before are in `{kept.folder}`." in (gone.value.hint or "")


def exports(server: WorkspaceServer, key: str) -> list[str]:
    """Parts that were read."""
    found = [item for item in server.recording.all(key) if item.path.endswith("/workspace/export")]
    return sorted(
        item.query["path"].rpartition("/parts/")[2] for item in found if "/parts/" in str(item)
    )


def test_a_fetch_that_broke_off_goes_on_with_the_part_that_is_missing(
    ended: Session, server: WorkspaceServer, token: str
) -> None:
    (ref,) = ended.runs.find("hello")
    key = server.tenants.of_token(token).key
    gone: dict[str, Json] = {"error_code": "PERMISSION_DENIED", "message": "not now"}
    server.faults.add(
        Fault(pattern="GET */workspace/export?*parts%2F0%2F1*", effect=Effect.STATUS,
              status_code=403, body=gone),
        tenant=key,
    )  # fmt: skip

    first = ended.runs.output(ref)
    read = exports(server, key)
    server.recording.clear(key)
    second, told = ended.runs.output(ref, (watching := Told())), watching.steps

    assert (first.files, first.lacking) == (4, ("shards/large.bin",))
    assert "not now" in first.why
    assert read == ["0/0", "0/1", "0/2"]
    assert exports(server, key) == ["0/1"]
    assert (second.folder / "shards/large.bin").read_bytes() == LARGE
    assert (second.files, second.lacking) == (5, ())
    assert told[0][1] > 9_000_000, "what was fetched before counts"
    assert told[-1][1:] == (17_700_002, 17_700_002)


@pytest.mark.expensive
def test_a_part_that_somebody_changed_is_told(
    ended: Session, server: WorkspaceServer, token: str
) -> None:
    (ref,) = ended.runs.find("hello")
    (part,) = server.tenants.of_token(token).folder.glob("**/parts/0/2")
    part.write_bytes(bytes(part.stat().st_size))

    kept = ended.runs.output(ref)

    assert kept.lacking == ("shards/large.bin",)
    assert "not what the node wrote" in kept.why


@pytest.mark.expensive
def test_a_file_that_is_there_whole_and_too_large_is_told(
    ended: Session, project: Path, server: WorkspaceServer, token: str
) -> None:
    """As a mount that takes larger files than it gives would have it."""
    (ref,) = ended.runs.find("hello")
    (folder,) = server.tenants.of_token(token).folder.glob("**/back/0/node_0/output")
    (folder / "whole.bin").write_bytes(bytes(11_000_000))
    report: dict[str, Any] = read_report(str(folder.parent)) or {}
    file = {"bytes": 11_000_000, "sha256": hashlib.sha256(bytes(11_000_000)).hexdigest()}
    report["files"]["output/whole.bin"] = file
    (folder.parent / REPORT).write_bytes(seal(**report))
    for kept_here in project.glob(f".sgpu/**/{REPORT}"):
        kept_here.unlink()

    kept = ended.runs.output(ref)

    assert kept.lacking == ("whole.bin",)
    assert "10 MiB" in kept.why
    assert "backend.staging" in kept.why


@pytest.mark.expensive
def test_a_large_value_comes_back_in_parts(
    session: Callable[[], Session],
    ended_with: Callable[[str], AttemptRef],
    server: WorkspaceServer,
    token: str,
) -> None:
    ref = ended_with("def main(n):\n    return 'x' * 11_000_000\n")
    opened = session()

    for _ in range(2):  # fetched, and from here
        values = opened.runs.results(ref)
        assert [str(value["value"]) == "x" * 11_000_000 for value in values] == [True, True]
    read = exports(server, server.tenants.of_token(token).key)
    assert read == ["0/0", "0/0", "0/1", "0/1"], "of two nodes"


@pytest.mark.expensive
def test_a_checkpoint_of_200_mb_is_fetched(
    session: Callable[[], Session], ended_with: Callable[[str], AttemptRef]
) -> None:
    ref = ended_with(
        "import os, pathlib, random\n"
        "def main(n):\n"
        "    if os.environ['RANK'] == '0':\n"
        "        folder = pathlib.Path(os.environ['SGPU_OUTPUT_DIR'])\n"
        "        (folder / 'model.pt').write_bytes(random.Random(0).randbytes(200_000_000))\n"
    )

    kept = session().runs.output(ref)

    assert (kept.folder / "model.pt").read_bytes() == random.Random(0).randbytes(200_000_000)
    assert (kept.files, kept.bytes, kept.lacking) == (1, 200_000_000, ())


CLASHING = """\
import os, pathlib
def main(n):
    folder = pathlib.Path(os.environ["SGPU_OUTPUT_DIR"])
    if os.environ["RANK"] == "0":
        (folder / "best").write_text("a file")
        (folder / ("x" * 250)).write_text("a long name")
    else:
        (folder / "best").mkdir()
        (folder / "best" / "model").write_text("in a folder")
"""


@pytest.mark.expensive
def test_names_that_clash_or_are_long_are_all_brought(
    session: Callable[[], Session], project: Path
) -> None:
    (project / "train.py").write_text(CLASHING)
    opened = session()
    (ref,) = opened.apply(opened.plan()).launched
    opened.runs.wait([ref], timeout=PATIENCE)

    kept = opened.runs.output(ref)

    found = {
        path.relative_to(kept.folder).as_posix()
        for path in kept.folder.rglob("*")
        if path.is_file()
    }
    assert found == {"best", "x" * 250, "node_1/best/model"}
    assert (kept.folder / "best").read_text() == "a file"
    assert (kept.files, kept.lacking) == (3, ())
    assert opened.runs.output(ref) == kept
