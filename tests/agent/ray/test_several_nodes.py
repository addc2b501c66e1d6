"""A Ray cluster over several nodes, each with an agent, on this machine."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.system.processes import variables
from sgpu_decl.rendering.spec import RaySpec
from tests.agent.ray.conftest import DRIVER, SMALL, answer_of_head
from tests.ray_versions import NEWEST_RAY, OLDEST_RAY, interpreter_with

pytestmark = pytest.mark.ray

WAITS = """
def main():
    import ray
    ray.init()
    leave("up", os.environ["RAY_ADDRESS"])
    while True: signal.pause()
"""


@pytest.fixture
def make_cluster(make_nodes: Any, ray_python: str) -> Callable[..., Any]:
    """Make a run of several nodes whose `main` is the driver."""

    def make(source: str, *, ray: dict[str, Any] | None = None, **fields: Any) -> Any:
        spec = RaySpec(**{**SMALL, **(ray or {})})
        fields = {"world_size": 2, "per": "node", "python": ray_python, **fields}
        return make_nodes(DRIVER + source, ray=spec, **fields)

    return make


def _pid(nodes: Any, node: int, name: str) -> int:
    """Return the pid of a process of Ray on a node, by the agent that it descends from."""
    parent = nodes.events("ray_started", node)[-1]["pid"]
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    for pid in children:
        with suppress(OSError):  # it has just ended
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                return int(pid)
    raise AssertionError(f"node {node} has no {name}")


def _until_up(nodes: Any) -> None:
    nodes.attempt.until((nodes.attempt.folder / "output" / "up").exists)


def test_tasks_run_on_all_nodes_with_the_code_of_the_run(make_cluster: Any) -> None:
    source = """
def main():
    import ray
    ray.init()
    @ray.remote(resources={"each": 1})
    def task():
        import beside
        return [os.environ.get("RANK"), beside.__file__, ray.get_runtime_context().get_node_id()]
    return ray.get([task.remote() for _ in range(2)])
"""
    nodes = make_cluster(source, ray={"resources": {"each": 1.0}})
    beside = nodes.attempt.folder / "code" / "beside.py"
    beside.write_text("import time; time.sleep(0.5)")
    assert nodes.all().wait() == [0, 0]
    (told,) = nodes.values()
    assert [item[:2] for item in told] == [[None, str(beside)]] * 2
    assert len({item[2] for item in told}) == 2
    status = nodes.read()
    assert [(rank["rank"], rank["node_rank"]) for rank in status["ranks"]] == [(0, 0)]
    assert status["ray"]["nodes"] == 2
    assert nodes.read(1)["state"] == "succeeded"


@pytest.mark.expensive
def test_a_killed_raylet_of_another_node_is_named(make_cluster: Any) -> None:
    nodes = make_cluster(WAITS).all()
    _until_up(nodes)
    os.kill(_pid(nodes, 1, "raylet"), signal.SIGKILL)
    assert nodes.wait() == [1, 1]
    cause = nodes.read()["first_cause"]
    assert cause["class"] == "node_lost"
    assert cause["summary"] == "`raylet` of Ray on node 1 was killed with SIGKILL"
    assert "raylet" in cause["traceback"]
    kept = nodes.attempt.folder / "output" / "ray_logs" / "0"
    for node in ("node_0", "node_1"):
        assert list((kept / node).iterdir())


@pytest.mark.expensive
@NEWEST_RAY
def test_a_node_that_does_not_join_is_named_with_its_last_lines(
    make_cluster: Any, tmp_path: Path
) -> None:
    nodes = make_cluster("def main(): pass", ray={"worker_join_timeout": 3.0})
    (tmp_path / "sitecustomize.py").write_text("import sys; print('of node 1', file=sys.stderr)")
    nodes.start(0)
    nodes.start(1, "env", f"PYTHONPATH={tmp_path}")
    nodes.attempt.until(lambda: nodes.events("ray_started", 1))
    nodes.attempt.until(lambda: nodes.events("ray_head_starting"))
    nodes.attempt.until(lambda: nodes.read().get("waiting_for") == "the head of the Ray cluster")
    os.kill(nodes.events("ray_started", 1)[0]["pid"], signal.SIGSTOP)
    nodes.attempt.until(lambda: nodes.events("ray_head_ready"))
    nodes.attempt.until(
        lambda: nodes.read().get("waiting_for") == "1 of 2 nodes to join the Ray cluster"
    )
    assert nodes.wait() == [1, 1]
    assert "waiting_for" not in nodes.read()
    cause = nodes.read()["first_cause"]
    assert cause["class"] == "platform"
    assert cause["summary"] == (
        "node 1 did not join the Ray cluster within the worker_join_timeout of 3 s"
    )
    assert cause["traceback"] == "node 1 wrote last:\nof node 1"


@pytest.mark.expensive
@NEWEST_RAY
def test_a_cancel_gives_the_driver_its_grace_with_the_whole_cluster(make_cluster: Any) -> None:
    source = """
