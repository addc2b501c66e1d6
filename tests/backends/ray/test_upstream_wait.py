"""The driver of a run that comes after others: what it waits for, and what it copies of them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import RpcError

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.node import earlier_output
from sgpu_decl.agent.node.earlier_output import UpstreamFailed
from sgpu_decl.backends.ray.cluster import upstream_wait
from sgpu_decl.backends.ray.cluster.driver_status import DriverStatus
from sgpu_decl.backends.ray.cluster.upstream_wait import await_upstreams, copy_outputs

RUNNING = {"status": "RUNNING", "driver_node_id": "head"}
KILLED = {"status": "FAILED", "error_type": "JOB_ENTRYPOINT_COMMAND_ERROR", "driver_exit_code": -9}
Step = Callable[[], object]


class Ray:
    """What Ray says of jobs: `job`, once the next of `steps` has happened. If `silent`, it does not
    answer."""

    def __init__(self, *steps: Step) -> None:
        self.job: Mapping[str, Any] | None = RUNNING
        self.silent = False
        self.living = {"head"}
        self._steps = list(steps)

    def find(self, token: str) -> Mapping[str, Any] | None:
        assert token == "the-token"
        if self._steps:
            self._steps.pop(0)()
        if self.silent:
            raise RpcError("no answer")
        return self.job

    def node_lives(self, node: str) -> bool:
        return node in self.living


class Launch:
    """The launch folder of `train#8`, on disk, and the status of a driver that waits for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "8-token"
        self.back = self.folder / "back"
        self.back.mkdir(parents=True)
        self.own = folder / "own"
        self.own.mkdir()
        self.status = DriverStatus(str(self.own))
        self.inputs = self.own / "inputs/train-8"

    def says(self, state: str, **fields: Any) -> None:
        """Its driver writes a status."""
        status = attempt_files.encode({"v": 1, "state": state, **fields})
        attempt_files.write_atomic(str(self.folder), attempt_files.STATUS, status)

    def ends(self, state: str = "succeeded") -> None:
        self.says("ended", outcome={"state": state})

    def node(self, number: int, start: int = 0, **done: Any) -> Path:
        """The folder of what a node of one start brought back."""
        folder = self.back / str(start) / f"node_{number}"
        (folder / "output").mkdir(parents=True)
        (folder / "done").write_text(json.dumps(done))
        return folder

    def wait_for(self, ray: Ray, stopped: Callable[[], bool] = lambda: False) -> bool:
        upstream = {"name": "train#8", "token": "the-token", "waits": True, "output": None}
        upstream |= {"launch": str(self.folder), "back": str(self.back), "nodes": 1}
        upstream |= {"retry": {"max": 1, "on": ["infra"]}}
        return await_upstreams([upstream], self.status, ray, stopped=stopped)

    def read(self, stopped: Callable[[], bool] = lambda: False, *, nodes: int = 1) -> bool:
        """Have the driver copy the output of an upstream that succeeded before."""
        upstream = {"name": "train#8", "waits": False, "output": str(self.inputs)}
        upstream |= {"back": str(self.back), "nodes": nodes}
        if not await_upstreams([upstream], self.status, Ray(), stopped=stopped):
            return False
        copy_outputs([upstream])
        return True


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    for name in ("_POLL", "_JOBS"):
        monkeypatch.setattr(upstream_wait, name, 0.0)
    monkeypatch.setattr(earlier_output, "_POLL", 0.0)
    return Launch(tmp_path)


def test_a_run_waits_until_the_upstream_has_succeeded(launch: Launch) -> None:
    seen: list[dict[str, Any]] = []
    launch.says("running")
    ray = Ray(lambda: seen.append(launch.status.fields), lambda: None, launch.ends)

    assert launch.wait_for(ray)

    assert (seen[0]["state"], seen[0]["waiting_for"]) == ("queued", "train#8")
    assert "waiting_for" not in launch.status.fields


@pytest.mark.parametrize(
    ("state", "how"), [("failed", "failed"), ("cancelled", "was cancelled"), ("lost", "was lost")]
)
def test_a_run_fails_whose_upstream_has_not_succeeded(launch: Launch, state: str, how: str) -> None:
    launch.ends(state)

    with pytest.raises(UpstreamFailed, match=f"train#8 {how}, and this run") as raised:
        launch.wait_for(Ray())

    assert raised.value.failure == "upstream_failed"


def test_a_run_that_is_stopped_while_it_waits_goes_no_further(launch: Launch) -> None:
    launch.says("running")
    assert not launch.wait_for(Ray(), lambda: True)


