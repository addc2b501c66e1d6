"""What a driver sends to nodes, as far as no node is needed."""

import errno
import hashlib
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.exceptions import ObjectStoreFullError, OutOfDiskError, RayActorError, RayTaskError

from sgpu_decl.agent.node.earlier_output import UpstreamFailed
from sgpu_decl.agent.node.input_folder import InputFolder
from sgpu_decl.backends.ray.cluster.actor_answers import SilentNode
from sgpu_decl.backends.ray.cluster.head_folder import index_folder
from sgpu_decl.backends.ray.cluster.log_copies import LogCopy
from sgpu_decl.backends.ray.cluster.node_actors import _not_sent, _not_taken
from sgpu_decl.backends.ray.cluster.node_files import NodeFiles
from sgpu_decl.backends.ray.cluster.sent_files import (
    _BATCH,
    _PIECE,
    SentFiles,
    _batches,
)
from sgpu_decl.backends.remote.launching.uploader import write_archive
from sgpu_decl.code.code_store import CodeStore
from sgpu_decl.code.snapshot import snapshot
from sgpu_decl.content.packs import Index, Pack, index_name
from sgpu_decl.content.store.pack_writer import send
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.places.folder import FolderPlace
from tests.content.conftest import make_environment
from tests.support import until

__all__ = ["make_environment"]


class Head:
    """The folder of a head with the code of one launch, which has this environment, too."""

    def __init__(self, root: Path, environment: str | None = None) -> None:
        self.objects = root / "objects"
        self.code = self.objects / "code/c0de.tar.gz"
        self.lock = self.objects / "agent/freeing-1"
        for path in (self.code, self.lock):
            path.parent.mkdir(parents=True)
        self.code.touch()
        sent: dict[str, Any] = {"objects": str(self.objects), "code": "c0de"}
        sent["environment"] = environment
        sent |= {"files": [], "resume": False, "gc_lock": {"name": "freeing-", "seconds": 300.0}}
        self.launch: dict[str, Any] = {"sent": sent, "upstreams": [{"output": None}]}
        self.launch |= {"launch": str(root / "runs/1"), "back": str(root / "runs/1/back")}
        self.files = SentFiles(self.launch, LogCopy())

    def reads(self, back: Path, folder: Path, *, nodes: int) -> None:
        """Have the launch read what the nodes of `train#8` left."""
        upstream = {"name": "train#8", "back": str(back), "nodes": nodes, "output": str(folder)}
        self.files = SentFiles({**self.launch, "upstreams": [upstream]}, LogCopy())


@pytest.fixture
def head(tmp_path: Path) -> Head:
    return Head(tmp_path)


def test_content_that_is_there_is_not_missing(head: Head) -> None:
    assert head.files.missing_content() is None


def test_content_that_was_deleted_is_named(head: Head) -> None:
    head.code.unlink()
    assert head.files.missing_content() == (
        f"`{head.code}` was deleted from the head node: apply again"
    )


def test_an_environment_that_was_deleted_in_part_is_sent_again_by_the_next_apply(
    tmp_path: Path,
) -> None:
    head = Head(tmp_path, environment="e4")
    packs = head.objects / "packs"
    packs.mkdir()
    pack = Pack((("0" * 64, 1),))
    index = packs / index_name("sha256:e4")
    index.write_bytes(Index("sha256:e4", (pack,)).to_bytes())
    for name in (pack.name, "e4.manifest"):
        (packs / name).touch()
    index_folder(str(packs))
    assert head.files.missing_content() is None
    (packs / pack.name).unlink()

    assert str(packs / pack.name) in str(head.files.missing_content())

    entries = json.loads((packs / ".index").read_text())["entries"]
    assert entries.keys() == {"e4.manifest"}


