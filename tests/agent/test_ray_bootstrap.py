"""What agent 0 shows while the Ray cluster of a run comes up."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sgpu_decl.agent.attempt.attempt_record import AttemptRecord
from sgpu_decl.agent.ray.ray_bootstrap import RayBootstrap


def bootstrap(record: AttemptRecord, count: int) -> RayBootstrap:
    """One of `count` nodes that have imported Ray, without processes."""
    ray: Any = RayBootstrap.__new__(RayBootstrap)
    ray._node = SimpleNamespace(count=count, number=0)
    ray._record, ray._ending, ray._is_complete = record, False, False
    ray._versions, ray._metrics, ray._late = {0: ("2", "3")}, {}, None
    ray._options = {"metrics_interval": 1, "worker_join_timeout": 1}
    ray._loop = SimpleNamespace(cancel=lambda *_: None, after=lambda *_: None)
    ray._team = SimpleNamespace(order_ray=lambda _: None)
    ray._monitor = SimpleNamespace(start=lambda *_: None)
    ray._process = SimpleNamespace(
        invitation=dict, dashboard=None, token_path="t", driver_variables=dict
    )
    ray.on_complete = lambda _: None
    built: RayBootstrap = ray
    return built


READY = {"ready": {"metrics": "x"}}


def test_a_node_that_is_ready_after_the_cluster_is_complete_is_not_waited_for(
    tmp_path: Path,
) -> None:
    record = AttemptRecord(str(tmp_path), 1, "starting", 3)
    ray = bootstrap(record, 3)
    ray.reported(0, READY)
    assert record.snapshot["waiting_for"] == "2 of 3 nodes to join the Ray cluster"
    ray.reported(0, {"complete": {}})
    ray.reported(1, READY)
    assert record.snapshot["waiting_for"] is None


def test_no_node_is_missing_once_all_are_ready(tmp_path: Path) -> None:
    record = AttemptRecord(str(tmp_path), 1, "starting", 2)
    ray = bootstrap(record, 2)
    ray.reported(0, READY)
    ray.reported(1, READY)
    assert record.snapshot["waiting_for"] is None
