"""A node that is lost at any byte of what it uploads: nothing cut short is taken for whole, or kept
here, and what comes later is found."""

import errno
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu_decl.agent.node.earlier_output import absent_nodes, bring_output
from sgpu_decl.agent.node.platform import PlatformTable
from sgpu_decl.agent.node.upload import NodeUpload
from sgpu_decl.backends.remote.remote_results import RemoteResults
from sgpu_decl.errors import BackendError
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.places.folder import FolderPlace

OUTCOME = {
    "state": "succeeded",
    "class": None,
    "exit_code": 0,
    "ranks": [{"rank": 0, "node_rank": 0}],
}
CHECKPOINT = b"0123456789" * 4
PART = 16


def left_on_node(run: Path) -> None:
    """What a run left on its node: rank 0 returned a number, rank 1 what JSON cannot hold."""
    for name, data in {
        "records/outcome.json": json.dumps(OUTCOME).encode() + b"\n",
        "ranks/0/output.json": b"1234",
        "ranks/1/output.json": b'{"pickle":"output.pkl","repr":"{1}"}',
        "ranks/1/output.pkl": pickle.dumps({1}),
        "output/ckpt": CHECKPOINT,
    }.items():
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(data)


def upload(run: Path, node: Path, part: int | None = None) -> None:
    files = NodeUpload(
        str(run), str(run / "records"), str(node), lambda text: text, PlatformTable(), part=part
    )
    files.finish(exit_code=0, left=files.upload("output"))


def read(launch: Path, local: Path) -> dict[str, object]:
    """All that a command reads of it here, and that a later run reads on a node; None for what is
    not had."""
    results = RemoteResults(FolderPlace(launch), str(launch), local)

    def returned(rank: int) -> object:
        for value in results.values(0, [(rank, 0)]):
            given = value["value"]
            if not isinstance(given, dict):
                return given
            file = Path(str(given["pickle"]))
            return pickle.loads(file.read_bytes()) if file.is_absolute() else None
        return None

    def fetched() -> bytes | None:
        output = results.output(0, Quiet())
        assert bool(output.why) == bool(output.lacking) == (not output.files)
        return (output.folder / "ckpt").read_bytes() if output.files else None

    def in_a_later_run() -> bytes | None:
        back, target = str(launch / "back"), local / "input"
        shutil.rmtree(target, ignore_errors=True)
        if absent_nodes(back, 1):
            return None
        bring_output(back, str(target))
        return (target / "ckpt").read_bytes()

    def tried(call: Callable[[], object]) -> object:
        try:
            return call()
        except (BackendError, OSError):
            return None

    calls = {
        "outcome": lambda: results.outcome(0),
        "number": lambda: returned(0),
        "set": lambda: returned(1),
        "output": fetched,
        "later": in_a_later_run,
    }
    return {name: tried(call) for name, call in calls.items()}


WHOLE = {"outcome": OUTCOME, "number": 1234, "set": {1}, "output": CHECKPOINT, "later": CHECKPOINT}


@pytest.mark.parametrize("part", [None, PART])
@pytest.mark.parametrize(
    "name", ["outcome.json", "ranks/0/output.json", "ranks/1/output.pkl", "output/ckpt", "done"]
)
def test_a_file_that_is_seen_before_its_content_is_not_taken_for_whole(
    tmp_path: Path, name: str, part: int | None
) -> None:
    run, launch = tmp_path / "run", tmp_path / "launch"
    node = launch / "back/0/node_0"
    left_on_node(run)
    upload(run, node, part)
    file = node / name
    if not file.exists():  # it is in parts
        index = json.loads((node / "done").read_bytes())["parts"].get(name)
        file = node / index["folder"] / "1"
    content = file.read_bytes()

    lengths = range(0, len(content), 1 + len(content) // 40)
    seen = [None, *(content[:length] for length in lengths)]
    seen += [content[:length] + bytes(len(content) - length) for length in lengths]
    for number, shown in enumerate(seen):
        local = tmp_path / "here" / str(number)
        file.unlink()
        if shown is not None:
            file.write_bytes(shown)
        cut = read(launch, local)
        assert all(cut[key] in (None, WHOLE[key]) for key in WHOLE), (shown, cut)
        assert cut != WHOLE or json.loads(shown or b"0")  # all but the line feed
        file.write_bytes(content)
        assert read(launch, local) == WHOLE, shown


LOST = """
import os, resource, signal, sys
from pathlib import Path
from tests.backends.remote.test_cut_short import upload
run, launch, part = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) or None
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
for most in range(0, 4000, 31):
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        try:
            upload(run, launch / str(most) / "back/0/node_0", part)
        finally:
            os._exit(0)
    if not os.waitpid(child, 0)[1]:
        print(most)
        break
"""


@pytest.mark.parametrize("part", [None, PART])
def test_a_node_that_is_killed_while_it_writes_leaves_whole_files_or_none(
    tmp_path: Path, part: int | None
) -> None:
    run, launch = tmp_path / "run", tmp_path / "launch"
    left_on_node(run)
    arguments = [str(run), str(launch), str(part or 0)]
    done = subprocess.run(
        [sys.executable, "-c", LOST, *arguments], check=True, capture_output=True, text=True
    )
    enough = int(done.stdout)  # with room for so many bytes in a file, it was not killed
    assert read(launch / str(enough), tmp_path / "here") == WHOLE
    for most in range(0, enough, 31):
        node = launch / str(most) / "back/0/node_0"
        assert not (node / "done").exists()
        for path in node.rglob("*"):
            if path.is_file() and path.name != ".partial":
                whole = launch / str(enough) / "back/0/node_0" / path.relative_to(node)
                assert path.read_bytes() == whole.read_bytes()
        seen = read(launch / str(most), tmp_path / "cut" / str(most))
        assert seen in ({**dict.fromkeys(WHOLE), "outcome": outcome} for outcome in (None, OUTCOME))


def test_an_outcome_that_an_older_sgpu_kept_half_written_is_read_again(tmp_path: Path) -> None:
    run, launch, local = tmp_path / "run", tmp_path / "launch", tmp_path / "here"
    left_on_node(run)
    upload(run, launch / "back/0/node_0")
    for name in ("outcome.json", "done"):
        (local / "back/0/node_0").mkdir(parents=True, exist_ok=True)
        (local / "back/0/node_0" / name).write_bytes(b"")
    assert read(launch, local) == WHOLE


def test_a_node_whose_mount_renames_nothing_writes_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), source)

    run, launch = tmp_path / "run", tmp_path / "launch"
    left_on_node(run)
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", refuse)
        upload(run, launch / "back/0/node_0")
    assert not (launch / "back/0/node_0/.partial").exists()
    assert read(launch, tmp_path / "here") == WHOLE
