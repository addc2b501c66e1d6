"""Copies of attempt folders: what grows is brought piece by piece, what is replaced as a whole."""

import os
from pathlib import Path

import pytest

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.box.box_mirror import OUTPUT, BoxMirror, log_names
from sgpu_decl.backends.box.boxes import Box
from sgpu_decl.errors import BackendError
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import NO_FIELDS
from sgpu_decl.model.launch import LaunchInputs, LaunchRecord
from tests.ssh_server import SshServer

FOLDER = "states/abc/runs/train/1"
RECORD = LaunchRecord(
    ref=AttemptRef(Address.run("train"), 1), backend="ssh", token="t", lineage="abc",
    owner="", inputs=LaunchInputs(spec=NO_FIELDS, fingerprint=""),
)  # fmt: skip


@pytest.fixture
def there(server: SshServer) -> Path:
    folder = server.home / "sgpu" / FOLDER
    (folder / "ranks/0/0").mkdir(parents=True)
    (folder / "output").mkdir()
    return folder


@pytest.fixture
def mirror(box: Box, tmp_path: Path) -> BoxMirror:
    return BoxMirror(AttemptLayout(tmp_path / "state"), lambda _: [(box, FOLDER)])


def test_a_log_is_brought_as_it_grows(there: Path, mirror: BoxMirror) -> None:
    log = there / "ranks/0/0/stdout.log"
    log.write_bytes(b"one\n")
    copy = mirror.pull(RECORD, log_names()) / "ranks/0/0/stdout.log"
    assert copy.read_bytes() == b"one\n"
    first = copy.stat().st_ino

    with log.open("ab") as file:
        file.write(b"two\n" * 3_000_000)
    mirror.pull(RECORD, log_names())

    assert copy.read_bytes() == log.read_bytes()
    assert copy.stat().st_ino == first


def test_the_logs_of_some_ranks_are_brought_alone(there: Path, mirror: BoxMirror) -> None:
    (there / "ranks/1/0").mkdir(parents=True)
    (there / "ranks/10/0").mkdir(parents=True)
    for rank in (0, 1, 10):
        (there / f"ranks/{rank}/0/stdout.log").write_text(f"{rank}\n")

    copy = mirror.pull(RECORD, log_names([1]))

    assert [file.read_text() for file in copy.glob("ranks/*/0/stdout.log")] == ["1\n"]


def test_what_the_bound_of_a_log_deleted_is_a_hole_in_its_copy(
    there: Path, mirror: BoxMirror
) -> None:
    log = there / "ranks/0/0/stdout.log"
    with log.open("wb") as file:
        file.seek(8 << 20)
        file.write(b"the end\n")

    copy = mirror.pull(RECORD, log_names()) / "ranks/0/0/stdout.log"

    assert copy.stat().st_size == log.stat().st_size
    assert copy.stat().st_blocks < 1000
    assert copy.read_bytes().endswith(b"the end\n")


def test_files_are_brought_whole_and_once(there: Path, mirror: BoxMirror) -> None:
    large = os.urandom(9 << 20)
    (there / "output/deep").mkdir()
    (there / "output/deep/large").write_bytes(large)
    (there / "output/empty").touch()
    (there / "output/é").write_text("x")

    copy = mirror.pull(RECORD, OUTPUT) / "output"
    assert (copy / "deep/large").read_bytes() == large
    assert (copy / "empty").read_bytes() == b""
    assert (copy / "é").read_text() == "x"
    before = {path: path.stat().st_ino for path in copy.rglob("*")}

    mirror.pull(RECORD, OUTPUT)
    assert {path: path.stat().st_ino for path in copy.rglob("*")} == before

    (there / "output/deep/large").write_bytes(b"another")
    mirror.pull(RECORD, OUTPUT)
    assert (copy / "deep/large").read_bytes() == b"another"


def test_a_rank_that_leaves_a_link_or_a_pipe_leaves_no_file(there: Path, mirror: BoxMirror) -> None:
    (there / "output/link").symlink_to("/etc/passwd")
    os.mkfifo(there / "output/pipe")
    (there / "output/file").touch()

    copy = mirror.pull(RECORD, OUTPUT) / "output"

    assert [path.name for path in copy.iterdir()] == ["file"]


def test_a_folder_elsewhere_is_refused(box: Box, tmp_path: Path) -> None:
    mirror = BoxMirror(AttemptLayout(tmp_path), lambda _: [(box, "states/../../../etc")])

    with pytest.raises(BackendError) as refused:
        mirror.pull(RECORD, ("passwd",))
    assert refused.value.code == "bad_folder"