def test_what_the_agents_brought_back_counts_where_the_driver_was_killed(launch: Launch) -> None:
    launch.says("running")
    outcome = launch.node(0) / attempt_files.OUTCOME
    ray = Ray()
    ray.job = KILLED
    outcome.write_text(json.dumps({"state": "succeeded", "restart": 0}))
    assert launch.wait_for(ray)

    failed = {"state": "failed", "class": "exception", "restart": 0}
    outcome.write_text(json.dumps(failed))
    with pytest.raises(UpstreamFailed, match="train#8 failed"):
        launch.wait_for(ray)

    # The driver would have started it again on other nodes.
    outcome.write_text(json.dumps({**failed, "class": "node_lost"}))
    with pytest.raises(UpstreamFailed, match="train#8 was lost"):
        launch.wait_for(ray)

    outcome.unlink()
    with pytest.raises(UpstreamFailed, match="train#8 was lost"):
        launch.wait_for(ray)


def test_a_job_that_is_gone_or_whose_node_died_is_lost(launch: Launch) -> None:
    launch.says("running")
    ray = Ray()
    ray.living = set()
    with pytest.raises(UpstreamFailed, match="train#8 was lost"):
        launch.wait_for(ray)

    ray.job = None
    with pytest.raises(UpstreamFailed, match="train#8 was lost"):
        launch.wait_for(ray)


def test_a_job_that_was_stopped_at_the_cluster_was_cancelled(launch: Launch) -> None:
    launch.says("running")
    ray = Ray()
    ray.job = {"status": "STOPPED"}
    with pytest.raises(UpstreamFailed, match="train#8 was cancelled"):
        launch.wait_for(ray)

    (launch.node(0) / attempt_files.OUTCOME).write_text('{"state": "succeeded", "restart": 0}')
    assert launch.wait_for(ray)


def test_a_ray_that_does_not_answer_says_nothing(launch: Launch) -> None:
    launch.says("running")
    ray = Ray(lambda: None, lambda: None, launch.ends)
    ray.silent = True
    assert launch.wait_for(ray)


def test_an_upstream_whose_driver_has_written_nothing_is_waited_for(launch: Launch) -> None:
    def submitted() -> None:
        ray.job = {"status": "PENDING"}

    ray = Ray(submitted, lambda: None, launch.ends)
    assert launch.wait_for(ray)


def test_the_output_of_all_nodes_of_the_last_start_is_copied_into_one_folder(
    launch: Launch, capfd: pytest.CaptureFixture[str]
) -> None:
    (launch.node(0, start=0) / "output/old").write_text("an earlier start")
    one, two = launch.node(0, start=1), launch.node(1, start=1, left=["large"])
    for node in (one, two):
        (node / "output/sub").mkdir()
        (node / "output/sub/same").write_text(node.name)
    (two / "output/other").write_text("two")
    (one / "output/node_1").touch()  # a file where a folder would be
    (two / "output/node_1").mkdir()
    (two / "output/node_1/deep").write_text("two")

    assert launch.read(nodes=2)

    found = {
        str(path.relative_to(launch.inputs)): path.read_text()
        for path in launch.inputs.rglob("*")
        if path.is_file()
    }
    assert found == {
        "node_1": "",
        "node_1_/node_1/deep": "two",
        "node_1_/sub/same": "node_1",
        "other": "two",
        "sub/same": "node_0",
    }
    assert "1 files of train#8 stayed on its nodes" in capfd.readouterr().err


def test_an_upstream_that_left_nothing_has_an_empty_output(launch: Launch) -> None:
    launch.node(0)
    assert launch.read()
    assert list(launch.inputs.iterdir()) == []


def test_an_output_that_is_gone_is_no_empty_output(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier_output, "_VISIBLE", 0.0)
    launch.back.rmdir()
    with pytest.raises(UpstreamFailed, match="train#8 is gone") as raised:
        launch.read()
    assert raised.value.failure == "upstream_failed"


def test_what_is_seen_late_of_an_output_is_waited_for(launch: Launch) -> None:
    def not_stopped() -> bool:
        (launch.node(1) / "output/late").touch()
        return False

    launch.node(0)
    assert launch.read(not_stopped, nodes=2)
    assert [path.name for path in launch.inputs.iterdir()] == ["late"]


def test_a_run_is_stopped_while_it_waits_for_an_output(launch: Launch) -> None:
    launch.node(0)
    assert not launch.read(lambda: True, nodes=2)


def test_an_output_that_is_not_whole_is_not_read(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier_output, "_VISIBLE", 0.0)
    launch.node(0)
    (launch.back / "0/node_1/output").mkdir(parents=True)  # it could not bring all of it

    with pytest.raises(UpstreamFailed, match="what node 1 of train#8 left is not in") as raised:
        launch.read(nodes=2)

    assert raised.value.failure == "staging_failed"
    assert not launch.inputs.exists()


def test_an_output_that_cannot_be_copied_says_why(launch: Launch) -> None:
    (launch.node(0) / "output/file").touch()
    launch.inputs.parent.touch()

    with pytest.raises(UpstreamFailed, match="the output of train#8 cannot be copied") as raised:
        launch.read()

    assert raised.value.failure == "staging_failed"
