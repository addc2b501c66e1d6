"""What a node leaves that is lost at any byte of it, finds no room, or is damaged there: nothing is
taken for whole, kept here or gone on from but what a sealed report names. Launches of version 0.1
are read as before."""

import errno
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.node.earlier_output import (
    UpstreamFailed,
    await_output,
    bring_earlier_output,
    copy_output,
)
from sgpu_decl.agent.node.node_report import REPORT, read_report, seal, unseal
from sgpu_decl.agent.node.platform import PlatformTable
from sgpu_decl.agent.node.upload import NOT_UPLOADED, NodeUpload
from sgpu_decl.backends.remote.watching.remote_results import RemoteResults
from sgpu_decl.backends.remote.watching.remote_status import PlatformEnding, ended_status
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.rank_output import Output
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.places.file_place import PlaceEntry
from sgpu_decl.places.folder import FolderPlace
from tests.backends.launches import launching_of
from tests.mounts import small_disk

OUTCOME = {
    "state": "succeeded",
    "class": None,
    "exit_code": 0,
    "ranks": [{"rank": 0, "node_rank": 0, "state": "succeeded"}],
}
CHECKPOINT = b"0123456789" * 4
PART = 16
FILES = ["ranks/0/output.json", "ranks/1/output.pkl", "output/ckpt"]


def left_on_node(run: Path, **files: bytes) -> None:
    """What a run left on its node: rank 0 returned a number, rank 1 what JSON cannot hold."""
    for name, data in {
        "records/outcome.json": json.dumps(OUTCOME).encode() + b"\n",
        "ranks/0/output.json": b"1234",
        "ranks/1/output.json": b'{"pickle":"output.pkl","repr":"{1}"}',
        "ranks/1/output.pkl": pickle.dumps({1}),
        "output/ckpt": CHECKPOINT,
        **files,
    }.items():
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(data)


def upload(run: Path, node: Path, part: int | None = None) -> int:
    return NodeUpload(
        str(run), str(run / "records"), str(node), lambda text: text, PlatformTable(), part=part
    ).upload("output", exit_code=0)


class Launch:
    """The folder of a launch, and what is known of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "1-aaaaaaaa"
        self.node = self.folder / "back/0/node_0"
        self.run = folder / "run"

    def results(self, local: Path) -> RemoteResults:
        return RemoteResults(FolderPlace(self.folder), str(self.folder), local)

    def output(self, local: Path) -> Output:
        return self.results(local).output(0, Quiet())

    def read(self, local: Path) -> dict[str, object]:
        """All that a command reads of it here, and that a later run and a later attempt read on a
        node; None for what is not had."""
        results, back = self.results(local), str(self.folder / "back")

        def returned(rank: int) -> object:
            for value in results.values(0, [(rank, 0)]):
                given = value["value"]
                if not isinstance(given, dict):
                    return given
                file = Path(str(given["pickle"]))
                return pickle.loads(file.read_bytes()) if file.is_absolute() else None
            return None

        def fetched() -> bytes | None:
            output = self.output(local)
            file = output.folder / "ckpt"
            assert bool(output.why) == bool(output.lacking) == (not file.exists())
            return file.read_bytes() if file.exists() else None

        def brought(bring: Callable[[str], object]) -> bytes | None:
            target = local / "input"
            shutil.rmtree(target, ignore_errors=True)
            bring(str(target))
            return (target / "ckpt").read_bytes() if target.exists() else None

        def upstream(target: str) -> None:
            if await_output(
                "train#1", back, nodes=1, stopped=lambda: True, wait=print, say=print
            ):  # it is stopped as soon as it would wait
                copy_output("train#1", back, target)

        def resume(target: str) -> None:
            bring_earlier_output(str(self.folder.with_name("2-bbbbbbbb") / "back"), target)

        def tried(call: Callable[[], object]) -> object:
            try:
                return call()
            except (BackendError, OSError, UpstreamFailed, KeyError):
                return None

        calls = {
            "outcome": lambda: results.outcome(0),
            "on a node": lambda: (read_report(str(self.node)) or {})["outcome"],
            "number": lambda: returned(0),
            "set": lambda: returned(1),
            "output": fetched,
            "later run": lambda: brought(upstream),
            "later attempt": lambda: brought(resume),
        }
        return {name: tried(call) for name, call in calls.items()}


WHOLE = {
    "outcome": OUTCOME, "on a node": OUTCOME, "number": 1234, "set": {1},
    "output": CHECKPOINT, "later run": CHECKPOINT, "later attempt": CHECKPOINT,
}  # fmt: skip


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    made = Launch(tmp_path)
    left_on_node(made.run)
    return made


def damaged(content: bytes) -> Iterator[bytes | None]:
    """What may be seen of a file: nothing, the first bytes, alone or before zeros, or another
    bit."""
    yield None
    for at in range(0, len(content), 1 + len(content) // 12):
        yield content[:at]
        yield content[:at] + bytes(len(content) - at)
        yield content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def test_a_report_that_lacks_a_byte_or_has_another_one_is_none(launch: Launch) -> None:
    upload(launch.run, launch.node)
    content = (launch.node / REPORT).read_bytes()
    assert (unseal(content) or {})["outcome"] == OUTCOME
    for at in range(len(content)):
        assert unseal(content[:at]) is None
        assert unseal(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]) is None
    assert unseal(seal(files=[])) is None
    assert (unseal(seal(files={}, outcome={"state": "unheard of"})) or {})["outcome"] is None


@pytest.mark.parametrize(
    ("name", "part"),
    [*((name, part) for name in FILES for part in (None, PART)), (REPORT, None)],
)
def test_what_is_seen_before_its_content_or_damaged_is_not_taken_for_whole(
    launch: Launch, tmp_path: Path, name: str, part: int | None
) -> None:
    upload(launch.run, launch.node, part)
    file = launch.node / name
    if not file.exists():  # it is in parts
        report = unseal((launch.node / REPORT).read_bytes()) or {}
        file = launch.node / report["files"][name]["folder"] / "1"
    content = file.read_bytes()

    for number, shown in enumerate(damaged(content)):
        local = tmp_path / "here" / str(number)
        file.unlink()
        if shown is not None:
            file.write_bytes(shown)
        cut = launch.read(local)
        assert all(cut[key] in (None, WHOLE[key]) for key in WHOLE), (shown, cut)
        assert cut != WHOLE
        if name == REPORT:
            assert cut == dict.fromkeys(WHOLE)
        file.write_bytes(content)
        assert launch.read(local) == WHOLE, shown


LOST = """
import os, resource, signal, sys
from pathlib import Path
from tests.backends.remote.test_node_reports import upload
run, folder, part = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) or None
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
for most in range(0, 4000, 31):
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        try:
            upload(run, folder / str(most) / "1-aaaaaaaa/back/0/node_0", part)
        finally:
            os._exit(0)
    if not os.waitpid(child, 0)[1]:
        print(most)
        break
