"""A run on a Ray cluster that has a Ray cluster of its own: a cluster inside a cluster."""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.system.processes import related
from sgpu_decl.api import Location, Session
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.testing.ray_cluster import RayCluster, ray_cluster
from tests.ray_versions import interpreter_with
from tests.support import until

pytestmark = [pytest.mark.ray, pytest.mark.expensive]

MARK = "RAY_MARK_OF_THE_OUTER_CLUSTER"
CODE = f"""\
import os

def seen():
    names = ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")
    return ["{MARK}" in os.environ, *[os.environ.get(name, "") for name in names]]

def main(mark):
    import ray

    ray.init()
    task = ray.remote(max_retries=0)(seen)
    if mark is not None and not os.path.exists(mark):
        open(mark, "w").close()
        kill = ray.remote(max_retries=0)(lambda: os.kill(int(os.environ["RAY_RAYLET_PID"]), 9))
        ray.get(kill.remote())
    cpus, nodes = ray.cluster_resources()["CPU"], sum(node["Alive"] for node in ray.nodes())
    return [cpus, nodes, seen(), ray.get(task.remote())]
"""


STARTS = {
    "Ray to be imported on 2 of 2 nodes",
    "the head of the Ray cluster",
    "1 of 2 nodes to join the Ray cluster",
}
"""What the start of a cluster waits for. Each step may be over before anybody looks."""


@pytest.fixture(scope="module", params=["newest", "2.49.1"])
def outer(request: pytest.FixtureRequest) -> Iterator[RayCluster]:
    python = interpreter_with(request.param)
    newest = request.param == "newest"
    with ray_cluster(nodes=2, cpus=4, python=python, token=newest, environ={MARK: "1"}) as running:
        yield running


@pytest.fixture
def opened(outer: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    for name in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    if outer.token is not None:
        monkeypatch.setenv("RAY_AUTH_TOKEN", outer.token)
    storage, project = tmp_path / "storage", tmp_path / "project"
    storage.mkdir()
    project.mkdir()
    (project / "train.py").write_text(CODE)
    run = {
        "name": "inside",
        "gpus": 2,
        "type": "CPU",
        "entrypoint": "train.py:main",
        "args": {"mark": None},
        "ray": {"object_store_memory": "80MB"},
        "retry": {"max": 1, "on": ["infra"], "backoff": "0s"},
        "grace": "500ms",
        "mlflow": {"enabled": False},
        "backend": {
            "kind": "ray", "address": outer.url, "storage": str(storage), "ranks_per_node": 1,
            "resources_per_rank": {"CPU": 2},
        },
    }  # fmt: skip
    (project / "run.yaml").write_text(json.dumps(run))
    return Session.open(Location(file=project / "run.yaml", project=project))


def _ended(opened: Session) -> AttemptRef:
    """Apply the run, see that it says what it waits for, and wait for its end."""
    prepared = opened.plan()
    (check,) = [check for check in prepared.plan.checks if check.code == "ray_cluster"]
    assert check.summary.startswith("Ray cluster: 2 nodes, 4 CPUs")
    (ref,) = opened.apply(prepared).launched
    waited_for = set()

    def over() -> bool:
        status = opened.runs.status(ref)
        if status.waiting_for in STARTS:
            assert status.state is AttemptState.STARTING
        elif status.state is AttemptState.RUNNING:
            assert status.ray is not None, "the ranks run before the cluster of the run is complete"
        waited_for.add(status.waiting_for)
        return not status.state.active

    until(over)
    assert waited_for & STARTS, waited_for
    return ref


def _raylets(outer: RayCluster) -> list[int]:
    """The raylets of all clusters on its nodes."""
    found = []
    for node in outer.nodes:
        for pid in related(node.pid):
            with suppress(OSError):  # it has just ended
                if Path(f"/proc/{pid}/comm").read_text().strip() == "raylet":
                    found.append(pid)
    return found


def test_it_knows_nothing_of_the_outer_one_and_has_the_processors_of_its_run(
    opened: Session, outer: RayCluster
) -> None:
    ref = _ended(opened)
    status = opened.runs.status(ref)
    assert status.state is AttemptState.SUCCEEDED, status
    value: Any = opened.runs.results(ref)[0]["value"]
    cpus, nodes, of_driver, of_task = value
    assert (cpus, nodes) == (4.0, 2)
    for marked, address, mode, token in (of_driver, of_task):
        assert not marked
        assert address != outer.address
        assert (mode, os.path.basename(token)) == ("token", "token")
    assert of_driver[1]
    until(lambda: len(_raylets(outer)) == 2)


def test_a_lost_raylet_of_it_is_followed_by_a_new_one(
    opened: Session, outer: RayCluster, tmp_path: Path
) -> None:
    file = tmp_path / "project" / "run.yaml"
    run = json.loads(file.read_text())
    file.write_text(json.dumps({**run, "args": {"mark": str(tmp_path / "mark")}}))
    ref = _ended(opened)
    status = opened.runs.status(ref)
    assert status.state is AttemptState.SUCCEEDED, status
    assert status.restart == 1
    assert "`raylet` of Ray on node" in status.restarts[0].summary
    logs = opened.runs.output(ref).folder / "ray_logs" / "0"
    for node in ("node_0", "node_1"):
        assert any(path.is_file() for path in (logs / node).rglob("*")), node
    until(lambda: len(_raylets(outer)) == 2)
