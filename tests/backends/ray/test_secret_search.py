"""The value of a secret reaches ranks, and is found nowhere else on a cluster: on no disk, in no
answer of the dashboard, and in the environment of no other process."""

import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sgpu_decl.agent.system.processes import related
from sgpu_decl.testing.file_search import files_with
from sgpu_decl.testing.ray_cluster import RayCluster
from tests.backends.ray.cluster_run import ClusterRun, words

pytestmark = [pytest.mark.ray, pytest.mark.expensive]

VALUE = f"a-value-that-nobody-may-see-{os.getpid()}"  # tests beside this one have secrets, too
LISTS = (
    "/api/jobs/", "/api/v0/jobs?detail=1", "/api/v0/actors?detail=1", "/api/v0/tasks?detail=1",
    "/api/v0/workers?detail=1", "/api/v0/objects?detail=1", "/api/v0/runtime_envs?detail=1",
    "/api/v0/placement_groups?detail=1", "/api/v0/nodes?detail=1", "/nodes?view=summary",
    "/logical/actors", "/api/cluster_status", "/events",
)  # fmt: skip


@pytest.fixture(params=[True, False], ids=["storage", "head"])
def secret_run(
    request: pytest.FixtureRequest, cluster: RayCluster, tmp_path: Path
) -> Iterator[ClusterRun]:
    made = ClusterRun(cluster, tmp_path, {"THE_WORD": VALUE}, storage=request.param)
    made.hold(env={"secrets": {"WORD": "env:THE_WORD"}})
    yield made
    made.bench.close()


def answers_with_it(run: ClusterRun) -> list[str]:
    (job,) = run.jobs
    own = (f"/api/jobs/{job['submission_id']}", f"/api/jobs/{job['submission_id']}/logs")
    found = []
    for path in (*LISTS, *own):
        url = f"{run.cluster.url}{path}"
        # This version of Ray may not have the path.
        with suppress(urllib.error.HTTPError), urllib.request.urlopen(url, timeout=60) as answer:
            if VALUE.encode() in answer.read():
                found.append(path)
    return found


def processes_with_it() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if VALUE.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def test_a_secret_is_in_the_environment_of_ranks_and_nowhere_else(secret_run: ClusterRun) -> None:
    run = secret_run
    folders = (run.cluster.folder, run.shared, run.bench.project,
               Path(tempfile.gettempdir(), f"sgpu-nodes-{os.getuid()}"))  # fmt: skip
    ranks = {pid for rank in run.ranks for pid in (rank, *related(rank))}

    holders = {pid: words(pid) for pid in processes_with_it() if pid not in ranks}
    assert holders == {}
    assert files_with(VALUE.encode(), *folders) == []
    assert answers_with_it(run) == []
    assert run.keys() == []

    run.bench.go()
    assert run.bench.ended()["state"] == "succeeded"
    assert files_with(VALUE.encode(), *folders) == []
    assert answers_with_it(run) == []
