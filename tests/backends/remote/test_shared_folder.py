"""Uploads, nodes and results over a plain shared folder, by real processes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu_decl.agent.host.ports import claim_port
from sgpu_decl.agent.system.host_locks import host_lock_folder
from sgpu_decl.backends.remote.staging.remote_gc import collect
from sgpu_decl.backends.remote.watching.remote_results import RemoteResults
from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.places.folder import FolderPlace
from tests.backends.remote.conftest import Shared
from tests.support import PATIENCE, until

Make = Callable[..., Shared]

TELL = """\
import os, sys
def main():
    print("to stdout")
    print("to stderr", file=sys.stderr)
    with open(os.environ["SGPU_OUTPUT_DIR"] + "/left", "w") as file:
        file.write(os.environ["RANK"])
    return [os.environ[name] for name in ("RANK", "NODE_RANK", "WORLD_SIZE")]
"""


def ended(nodes: list["subprocess.Popen[str]"]) -> list[tuple[int, str]]:
    said = [node.communicate(timeout=PATIENCE)[0] for node in nodes]
    return [(node.returncode, text) for node, text in zip(nodes, said, strict=True)]


def objects(machine: Shared) -> dict[str, int]:
    """What is shared, and when it was written."""
    found = Path(machine.area.layout.objects).glob("*/*")
    return {path.name: path.stat().st_mtime_ns for path in found}


def test_a_launch_runs_on_a_platform_that_is_a_table_alone(shared: Make, tmp_path: Path) -> None:
    machine = shared()
    request = machine.launched(TELL)

    ((code, said),) = ended(machine.start(request))

    assert code == 0, said
    assert {"0> to stdout", "0! to stderr"} <= set(said.splitlines())
    back = RemoteResults(machine.files, machine.folder(request), tmp_path / "attempt")
    attempt = back.newest()
    assert attempt == 0
    assert back.values(attempt, [(0, 0)]) == [{"rank": 0, "value": ["0", "0", "1"]}]
    output = back.output(attempt, Quiet())
    assert [path.read_text() for path in output.folder.iterdir()] == ["0"]
    assert (back.outcome(attempt) or {})["state"] == "succeeded"
    assert list((tmp_path / "here" / "node-0").iterdir()) == []


def test_several_nodes_meet_by_the_platforms_names(shared: Make, tmp_path: Path) -> None:
    machine = shared(nodes=2)
    request = machine.request(TELL, gpus=2)
    machine.stage(request)
    port, lock = claim_port(host_lock_folder("ports"), os.getpid())

    nodes = machine.start(request, MY_FIRST="127.0.0.1", MY_PORT=str(port))

    codes = [code for code, _ in ended(nodes)]
    os.close(lock)
    assert codes == [0, 0]
    back = RemoteResults(machine.files, machine.folder(request), tmp_path / "attempt")
    values = back.values(0, [(0, 0), (1, 1)])
    assert [value["value"] for value in values] == [["0", "0", "2"], ["1", "1", "2"]]
    assert back.output(0, Quiet()).files == 2


def test_a_node_stops_when_the_pipe_of_its_owner_is_closed(shared: Make, tmp_path: Path) -> None:
    machine = shared()
    request = machine.request(
        "import os, time\n"
        "def main():\n"
        "    open(os.environ['SGPU_OUTPUT_DIR'] + '/left', 'w').close()\n"
        "    time.sleep(600)\n"
    )
    machine.stage(request)
    pipe, owned = os.pipe()
    nodes = machine.start(request, lifeline=pipe)
    os.close(pipe)
    until((tmp_path / "here" / "node-0" / "run" / "output" / "left").exists)

    os.close(owned)

    ((code, said),) = ended(nodes)
    back = RemoteResults(machine.files, machine.folder(request), tmp_path / "attempt")
    outcome = back.outcome(0) or {}
    assert code != 0, said
    assert outcome["state"] == "cancelled"
    assert back.output(0, Quiet()).files == 1


def test_an_archive_of_code_that_nodes_see_late_is_waited_for(shared: Make, tmp_path: Path) -> None:
    machine = shared()
    request = machine.request(TELL)
    (uses,) = machine.stage(request)
    assert uses.code is not None
    archive = Path(machine.area.layout.code(uses.code))
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])

    nodes = machine.start(request)
    run = tmp_path / "here" / "node-0" / "run"
    until((run / "output").exists)
    archive.write_bytes(whole)

    ((code, said),) = ended(nodes)
    assert code == 0, said


def test_the_same_content_is_uploaded_once_by_all_machines(shared: Make) -> None:
    first, second = shared("first"), shared("second")
    first.stage(first.request(TELL))
    before = objects(first)
    second.stage(second.request(TELL, number=2))
    assert objects(second) == before
    assert len(before) == 2


def test_a_launch_folder_is_whole_when_its_spec_is_there(shared: Make) -> None:
    machine = shared()
    request = machine.request(TELL)
    machine.stage(request)
    folder = Path(machine.folder(request))
    times = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert max(times, key=lambda name: times[name]) == "spec.json"
    start = json.loads((folder / "command.json").read_bytes())
    assert {"spec.json", "_air.py", "rank.zip"} < {*start}


def test_a_command_needs_our_code_only_beside_a_ray_cluster(shared: Make) -> None:
    machine = shared()
    alone = machine.request(TELL, 1, entrypoint=None, command=["true"])
    driver = machine.request(TELL, 2, entrypoint=None, command=["true"], ray={})
    machine.stage(alone, driver)
    assert "rank.zip" not in machine.program.starts[alone.ref].files
    assert "rank.zip" in machine.program.starts[driver.ref].files


UPLOAD = """
import sys, os, signal
from pathlib import Path
from sgpu_decl.places.folder import FolderPlace
path, source, dies = sys.argv[1:]
def sent(count):
    if dies == "yes" and count:
        os.kill(os.getpid(), signal.SIGKILL)
