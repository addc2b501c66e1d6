"""Whatever answer of the dashboard is lost: the next command goes on, and there is one job."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.testing.ray_cluster import RayCluster
from tests.backends.ray.cluster_run import ClusterRun, assert_gone
from tests.backends.ray.lossy_proxy import LossyProxy, lossy_proxy
from tests.ray_versions import OLDEST_RAY

pytestmark = [pytest.mark.ray, pytest.mark.expensive]

PACKAGE = "PUT /api/packages/gcs/sgpu_"
TRIES = 30
"""More than a command has requests."""


@pytest.fixture
def proxy(cluster: RayCluster) -> Iterator[LossyProxy]:
    with lossy_proxy(cluster.url) as running:
        yield running


@pytest.mark.parametrize(
    ("cluster", "storage"),
    [("newest", True), ("newest", False), (OLDEST_RAY, False)],
    indirect=["cluster"],
    scope="session",
)
def test_a_launch_is_one_job_although_the_first_answer_to_each_request_is_lost(
    cluster: RayCluster, proxy: LossyProxy, tmp_path: Path, *, storage: bool
) -> None:
    run = ClusterRun(cluster, tmp_path, storage=storage, address=proxy.url)
    gate = str(run.bench.gate)
    before = 0
    if not storage:  # a depot has the code then
        run.bench.declare("value", args={"gate": gate}, gpus=1)
        run.bench.ran()
        before = 1
    run.bench.declare("value", args={"gate": gate, "n": 1}, gpus=1)
    proxy.loses_each = True

    assert_succeeds(run, "apply", "-y", "--detach")

    assert run.bench.ended()["state"] == "succeeded"
    assert "POST /api/jobs/" in proxy.lost
    assert any(request.startswith(PACKAGE) for request in proxy.lost)
    assert (len(run.jobs), run.bench.launches) == (before + 1, before + 1)
    put = {one.rpartition("/")[2] for one in proxy.requests if one.startswith(PACKAGE)}
    environments = [job["runtime_env"] or {} for job in cluster.get("/api/jobs/")]
    assert put <= {one.get("working_dir", "").removeprefix("gcs://") for one in environments}


@pytest.mark.parametrize(
    ("cluster", "storage"),
    [("newest", False), (OLDEST_RAY, True)],
    indirect=["cluster"],
    scope="session",
)
def test_a_run_is_watched_and_cancelled_although_first_answers_are_lost(
    cluster: RayCluster, proxy: LossyProxy, tmp_path: Path, *, storage: bool
) -> None:
    run = ClusterRun(cluster, tmp_path, storage=storage, address=proxy.url)
    run.hold()
    processes = run.processes
    proxy.loses_each = True

    for words in (("status",), ("logs", "hello"), ("cancel", "hello", "--no-wait")):
        assert_succeeds(run, *words)

    assert_gone(processes)
    assert run.bench.ended()["state"] == "cancelled"
    assert any(request.endswith(".cancel") for request in proxy.lost)
    for words in (("show", "hello#1"), ("fetch", "hello"), ("gc", "-y", "--all")):
        proxy.lost.clear()
        assert_succeeds(run, *words)
    assert len(run.jobs) == 1
    assert run.keys() == []


def assert_succeeds(run: ClusterRun, *words: str) -> None:
    """A command succeeds at last, and says each time why it did not."""
    for _ in range(TRIES):
        answer = run.bench(*words)
        if answer.code == 0:
            return
        assert "error[" in answer.err
    raise AssertionError(answer)