"""


@pytest.mark.parametrize("part", [None, PART])
def test_a_node_that_is_killed_while_it_writes_has_left_nothing(
    launch: Launch, tmp_path: Path, part: int | None
) -> None:
    arguments = [str(launch.run), str(tmp_path / "lost"), str(part or 0)]
    done = subprocess.run(
        [sys.executable, "-c", LOST, *arguments], check=True, capture_output=True, text=True
    )
    enough = int(done.stdout)  # with room for so many bytes in a file, it was not killed
    whole = Launch(tmp_path / "lost" / str(enough))
    assert whole.read(tmp_path / "here") == WHOLE
    for most in range(0, enough, 31):
        lost = Launch(tmp_path / "lost" / str(most))
        for path in lost.node.rglob("*"):
            if path.is_file() and path.name != ".partial":
                same = whole.node / path.relative_to(lost.node)
                assert path.read_bytes() == same.read_bytes()
        local = tmp_path / "cut" / str(most)
        assert lost.read(local) == dict.fromkeys(WHOLE)
        if lost.node.exists():
            assert lost.output(local).lacking == ("node_0/output",)


@pytest.mark.parametrize("part", [None, 4096])
def test_a_checkpoint_that_finds_no_room_keeps_back_neither_the_first_cause_nor_the_results(
    launch: Launch, tmp_path: Path, part: int | None
) -> None:
    """Results take three pages of the disk, `log` two, `ckpt` seven, and the report one."""
    left_on_node(launch.run, **{"output/log": bytes(5000), "output/ckpt": bytes(25_000)})
    disk = tmp_path / "1-aaaaaaaa"
    disk.mkdir()
    full = "node 0 could not upload it: {}: No space left on device"
    for pages, lacking, first in (
        (13, (), None), (12, ("ckpt",), "the report"), (6, ("ckpt",), "`ckpt` of SGPU_OUTPUT_DIR"),
        (5, ("ckpt", "log"), "`ckpt` of SGPU_OUTPUT_DIR"),
        (4, ("ckpt", "log"), "`log` of SGPU_OUTPUT_DIR"),
    ):  # fmt: skip
        with small_disk(disk, pages * 4096):
            local = tmp_path / "here" / str(pages)
            assert upload(launch.run, launch.node, part) == 0
            had, output = launch.read(local), launch.output(local)
            assert (had["outcome"], had["number"], had["set"]) == (OUTCOME, 1234, {1})
            why = full.format(first) if first else ""
            assert (output.lacking, output.why) == (lacking, why)
            if not lacking:
                continue
            assert had["later attempt"] is None
            with pytest.raises(UpstreamFailed) as refused:
                await_output(
                    "train#1", str(disk / "back"), nodes=1,
                    stopped=lambda: False, wait=print, say=print,
                )  # fmt: skip
            assert refused.value.failure == "upstream_failed"
            assert "No space left on device; launch train again" in refused.value.summary
    with small_disk(disk, 3 * 4096), pytest.raises(OSError, match="No space left"):
        upload(launch.run, launch.node, part)


def test_results_that_cannot_be_uploaded_change_the_exit_code_and_keep_back_no_report(
    launch: Launch, tmp_path: Path
) -> None:
    launch.node.mkdir(parents=True)
    (launch.node / "ranks").touch()  # in the way
    assert upload(launch.run, launch.node) == NOT_UPLOADED
    with pytest.raises(BackendError, match="what rank 0 returned was not uploaded"):
        launch.results(tmp_path / "here").values(0, [(0, 0)])
    had = launch.read(tmp_path / "here")
    assert (had["outcome"], had["number"]) == (OUTCOME, None)
    report = launch.results(tmp_path / "here").report(0, 0)
    assert report["exit_code"] == NOT_UPLOADED
    assert report["incomplete"] == "what rank 0 returned: Not a directory"


def test_a_node_whose_mount_renames_nothing_writes_in_place(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), source)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", refuse)
        upload(launch.run, launch.node)
    assert not (launch.node / ".partial").exists()
    assert launch.read(tmp_path / "here") == WHOLE


class AskedPlace(FolderPlace):
    """Notes what it is asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.asked: list[str] = []

    def get(self, path: str) -> bytes:
        self.asked.append(f"get {path.rpartition('/back')[2]}")
        return super().get(path)

    def list(self, folder: str, *, after: str = "") -> tuple[PlaceEntry, ...]:
        self.asked.append(f"list {folder.rpartition('/back')[2]}")
        return super().list(folder, after=after)


