"""Runs on clusters without a shared folder, when their processes are killed; see `test_kills`."""

import hashlib
import json
import os
import signal
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.node.input_folder import folder_of_launch
from sgpu_decl.agent.system.locks import try_lock
from sgpu_decl.backends.ray.cluster.node_folder import private_folder
from sgpu_decl.backends.ray.head.head_place import _PIECE
from sgpu_decl.backends.remote.staging.lease import LOCK
from sgpu_decl.testing.ray_cluster import RayCluster
from tests.backends.ray.cluster_run import ClusterRun, assert_gone, cause
from tests.backends.ray.depots import depot_processes
from tests.ray_versions import NEWEST_CLUSTER
from tests.support import until

pytestmark = [pytest.mark.ray, pytest.mark.expensive]

STAGES = '''\
import hashlib, os, pathlib, time

def make(size):
    """Leave a file of the same name on each node, and on one of them a large one and a link."""
    folder, rank = pathlib.Path(os.environ["SGPU_OUTPUT_DIR"]), os.environ["RANK"]
    (folder / "same").write_text(rank)
    if rank == "1":
        (folder / "large").write_bytes(bytes(range(256)) * (size // 256))
        (folder / "link").symlink_to("large")

def read(folder, gate):
    """Wait for the test; return the files in a folder of another run."""
    assert os.environ["FOLDER"] == folder
    assert folder in pathlib.Path(os.environ["HYPERPARAMETERS_PATH"]).read_text()
    rank = os.environ["RANK"]
    pathlib.Path(gate, f"up-0-{rank}").touch()
    while not pathlib.Path(gate, "go-0").exists():
        time.sleep(0.01)
    paths = [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]
    digests = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }
    return [folder, digests]
'''


@pytest.fixture
def run(cluster: RayCluster, tmp_path: Path) -> ClusterRun:
    return ClusterRun(cluster, tmp_path, storage=False)


def test_a_driver_that_is_killed_takes_all_with_it(run: ClusterRun) -> None:
    run.hold()
    processes = run.processes

    os.kill(run.driver, signal.SIGKILL)

    assert_gone(processes)
    assert cause(run.bench.ended())[:2] == ("lost", "supervisor_lost")
    run.assert_frees_everything()


def test_a_node_that_is_lost_is_replaced(run: ClusterRun) -> None:
    run.hold(retry={"max": 1, "on": ["infra"], "backoff": "0s"})
    first = run.processes
    driver = run.driver

    os.kill(run.actors[1], signal.SIGKILL)
    assert_gone({pid: started for pid, started in first.items() if pid != driver})
    run.bench.go()

    ended = run.bench.ended()
    assert (ended["state"], ended["restart"]) == ("succeeded", 1)
    assert run.bench.results() == [(0, {"rank": 0, "n": 0}), (1, {"rank": 1, "n": 0})]
    run.assert_frees_everything()


SIZE = 40_000_000


def train_first(run: ClusterRun, **more: dict[str, Any]) -> None:
    """Run `train`, whose output `hello` reads, as do `more` runs."""
    (run.bench.project / "stages.py").write_text(STAGES)
    output = "${run.train.output}"
    reads = {**run.fields(), "after": ["train"], "grace": "500ms"}
    hello = {
        "entrypoint": "stages.py:read",
        "args": {"folder": output, "gate": str(run.bench.gate)},
        "env": {"variables": {"FOLDER": output}},
        "parameters": {"folder": output},
        "retry": {"max": 1, "on": ["infra"], "backoff": "0s"},
    }
    train = {**run.fields(), "entrypoint": "stages.py:make", "args": {"size": SIZE}}
    runs = {"hello": hello, **more}
    project = {
        "project": {"name": "stages"},
        "runs": {"train": train, **{name: {**reads, **own} for name, own in runs.items()}},
    }
    (run.bench.project / "sgpu.yml").write_text(json.dumps(project))
    run.bench.done("apply", "-y", "--detach", "--select", "run.train")
    assert run.bench.ended("train")["state"] == "succeeded"


