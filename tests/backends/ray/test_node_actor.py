"""The actor of one node, in this process: what it says of a node program that cannot start."""

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sgpu_decl.backends.archives import agent_zip
from sgpu_decl.backends.ray.cluster import node_actor
from sgpu_decl.backends.ray.cluster.node_actor import NodeActor

HERE = "10.0.0.7"


class Actor(NodeActor):
    """It outlives its driver: it is no process of its own."""

    def _stop_with(self, connection: socket.socket) -> None:
        connection.close()


@pytest.fixture
def actor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Actor]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(node_actor, "_add_packages", lambda _archive: None)  # it is imported here
    address = SimpleNamespace(get_node_ip_address=lambda: HERE)
    monkeypatch.setattr(node_actor, "ray", SimpleNamespace(util=address, get_gpu_ids=list))
    with socket.create_server(("127.0.0.1", 0)) as driver:
        yield Actor(0, agent_zip()[1], driver.getsockname(), b"greeting")


def refused(actor: Actor, **start: Any) -> tuple[str, str]:
    """The class and the reason."""
    answer = actor.run(
        {"log": None, "python": None, "joins": False, "arguments": [], **start}, {}, {}
    )
    failure, reason = answer["refused"]
    return failure, reason


def test_a_storage_that_is_not_on_the_node_is_named(actor: Actor, tmp_path: Path) -> None:
    log = str(tmp_path / "storage/0.log")
    assert refused(actor, log=log) == (
        "staging_failed",
        f"the storage is not on node {HERE}: `{log}`: No such file or directory",
    )


def test_a_node_that_takes_no_log_has_no_storage_to_blame(actor: Actor) -> None:
    assert refused(actor) == (
        "staging_failed",
        f"the log cannot be written on node {HERE}: `{actor.log}`: No such file or directory",
    )


def test_a_python_that_is_no_program_is_the_mistake_of_the_file(
    actor: Actor, tmp_path: Path
) -> None:
    python = tmp_path / "python3"
    python.write_bytes(b"no program")
    python.chmod(0o755)
    failure, reason = refused(actor, log=str(tmp_path / "log"), python=str(python))
    assert failure == "launch_failed_user"
    assert reason == f"cannot start `{python}` on node {HERE}: Exec format error"


def test_a_node_program_that_has_just_ended_needs_no_signal(actor: Actor) -> None:
    """Ray has the kernel reap the children of its workers."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    actor._pid = ended.pid
    actor.stop()
