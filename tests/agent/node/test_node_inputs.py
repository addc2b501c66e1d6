"""Outputs of other runs on a node: in the folder that ranks were told at the launch."""

import errno
import fcntl
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sgpu_decl.agent.node import earlier_output, node_inputs
from sgpu_decl.agent.node.node_inputs import NodeInputs
from sgpu_decl.agent.node.node_report import REPORT, seal
from sgpu_decl.agent.node.stop_request import StopRequest
from tests.support import PATIENCE


class Machine:
    """One that nodes of `evaluate#1` are on, and the storage with what `train#8` brought back."""

    def __init__(self, folder: Path, stopping: StopRequest) -> None:
        self._runs = folder / "storage/runs/lineage"
        self._stopping = stopping
        self.inputs = folder / "inputs"
        self.output = self.inputs / "train-8"
        self.given = [("train#8", "../../train/8-aaaaaaaa", "1", str(self.output))]
        self.nodes: list[NodeInputs] = []

    def left(self, text: str) -> None:
        """The one node of `train#8` has uploaded a file."""
        node = self._runs / "train/8-aaaaaaaa/back/0/node_0"
        (node / "output").mkdir(parents=True)
        (node / "output/w").write_text(text)
        file = {"bytes": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}
        (node / REPORT).write_bytes(seal(files={"output/w": file}, left=["large"]))

    def node(self) -> NodeInputs:
        node = NodeInputs(str(self._runs / "evaluate/1-bbbbbbbb/back"), self._stopping)
        self.nodes.append(node)
        return node


@pytest.fixture
def machine(
    tmp_path: Path, stopping: StopRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Machine]:
    monkeypatch.setattr(earlier_output, "_POLL", 0.01)
    monkeypatch.setattr(node_inputs, "_LOOK", 0.01)
    made = Machine(tmp_path, stopping)
    yield made
    for node in made.nodes:
        node.release()


def test_ranks_find_the_output_until_their_node_has_ended(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    machine.left("good")
    node = machine.node()

    assert node.bring(machine.given) is None

    assert [path.name for path in machine.output.iterdir()] == ["w"]
    assert (machine.output / "w").read_text() == "good"
    assert "1 files of train#8 stayed on its nodes" in capfd.readouterr().out
    node.release()
    assert not machine.inputs.exists()
    node.release()


def test_nodes_of_one_machine_share_the_folder_until_the_last_has_ended(machine: Machine) -> None:
    machine.left("good")
    first, second = machine.node(), machine.node()
    assert first.bring(machine.given) is None
    (machine.output / "mine").touch()

    assert second.bring(machine.given) is None

    first.release()
    assert (machine.output / "mine").exists()
    second.release()
    assert not machine.inputs.exists()


def test_a_node_waits_while_another_one_fills_the_folder(machine: Machine) -> None:
    nodes = [machine.node(), machine.node()]
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(node.bring, machine.given) for node in nodes]
        machine.left("late")
        assert [answer.result(PATIENCE) for answer in answers] == [None, None]
    assert (machine.output / "w").read_text() == "late"


def test_what_a_node_left_that_was_killed_is_not_read(machine: Machine) -> None:
    machine.left("good")
    machine.output.mkdir(parents=True)
    (machine.output / "w").write_text("changed")
    (machine.inputs / ".whole").touch()

    assert machine.node().bring(machine.given) is None

    assert (machine.output / "w").read_text() == "good"


def test_an_output_that_is_gone_is_said_and_leaves_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier_output, "_VISIBLE", 0.0)
    problem = ("upstream_failed", "train#8 is gone, and this run comes after it")
    assert machine.node().bring(machine.given) == problem
    assert not machine.inputs.exists()


def test_a_node_that_is_to_stop_brings_nothing(machine: Machine, stopping: StopRequest) -> None:
    stopping.asked = True
    assert machine.node().bring(machine.given) is None
    assert not machine.inputs.exists()


def test_a_folder_of_another_user_is_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.left("good")
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    failure, reason = machine.node().bring(machine.given) or ("", "")
    assert failure == "staging_failed"
    assert f"it belongs to user {own}" in reason


def test_a_node_whose_kernel_has_no_locks_is_alone(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "refused")

    monkeypatch.setattr(fcntl, "flock", refused)
    machine.left("good")
    node = machine.node()
    assert node.bring(machine.given) is None
    assert (machine.output / "w").read_text() == "good"
    node.release()
    assert not machine.inputs.exists()
