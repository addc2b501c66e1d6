"""What ranks leave in SGPU_OUTPUT_DIR, brought here from the nodes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu_decl.api import Session
from sgpu_decl.errors import BackendError
from sgpu_decl.testing.workspace import WorkspaceServer

CODE = """\
import os, pathlib
def main(n):
    rank, folder = os.environ["RANK"], pathlib.Path(os.environ["SGPU_OUTPUT_DIR"])
    (folder / "shards").mkdir()
    (folder / "shards" / f"{rank}.bin").write_bytes(b"x" * 100_000)
    (folder / "log.txt").write_text(rank)
    if rank == "1":
        (folder / "large.bin").write_bytes(bytes(11_000_000))
"""


@pytest.fixture
def ended(session: Callable[[], Session], project: Path) -> Session:
    (project / "train.py").write_text(CODE)
    opened = session()
    (ref,) = opened.apply(opened.plan()).launched
    with pytest.raises(BackendError) as early:
        opened.runs.output(ref)
    assert early.value.code == "nothing_yet"
    opened.runs.wait([ref], timeout=120)
    return opened


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
        it.relative_to(kept.folder).as_posix() for it in kept.folder.rglob("*") if it.is_file()
    }
    assert names == {"shards/0.bin", "shards/1.bin", "log.txt", "node_1/log.txt"}
    assert [(kept.folder / it).read_text() for it in ("log.txt", "node_1/log.txt")] == ["0", "1"]
    assert (kept.folder / "shards/1.bin").read_bytes() == b"x" * 100_000
    assert (kept.files, kept.bytes) == (4, 200_002)
    assert kept.lacking == ("large.bin",)
    assert "backend.staging" in kept.why
    assert told.steps[-1] == ("fetching", 11_200_002, 11_200_002)
    assert kept.folder.parent == ended.runs.output(ref).folder.parent
    key = server.tenants.of_token(token).key
    asked = [it.path for it in server.recording.all(key) if it.path.endswith("/workspace/export")]
    read = [it for it in asked if "shards" in it]
    assert len(read) == len(set(read))


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


def test_names_that_clash_or_are_long_are_all_brought(
    session: Callable[[], Session], project: Path
) -> None:
    (project / "train.py").write_text(CLASHING)
    opened = session()
    (ref,) = opened.apply(opened.plan()).launched
    opened.runs.wait([ref], timeout=120)

    kept = opened.runs.output(ref)

    found = {
        it.relative_to(kept.folder).as_posix() for it in kept.folder.rglob("*") if it.is_file()
    }
    assert found == {"best", "x" * 250, "node_1/best/model"}
    assert (kept.folder / "best").read_text() == "a file"
    assert (kept.files, kept.lacking) == (3, ())
    assert opened.runs.output(ref) == kept