def main():
    import ray
    ray.init()
    def term(*_):
        leave("nodes", str(sum(node["Alive"] for node in ray.nodes())))
        raise SystemExit(1)
    signal.signal(signal.SIGTERM, term)
    leave("up")
    while True: signal.pause()
"""
    nodes = make_cluster(source, grace=30.0).all()
    _until_up(nodes)
    nodes.agents[1].terminate()
    assert nodes.wait() == [130, 130]
    assert (nodes.attempt.folder / "output" / "nodes").read_text() == "2"


@pytest.mark.expensive
@NEWEST_RAY
def test_the_head_of_several_nodes_answers_nobody_without_the_token(
    make_cluster: Any, ray_python: str
) -> None:
    nodes = make_cluster(WAITS, grace=0.5).all()
    _until_up(nodes)
    address = (nodes.attempt.folder / "output" / "up").read_text()
    for node in range(2):
        parent = nodes.events("ray_started", node)[-1]["pid"]
        found = variables(parent)
        assert found["RAY_AUTH_MODE"] == "token"
        assert answer_of_head(ray_python, address, found["RAY_AUTH_TOKEN_PATH"]) == "2"
    assert "uthenticat" in answer_of_head(ray_python, address, None)
    nodes.agents[0].terminate()
    assert nodes.wait() == [130, 130]


@pytest.mark.expensive
def test_a_lost_agent_ends_the_cluster_on_all_nodes(make_cluster: Any) -> None:
    nodes = make_cluster(WAITS).all()
    _until_up(nodes)
    for pid in (nodes.agents[0].pid, nodes.supervisor(0)):
        os.kill(pid, signal.SIGKILL)
    nodes.attempt.until(lambda: not nodes.attempt.left())
    assert nodes.agents[1].wait(60) == 1
    assert nodes.read(1)["class"] == "node_lost"


@pytest.mark.expensive
def test_other_versions_of_ray_are_refused_before_anything_starts(make_nodes: Any) -> None:
    oldest = Path(interpreter_with(OLDEST_RAY))
    (packages,) = oldest.parents[1].glob("lib/python3*/site-packages")
    ray = RaySpec(**SMALL)
    nodes = make_nodes("def main(): pass", ray=ray, world_size=2, per="node")
    nodes.start(0)
    nodes.start(1, "env", f"PYTHONPATH={packages}")
    assert nodes.wait() == [1, 1]
    cause = nodes.read()["first_cause"]
    assert cause["class"] == "launch_failed_user"
    assert f"node 1 has Ray {OLDEST_RAY} and Python" in cause["summary"]
    assert not nodes.events("ray_head_starting")


@pytest.mark.expensive
@NEWEST_RAY
def test_a_node_that_lacks_something_keeps_the_cluster_from_starting(make_cluster: Any) -> None:
    nodes = make_cluster("def main(): pass")
    nodes.start(0)
    nodes.start(1, also=("--unprepared", "staging_failed", "node 1 has no code"))
    assert nodes.wait() == [1, 1]
    cause = nodes.read()["first_cause"]
    assert (cause["class"], cause["summary"]) == ("staging_failed", "node 1 has no code")
    assert not nodes.events("ray_head_starting")


@pytest.mark.expensive
def test_it_spans_two_hosts(make_cluster: Any, two_hosts: tuple[str, str, str]) -> None:
    source = """
def main():
    import ray
    ray.init()
    return sorted(node["NodeManagerAddress"] for node in ray.nodes())
"""
    nodes = make_cluster(source).on_hosts(two_hosts)
    assert nodes.wait() == [0, 0], nodes.read()["first_cause"]
    assert nodes.values() == [["10.77.0.1", "10.77.0.2"]]