def test_content_that_is_damaged_is_deleted_and_named(
    tmp_path: Path, make_environment: Any
) -> None:
    """The files of a real environment and real code, each damaged in turn."""
    made = make_environment({"one.py": "x = 1\n" * 100})
    digest = made.manifest.digest.removeprefix("sha256:")
    head = Head(tmp_path, environment=digest)
    packs = head.objects / "packs"
    send(made.manifest, made.objects, FolderPlace(packs), str(packs), Quiet())
    source = tmp_path / "source"
    source.mkdir()
    (source / "main.py").write_text("print(1)\n")
    code, _ = snapshot(source)
    assert code is not None
    store = CodeStore(tmp_path / "code-store")
    store.put(code)
    head.code = head.code.with_name(f"{code.digest.removeprefix('sha256:')}.tar.gz")
    head.launch["sent"]["code"] = code.digest.removeprefix("sha256:")
    write_archive(store, code.digest, head.code, Quiet())
    whole = {path: path.read_bytes() for path in (head.code, *packs.iterdir())}
    index = packs / index_name(made.manifest.digest)

    assert head.files.delete_damaged() is None
    for path, content in whole.items():
        middle = len(content) // 2
        flipped = bytes([content[middle] ^ 0x10])
        for damaged in (
            content[:middle],
            content[:middle] + flipped + content[middle + 1 :],
            b"{}",
        ):
            path.write_bytes(damaged)
            said = head.files.delete_damaged()
            assert said == f"`{path}` on the head node was damaged and is deleted now: apply again"
            left = set(whole) - {path, *(() if path == head.code else (index,))}
            assert {file for file in whole if file.exists()} == left  # an apply sends the others
            for file, before in whole.items():
                file.write_bytes(before)
        path.write_bytes(content)
    index.write_bytes(b"{")
    assert head.files.missing_content() is not None
    assert not index.exists()


def test_content_that_was_looked_for_is_in_use(head: Head) -> None:
    os.utime(head.code, (0, 0))
    assert head.files.missing_content() is None
    assert head.code.stat().st_mtime > time.time() - 1000


def test_content_is_in_use_while_its_launch_waits(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgpu_decl.backends.ray.cluster.sent_files._RENEWAL", 0.01)
    os.utime(head.code, (0, 0))
    with head.files.kept_content():
        until(lambda: head.code.stat().st_mtime > time.time() - 1000)


def test_a_gc_goes_on_while_it_renews_its_lock(head: Head) -> None:
    assert not head.files.gc_goes_on()
    head.lock.touch()
    assert head.files.gc_goes_on()
    os.utime(head.lock, (time.time() - 400,) * 2)
    assert not head.files.gc_goes_on()


class Node:
    """An actor without Ray: the files of a node, on this machine."""

    def __init__(self, files: NodeFiles) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=getattr(self._files, name))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """Calls of nodes are answered at once."""
    same = SimpleNamespace(
        get=lambda answer: answer, put=lambda data: data, wait=lambda calls, **_: (calls, [])
    )
    monkeypatch.setattr("sgpu_decl.backends.ray.cluster.actor_answers.ray", same)
    return Node(NodeFiles(str(tmp_path / "node/run"), 0))


def test_an_attempt_that_nobody_brings_anything_back_of_is_in_the_index(
    head: Head, node: Node, tmp_path: Path
) -> None:
    back = tmp_path / "runs/1/back"
    back.mkdir(parents=True)
    for number in range(2):
        list(head.files.send([node], str(tmp_path / f"runs/1/logs/{number}")))
        assert str(number) in json.loads((back / ".index").read_text())["entries"]
    assert "back" in json.loads((back.parent / ".index").read_text())["entries"]


def test_nothing_is_sent_of_a_launch_that_is_stopped_before(
    head: Head, node: Node, tmp_path: Path
) -> None:
    pieces = head.files.send([node], str(tmp_path / "runs/1/logs/0"))
    next(pieces)
    del pieces  # nobody goes on with them
    assert not (tmp_path / "node/objects/code/c0de.tar.gz").exists()


