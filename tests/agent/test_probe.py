"""The probe of a node, by the script that a platform starts: real processes on this machine."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.host.ports import claim_port
from sgpu_decl.agent.system.host_locks import host_lock_folder
from sgpu_decl.backends.archives import agent_zip
from sgpu_decl.backends.databricks.conformance.probe_run import render_probe
from sgpu_decl.backends.databricks.launching.workspace_node_program import platform_table
from tests.support import PATIENCE, until

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a node of a probe; its records go to `tmp_path/back`."""
    digest, agent = agent_zip()
    objects, back = tmp_path / "objects", tmp_path / "back"
    (objects / "agent").mkdir(parents=True)
    (objects / "agent" / f"{digest}.zip").write_bytes(agent)
    back.mkdir()
    (back / "ping").write_text("1")

    def begin(act: str, seconds: float = 0.5, **variables: str) -> subprocess.Popen[bytes]:
        command = tmp_path / "command.sh"
        command.write_text(
            render_probe(
                digest, act, launch=str(tmp_path), objects=str(objects), out=str(back),
                platform=platform_table(), seconds=seconds, secret="HUSH",
            )
        )  # fmt: skip
        path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
        own = {"PATH": path, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
        return subprocess.Popen(
            ["bash", str(command)], env=own | variables, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )  # fmt: skip

    return begin


def record(folder: Path, name: str, *, attempt: int = 0, node: int = 0) -> dict[str, Any]:
    file = folder / "back" / str(attempt) / f"node_{node}" / f"{name}.json"
    found: dict[str, Any] = json.loads(file.read_text())
    return found


@pytest.mark.expensive
def test_a_node_says_what_it_is(start: Start, tmp_path: Path) -> None:
    node = start("report", HUSH="sesame open", ODD="some value")

    said, _ = node.communicate(timeout=PATIENCE)

    found = record(tmp_path, "node")
    assert node.returncode == 0
    assert found["bash_source"] == str(tmp_path / "command.sh")
    assert found["python_version"] == ".".join(map(str, sys.version_info[:3]))
    assert (found["uid"], found["writes"], found["secret"]) == (os.getuid(), True, True)
    assert found["features"]["flock"] == "ok"
    assert {"HUSH", "ODD", "PATH"} <= set(found["variables"])
    assert found["free_bytes"] > 0
    assert record(tmp_path, "pong")["seen"]
    lines = said.decode().splitlines()
    logged = [
        json.loads(line.partition(" ")[2]) for line in lines if line.startswith("sgpu-probe {")
    ]
    names = [item["name"] for item in logged]
    assert names == ["node", "ready", "pong", "sdk", "mlflow", "index", "done"]
    assert max(map(len, lines)) == 1 << 20
    everything = said.decode() + "".join(path.read_text() for path in tmp_path.rglob("*.json"))
    assert "sesame" not in everything
    assert "some value" not in everything
    assert not list(tmp_path.glob("sgpu-node-*"))


@pytest.mark.expensive
def test_a_node_that_cannot_write_says_so_in_its_log(start: Start, tmp_path: Path) -> None:
    (tmp_path / "back" / "0").write_text("a file is in the way")

    said, _ = start("report").communicate(timeout=PATIENCE)

    (line,) = [item for item in said.decode().splitlines() if '"name": "node"' in item]
    told = json.loads(line.partition(" ")[2])
    assert not told["writes"]
    assert told["write_problem"].startswith("NotADirectoryError")


def test_a_command_that_fails(start: Start) -> None:
    node = start("fail")

    node.communicate(timeout=PATIENCE)

    assert node.returncode == 3


def test_sigterm_is_noted_and_the_last_sign_of_life_tells_of_sigkill(
    start: Start, tmp_path: Path
) -> None:
    node = start("hold", seconds=60.0)
    folder = tmp_path / "back" / "0" / "node_0"
    until((folder / "holding.json").exists)

    node.send_signal(signal.SIGTERM)
    until((folder / "asked.json").exists)
    until(lambda: record(tmp_path, "alive").get("since_asked", 0.0) >= 0.5)
    node.kill()
    node.communicate(timeout=PATIENCE)

    assert record(tmp_path, "alive")["since_asked"] >= 0.5


@pytest.mark.expensive
def test_the_second_attempt_goes_on_where_the_first_failed(start: Start, tmp_path: Path) -> None:
    first = start("retried", seconds=0.6)
    first.communicate(timeout=PATIENCE)
    second = start("retried", seconds=0.6)
    second.communicate(timeout=PATIENCE)

    assert (first.returncode, second.returncode) == (3, 0)
    assert record(tmp_path, "alive", attempt=1)["for"] >= 0.5


@pytest.mark.torch
@pytest.mark.expensive
def test_two_nodes_meet_and_the_last_one_fails(start: Start, tmp_path: Path) -> None:
    port, lock = claim_port(host_lock_folder("ports"), os.getpid())
    common = {"NUM_NODES": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}

    nodes = [start("gang", PATIENCE, **common, NODE_RANK=str(number)) for number in range(2)]
    nodes[1].communicate(timeout=2 * PATIENCE)
    until((tmp_path / "back" / "0" / "node_0" / "holding.json").exists)
    nodes[0].send_signal(signal.SIGTERM)  # the platform stops the others when a node has failed
    until((tmp_path / "back" / "0" / "node_0" / "asked.json").exists)
    nodes[0].kill()
    nodes[0].communicate(timeout=PATIENCE)
    os.close(lock)

    assert nodes[1].returncode == 3
    for number in range(2):
        ports = record(tmp_path, "ports", node=number)
        assert (ports["master"]["open"], ports["other"]["open"]) == (True, True)
        assert record(tmp_path, "collectives", node=number)["gloo"]["works"]