FolderPlace(Path(path).parent).put(path, Path(source), sent)
"""


def upload(path: Path, source: Path, *, dies: bool = False) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", UPLOAD, str(path), str(source), "yes" if dies else "no"]
    )


def test_an_uploader_that_is_killed_leaves_the_old_file_and_gc_takes_the_rest(
    shared: Make, tmp_path: Path
) -> None:
    machine = shared()
    request = machine.request(TELL)
    (uses,) = machine.stage(request)
    machine.mark(request, uses)
    assert uses.code is not None
    path = Path(machine.area.layout.code(uses.code))
    before, whole = objects(machine), path.read_bytes()
    large = tmp_path / "large"
    large.write_bytes(os.urandom(4_000_000))

    assert upload(path, large, dies=True).wait(PATIENCE) == -signal.SIGKILL

    assert path.read_bytes() == whole
    assert len(objects(machine)) == len(before) + 1
    assert collect(machine.area) is not None
    assert objects(machine) == before


def test_of_several_processes_that_upload_one_path_each_ends_well(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    sources = []
    for number in range(4):
        sources.append(tmp_path / str(number))
        sources[-1].write_bytes(bytes([number]) * 3_000_000)
    uploads = [upload(folder / "object", source) for source in sources]
    assert [item.wait(PATIENCE) for item in uploads] == [0] * 4
    assert (folder / "object").read_bytes() in [source.read_bytes() for source in sources]
    assert [path.name for path in folder.iterdir()] == ["object"]


def test_a_folder_that_cannot_be_written_is_named(shared: Make, tmp_path: Path) -> None:
    machine = shared()
    request = machine.request(TELL)
    (tmp_path / "shared").rmdir()
    (tmp_path / "shared").write_text("a file")
    with pytest.raises(SgpuError, match="shared") as caught:
        machine.stage(request)
    assert caught.value.hint


def test_a_place_that_takes_no_file_has_no_clock_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "shared").touch()  # a file where the folder should be
    with pytest.raises(BackendError, match=f"writing into `{tmp_path}/shared`") as refused:
        FolderPlace(tmp_path / "shared").now()
    assert refused.value.code == "remote_broken"


@pytest.mark.parametrize(("name", "left"), [("ranks/0/output.pkl", False), ("output/a", True)])
def test_a_large_value_is_no_file_of_the_output(tmp_path: Path, name: str, left: bool) -> None:
    node = tmp_path / "launch/back/0/node_0"
    (node / "parts").mkdir(parents=True)
    (node / "done").write_text(json.dumps({"v": 1, "parts": {name: {}}}))
    files = FolderPlace(tmp_path)
    back = RemoteResults(files, str(tmp_path / "launch"), tmp_path / "attempt")
    assert back.left_output() is left


def test_output_comes_from_nodes_without_ranks_too(tmp_path: Path) -> None:
    """The nodes beside the driver of a Ray cluster have no rank, and leave Ray's logs."""
    for node in (0, 1):
        file = tmp_path / f"launch/back/0/node_{node}/output/ray_logs/0/node_{node}/raylet.out"
        file.parent.mkdir(parents=True)
        file.write_text(f"of node {node}")
        (tmp_path / f"launch/back/0/node_{node}/done").write_text('{"v": 1}')
    back = RemoteResults(FolderPlace(tmp_path), str(tmp_path / "launch"), tmp_path / "attempt")
    output = back.output(0, Quiet())
    assert (output.files, output.lacking) == (2, ())
    for node in (0, 1):
        kept = output.folder / f"ray_logs/0/node_{node}/raylet.out"
        assert kept.read_text() == f"of node {node}"