def test_a_large_file_of_a_node_comes_in_pieces_and_is_there_once_it_is_whole(
    head: Head, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgpu_decl.backends.ray.cluster.sent_files._PIECE", 2)
    list(head.files.send([node], str(tmp_path / "runs/1/logs/0")))
    left = tmp_path / "node/run.files/runs/1/back/0/node_0"
    left.mkdir(parents=True)
    (left / "large").write_bytes(b"large")
    here = tmp_path / "runs/1/back/0/node_0"

    pieces = head.files.collect(0)
    next(pieces)
    assert os.listdir(here) == ["large.tmp"]
    del pieces  # nobody goes on with them
    assert os.listdir(here) == []
    assert len(list(head.files.collect(0))) == 3

    assert (here / "large").read_bytes() == b"large"


def test_a_node_with_a_full_disk_is_named(tmp_path: Path) -> None:
    files = NodeFiles(str(tmp_path / "node/run"), 3)
    partial = tmp_path / "node/run.files/partial/objects/code/a"
    partial.parent.mkdir(parents=True)
    partial.symlink_to("/dev/full")

    with pytest.raises(OSError, match="No space left on device on node 3") as raised:
        files.receive("objects/code/a", 0, 3, b"abc")

    assert not partial.is_symlink()
    path = tmp_path / "node/objects/code/a"
    by_ray = RayTaskError("receive", "a traceback", raised.value).as_instanceof_cause()
    assert isinstance(by_ray, RayTaskError)
    lost = _not_sent(by_ray)
    assert lost.failure == "staging_failed"
    assert lost.summary == (
        f"the files of the launch cannot be sent: No space left on device on node 3: `{path}`"
    )


def test_a_node_that_ends_while_files_are_sent_or_taken_is_lost() -> None:
    assert _not_sent(RayActorError()).failure == "node_lost"
    assert _not_taken(1, None, RayActorError()).failure == "node_lost"


def test_a_node_that_cannot_read_what_it_left_is_not_lost() -> None:
    error = OSError(errno.EIO, "Input/output error", "/tmp/log")
    by_ray = RayTaskError("brought", "a traceback", error).as_instanceof_cause()
    lost = _not_taken(1, {"address": "10.0.0.7"}, by_ray)
    assert lost.failure == "platform"
    assert lost.summary == "what node 1 left cannot be read there: Input/output error: `/tmp/log`"


def test_a_node_that_hangs_keeps_the_driver_from_nothing_and_is_named(
    head: Head, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray takes a node for alive whose actor alone hangs."""
    other = Node(NodeFiles(str(tmp_path / "other/run"), 1))
    has = tmp_path / "other/objects/code/c0de.tar.gz"  # so the nodes have other answers
    has.parent.mkdir(parents=True)
    has.touch()
    silent = "sgpu_decl.backends.ray.cluster.actor_answers.ray.wait"
    monkeypatch.setattr(silent, lambda calls, **_: (calls[:1], calls[1:]))
    steps = head.files.send([node, other], str(tmp_path / "runs/1/logs/0"))
    for _ in range(3):
        next(steps)  # the driver looks for a request to stop meanwhile

    monkeypatch.setattr("sgpu_decl.backends.ray.cluster.actor_answers._SILENT", -1.0)
    late = head.files.send([node, other], str(tmp_path / "runs/1/logs/0"))
    with pytest.raises(SilentNode, match="node 1 has not answered") as raised:
        next(late)

    assert raised.value.number == 1


def test_the_log_of_the_job_says_how_much_nodes_were_sent(
    head: Head, node: Node, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = Node(NodeFiles(str(tmp_path / "other/run"), 1))
    head.code.write_bytes(bytes(1500))
    for nodes, said in (([node], "1.5 kB to 1 node"), ([node, other], "1.5 kB to 2 nodes")):
        list(head.files.send(nodes, str(tmp_path / "logs")))
        assert capfd.readouterr().err == f"sgpu: sent {said}\n"


def test_lines_of_a_node_whose_files_are_collected_come_in_their_order(
    head: Head, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver looks for lines of all nodes while one is slow."""
    list(head.files.send([node], str(tmp_path / "logs")))
    log = tmp_path / "node/run.files/log"
    log.write_bytes(b"one\n")
    answered = "sgpu_decl.backends.ray.cluster.actor_answers.ray.wait"
    with monkeypatch.context() as slow:
        slow.setattr(answered, lambda calls, **_: ([], calls))
        pieces = head.files.collect(0)
        next(pieces)  # it was asked for `one`
        log.write_bytes(b"one\ntwo\n")
        assert not head.files.take_lines()

    list(pieces)

    assert (tmp_path / "logs/0/0.log").read_bytes() == b"one\ntwo\n"


def test_a_node_gets_what_it_lacks_and_its_files_come_back(
    head: Head, node: Node, tmp_path: Path
) -> None:
    head.code.write_bytes(b"code")
    list(head.files.send([node], str(tmp_path / "runs/1/logs/0")))
    assert (tmp_path / "node/objects/code/c0de.tar.gz").read_bytes() == b"code"
    left = tmp_path / "node/run.files/runs/1/back/0/node_0"
    left.mkdir(parents=True)
    for name in ("report.json", "output"):
        (left / name).write_bytes(name.encode())
    (left.parents[4] / "log").write_bytes(b"a line")

    list(head.files.collect(0))

    back = tmp_path / "runs/1/back/0/node_0"
    assert (back / "report.json").read_bytes() == b"report.json"
    assert json.loads((back / ".index").read_text())["entries"].keys() == {"report.json", "output"}
    assert (tmp_path / "runs/1/logs/0/0/0.log").read_bytes() == b"a line\n"
    assert not (tmp_path / "node/run.files").exists()


@given(st.lists(st.integers(min_value=0, max_value=2 * _PIECE), max_size=2 * _BATCH))
def test_files_are_taken_in_their_order_a_few_at_once(sizes: list[int]) -> None:
    files = [(str(number), size) for number, size in enumerate(sizes)]
    batches = list(_batches(files))
    assert [name for names, _ in batches for name in names] == [name for name, _ in files]
    for names, size in batches:
        assert size == sum(dict(files)[name] for name in names)
        assert len(names) <= _BATCH
        assert size <= _PIECE or len(names) == 1


def test_what_finds_no_room_in_the_object_store_is_sent_again(
    head: Head, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head.code.write_bytes(b"code")
    (tmp_path / "node/run.files").mkdir(parents=True)
    (tmp_path / "node/run.files/log").write_bytes(b"a line\n")
    full = [OutOfDiskError(), ObjectStoreFullError()]

    def with_room(value: Any) -> Any:
        if value and full:
            raise full.pop()
        return value

    monkeypatch.setattr("sgpu_decl.backends.ray.cluster.actor_answers.ANSWER", 0.0)
    monkeypatch.setattr("sgpu_decl.backends.ray.cluster.actor_answers.ray.put", with_room)
    list(head.files.send([node], str(tmp_path / "logs")))
    assert (tmp_path / "node/objects/code/c0de.tar.gz").read_bytes() == b"code"
    assert not full

    full.append(OutOfDiskError())
    monkeypatch.setattr("sgpu_decl.backends.ray.cluster.actor_answers.ray.get", with_room)
    assert not head.files.take_lines()
    assert head.files.take_lines()
    assert (tmp_path / "logs/0/0.log").read_bytes() == b"a line\n"


def test_an_object_store_that_stays_full_is_the_reason(
    head: Head, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(_: bytes) -> None:
        raise OutOfDiskError

    head.code.write_bytes(b"code")
    monkeypatch.setattr("sgpu_decl.backends.ray.cluster.actor_answers._FULL", -1.0)
    monkeypatch.setattr("sgpu_decl.backends.ray.cluster.actor_answers.ray.put", put)

    with pytest.raises(OutOfDiskError) as raised:
        list(head.files.send([node], str(tmp_path / "logs")))

    lost = _not_sent(raised.value)
    assert lost.failure == "staging_failed"
    assert lost.summary.endswith(": Ray's object store is full, and the disk below it, too")


class Upstream:
    """What two nodes of `train#8` left on the head, and the folder that ranks read it from."""

    def __init__(self, head: Head, root: Path) -> None:
        self.back = root / "train/8-token/back"
        self.inputs = root / "inputs"
        self.folder = self.inputs / "train-8"
        self.nodes = [self.back / f"0/node_{number}" for number in range(2)]
        for node in self.nodes:
            (node / "output/sub").mkdir(parents=True)
            (node / "output/sub/same").write_text(node.name)
            (node / "output/sub/.index").write_text("what the head says of the folder")
            (node / "done").write_text("{}")
        head.reads(self.back, self.folder, nodes=2)

    def leave_parts(self, *parts: bytes, digests: list[str] | None = None) -> None:
        """The second node left a file `large` in these parts, too."""
        folder = self.nodes[1] / "parts/0"
        folder.mkdir(parents=True)
        for number, part in enumerate(parts):
            (folder / str(number)).write_bytes(part)
        digests = digests or [hashlib.sha256(part).hexdigest() for part in parts]
        sizes = {"bytes": sum(map(len, parts)), "part": len(parts[0])}
        split = {"output/large": {**sizes, "folder": "parts/0", "sha256": digests}}
        (self.nodes[1] / "done").write_text(json.dumps({"parts": split}))


@pytest.fixture
def upstream(head: Head, tmp_path: Path) -> Upstream:
    return Upstream(head, tmp_path)


def test_outputs_of_all_nodes_of_another_run_come_into_one_folder_until_the_node_is_done(
    head: Head, node: Node, upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgpu_decl.backends.ray.cluster.sent_files._PIECE", 3)
    upstream.leave_parts(b"01234", b"567")
    (upstream.nodes[0] / "output/empty").touch()

    list(head.files.send([node], str(tmp_path / "runs/1/logs/0")))

    paths = [path for path in upstream.folder.rglob("*") if path.is_file()]
    assert {str(path.relative_to(upstream.folder)): path.read_text() for path in paths} == {
        "empty": "", "large": "01234567", "sub/same": "node_0", "node_1/sub/same": "node_1",
    }  # fmt: skip
    list(head.files.collect(0))
    assert not upstream.inputs.exists()


def test_nodes_of_one_machine_get_an_output_once(
    head: Head, node: Node, upstream: Upstream, tmp_path: Path
) -> None:
    received: list[tuple[str, int]] = []

    class Counted(NodeFiles):
        def receive(self, name: str, offset: int, size: int, data: bytes) -> None:
            received.append((name, self._number))
            super().receive(name, offset, size, data)

    nodes = [Node(Counted(str(tmp_path / f"nodes/{number}"), number)) for number in range(2)]

    list(head.files.send(nodes, str(tmp_path / "runs/1/logs/0")))

    assert [number for name, number in received if name.startswith("/")] == [0, 0]
    nodes[0].discard.remote()
    assert (upstream.folder / "sub/same").exists()
    nodes[1].discard.remote()
    assert not upstream.inputs.exists()


def test_a_node_waits_while_another_attempt_on_its_machine_fills_the_folder(
    head: Head, node: Node, upstream: Upstream, tmp_path: Path
) -> None:
    other = InputFolder(str(upstream.inputs))
    assert other.take()
    steps = head.files.send([node], str(tmp_path / "runs/1/logs/0"))
    for _ in range(5):
        next(steps)  # the driver looks for a request to stop meanwhile
    assert list(upstream.inputs.iterdir()) == []

    other.release()
    list(steps)

    assert (upstream.folder / "sub/same").exists()


def test_an_output_that_was_deleted_before_nodes_are_replaced_ends_the_run(
    head: Head, node: Node, upstream: Upstream, tmp_path: Path
) -> None:
    (upstream.nodes[1] / "done").unlink()
    with pytest.raises(UpstreamFailed, match="train#8 is gone, and this run") as raised:
        list(head.files.send([node], str(tmp_path / "logs")))
    assert raised.value.failure == "upstream_failed"


def test_an_output_that_is_damaged_is_not_read(
    head: Head, node: Node, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.leave_parts(b"01234", digests=["0" * 64])
    with pytest.raises(OSError, match="is not what the node wrote there") as raised:
        list(head.files.send([node], str(tmp_path / "logs")))
    assert not (upstream.inputs / ".whole").exists()
    lost = _not_sent(raised.value)
    assert lost.failure == "staging_failed"
    assert lost.summary == (
        f"the files of the launch cannot be sent: `{upstream.nodes[1]}/parts/0/0` is not what the "
        "node wrote there"
    )


def test_a_folder_of_outputs_that_a_node_cannot_make_is_named(
    head: Head, node: Node, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.inputs.touch()
    with pytest.raises(OSError, match="on node 0") as raised:
        list(head.files.send([node], str(tmp_path / "logs")))
    lost = _not_sent(raised.value)
    assert lost.failure == "staging_failed"
    assert lost.summary.endswith(f"Not a directory on node 0: `{upstream.inputs}`")


def test_a_disk_that_is_full_has_room_again_once_the_node_is_done(
    head: Head, node: Node, upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left on device on node 0") as raised:
        list(head.files.send([node], str(tmp_path / "logs")))
    assert _not_sent(raised.value).summary.endswith(f": `{upstream.folder}/sub/same`")

    node.discard.remote()

    assert not upstream.inputs.exists()