def inputs(run: ClusterRun) -> Path:
    """What `hello` reads, on all nodes."""
    return Path(folder_of_launch(run.bench.record("hello").token))


def test_nodes_get_the_output_of_another_run_again_if_they_are_replaced(run: ClusterRun) -> None:
    gate = run.bench.gate
    command = f"cd ${{run.train.output}} && find . -type f | sort > {gate}/listing"
    train_first(run, list={"gpus": 1, "command": command})

    run.bench.launched()
    assert run.bench.ended("list")["state"] == "succeeded"
    assert (gate / "listing").read_text() == "./large\n./node_1/same\n./same\n"
    run.bench.up(ranks=2)
    for marker in gate.glob("up-*"):
        marker.unlink()
    os.kill(run.actors[1], signal.SIGKILL)
    run.bench.up(ranks=2)
    run.bench.go()

    ended = run.bench.ended()
    assert (ended["state"], ended["restart"]) == ("succeeded", 1)
    contents = {"large": bytes(range(256)) * (SIZE // 256), "same": b"0", "node_1/same": b"1"}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    found = [str(inputs(run) / "train-1"), digests]
    assert run.bench.results() == [(0, found), (1, found)]
    until(lambda: not inputs(run).exists())
    assert list(run.shared.rglob("inputs")) == []  # the head has one copy


@NEWEST_CLUSTER
def test_an_output_that_cannot_be_sent_fails_the_run_and_leaves_nothing(run: ClusterRun) -> None:
    train_first(run)
    (part,) = run.launch_folder("train").rglob("parts/0/1")
    part.write_bytes(bytes(part.stat().st_size))

    run.bench.launched()

    ended = run.bench.ended()
    assert cause(ended) == ("failed", "staging_failed", None)
    assert ended["first_cause"]["summary"] == (
        f"the files of the launch cannot be sent: `{part}` is not what the node wrote there"
    )
    assert not inputs(run).exists()


@NEWEST_CLUSTER
def test_the_next_run_on_a_node_deletes_the_output_that_a_killed_driver_left(
    run: ClusterRun,
) -> None:
    def unused() -> bool:
        try:
            lock = os.open(inputs(run), os.O_RDONLY)
        except FileNotFoundError:
            return True  # another cluster of this machine has just deleted it
        try:
            return try_lock(lock)
        finally:
            os.close(lock)

    train_first(run, list={"gpus": 1, "command": "true"})
    run.bench.done("apply", "-y", "--detach", "--select", "run.hello")
    run.bench.up(ranks=2)
    assert not unused()
    (job,) = [job for job in run.jobs if job["submission_id"] == run.bench.record("hello").token]

    os.kill(int(job["driver_info"]["pid"]), signal.SIGKILL)
    until(unused)
    run.bench.done("apply", "-y", "--detach", "--select", "run.list")

    assert run.bench.ended("list")["state"] == "succeeded"
    assert not inputs(run).exists()


@NEWEST_CLUSTER
def test_a_second_run_of_the_same_code_sends_no_code(run: ClusterRun) -> None:
    run.bench.declare("value", args={"gate": str(run.bench.gate)})
    (run.bench.project / "data.bin").write_bytes(os.urandom(5_000_000))
    run.bench.ran()
    archives = list((run.shared / "objects/code").glob("*.tar.gz"))
    written = [path.stat().st_ino for path in archives]

    run.bench.declare("value", args={"gate": str(run.bench.gate), "n": 1})
    run.bench.ran()

    assert [path.stat().st_ino for path in archives] == written
    assert run.bench.results() == [(0, {"rank": 0, "n": 1}), (1, {"rank": 1, "n": 1})]


@NEWEST_CLUSTER
@pytest.mark.parametrize("where", ["nodes", "head", "storage"])
def test_damaged_code_fails_the_run_and_the_next_apply_sends_it_again(
    cluster: RayCluster, tmp_path: Path, where: str
) -> None:
    run = ClusterRun(cluster, tmp_path, storage=where == "storage")
    run.bench.declare("value", args={"gate": str(run.bench.gate)})
    (run.bench.project / "data.bin").write_bytes(os.urandom(100_000))
    codes = run.shared / "objects/code"
    others = set(codes.glob("*.tar.gz"))  # other tests have runs on this cluster
    run.bench.ran()
    (archive,) = set(codes.glob("*.tar.gz")) - others
    nodes = Path(private_folder(), "objects/code", archive.name)
    assert nodes.exists() == (where != "storage")
    nodes.unlink(missing_ok=True)
    with tarfile.open(nodes if where == "nodes" else archive, "w:gz") as other:
        other.add(run.bench.project, "code", recursive=False)

    run.bench.declare("value", args={"gate": str(run.bench.gate), "n": 1})
    run.bench.launched()
    ended = run.bench.ended()

    assert (ended["state"], ended["first_cause"]["class"]) == ("failed", "staging_failed")
    assert archive.name in ended["first_cause"]["summary"]
    if where == "storage":
        archive.unlink()
    assert archive.exists() == (where == "nodes")
    run.bench.ran()
    assert run.bench.results() == [(0, {"rank": 0, "n": 1}), (1, {"rank": 1, "n": 1})]


@NEWEST_CLUSTER
def test_runs_with_large_arguments_are_launched_side_by_side(run: ClusterRun) -> None:
    (run.bench.project / "count.py").write_text("def letters(text):\n    return len(text)\n")
    common = {**run.fields(), "gpus": 1, "entrypoint": "count.py:letters"}
    lengths = {"one": 1_200_000, "two": 1_300_000, "three": 1_400_000}
    runs = {name: {**common, "args": {"text": "x" * size}} for name, size in lengths.items()}
    project = {"project": {"name": "counts"}, "runs": runs}
    (run.bench.project / "sgpu.yml").write_text(json.dumps(project))

    run.bench.launched()

    for name, size in lengths.items():
        assert run.bench.ended(name)["state"] == "succeeded"
        assert run.bench.results(name) == [(0, size)]
    assert run.waiting == []


@NEWEST_CLUSTER
def test_a_run_that_waits_for_gc_can_be_cancelled(run: ClusterRun) -> None:
    run.bench.declare("value", args={"gate": str(run.bench.gate)})
    # The driver sees it. The apply does not: no index has files of this kind.
    lock = run.shared / "objects/agent" / f"{LOCK}test.tmp"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    try:
        run.bench.launched()
        until(lambda: run.bench.status().get("waiting_for") == "the end of `sgpu gc`")
        run.bench.done("cancel", "hello")
        assert run.bench.ended()["state"] == "cancelled"
    finally:
        lock.unlink()
    assert not (run.bench.gate / "launches").exists()
    run.assert_frees_everything()


def declare_large(run: ClusterRun, pieces: int) -> None:
    """Have the run take so many pieces of content along."""
    run.bench.declare("value", args={"gate": str(run.bench.gate)})
    size = (pieces - 1) * _PIECE + 1_000_000
    (run.bench.project / "data.bin").write_bytes(os.urandom(size))


def assert_one_launch(run: ClusterRun) -> None:
    assert run.bench.ended()["state"] == "succeeded"
    assert run.bench.launches == 2  # one for each rank
    assert not [key for key in run.stored() if "sgpu-depot-" in key]
    run.assert_frees_everything()


def test_a_depot_that_is_killed_while_content_comes_is_replaced(run: ClusterRun) -> None:
    declare_large(run, pieces=3)
    uploads = run.shared / ".depot/uploads"

    def kill() -> None:
        until(lambda: uploads.exists() and any(uploads.glob("*.0")))
        (pid,) = depot_processes(run.cluster)
        os.kill(pid, signal.SIGKILL)

    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(kill)
        run.bench.launched()
        killed.result()

    assert_one_launch(run)


def test_a_client_that_is_killed_while_content_goes_is_followed_by_one_launch(
    run: ClusterRun,
) -> None:
    declare_large(run, pieces=2)
    step = "sgpu_decl.backends.ray.head.depot_client,DepotClient,send_piece,after,1"
    run.bench.killed(step, "apply", "-y", "--detach")

    run.bench.launched()

    assert_one_launch(run)