@pytest.mark.parametrize("lost", [False, True])
def test_how_an_attempt_ended_takes_one_request_for_each_node(
    launch: Launch, tmp_path: Path, lost: bool
) -> None:
    upload(launch.run, launch.node)
    if lost:
        (launch.node / REPORT).unlink()
    place = AskedPlace(launch.folder)
    results = RemoteResults(place, str(launch.folder), tmp_path / "here", sealed=True)
    ending = PlatformEnding(state=AttemptState.SUCCEEDED, ran=True)
    record = launching_of().record
    view = AttemptView(ref=record.ref, backend="test", state=ending.state)

    status = ended_status(
        record, view, ending, results, retry={"max": 0, "on": []}, nodes=True, complete=False
    )

    assert status.final is not lost
    assert place.asked == ["list ", "get /0/node_0/report.json"]


# ── launches of version 0.1 ──────────────────────────────────────────────────────────────────────


def as_before(node: Path, *without: str) -> None:
    """Turn the upload of a node into one of version 0.1, early ones of which wrote down less."""
    report: dict[str, Any] = unseal((node / REPORT).read_bytes()) or {}
    (node / REPORT).unlink()
    (node / "outcome.json").write_text(json.dumps(report["outcome"]) + "\n")
    files = report["files"]
    whole = {name: one for name, one in files.items() if "folder" not in one}
    done = {
        "v": 1, "exit_code": 0, "left": [], "mlflow_run_id": None,
        "files": {name: one["bytes"] for name, one in whole.items()},
        "sha256": {name: one["sha256"] for name, one in whole.items()},
        "parts": {name: one for name, one in files.items() if name not in whole},
    }  # fmt: skip
    (node / "done").write_text(json.dumps({k: v for k, v in done.items() if k not in without}))


@pytest.mark.parametrize("without", [(), ("sha256",), ("sha256", "files")])
@pytest.mark.parametrize("part", [None, PART])
def test_an_old_launch_is_read(
    launch: Launch, tmp_path: Path, part: int | None, without: tuple[str, ...]
) -> None:
    upload(launch.run, launch.node, part)
    as_before(launch.node, *without)
    assert launch.read(tmp_path / "here") == WHOLE

    (launch.node / "done").rename(launch.node / "aside")  # its node was lost while it uploaded
    lost = {**dict.fromkeys(WHOLE), "outcome": OUTCOME}
    assert launch.read(tmp_path / "there") == lost
    assert launch.output(tmp_path / "there").lacking == ("node_0/output",)


def test_what_an_older_sgpu_kept_half_written_is_read_again(launch: Launch, tmp_path: Path) -> None:
    local = tmp_path / "here"
    upload(launch.run, launch.node)
    as_before(launch.node)
    for name in ("outcome.json", "done"):
        (local / "back/0/node_0" / name).parent.mkdir(parents=True, exist_ok=True)
        (local / "back/0/node_0" / name).write_bytes(b"")
    assert launch.read(local) == WHOLE
