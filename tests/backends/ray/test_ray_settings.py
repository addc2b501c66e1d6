"""Lost requests between the processes of Ray, its own way to end what workers leave, devices that
it does not name, and object stores without a disk to spill to."""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from sgpu_decl.backends.ray.cluster import job_verdict
from sgpu_decl.testing.ray_cluster import RayCluster, ray_cluster
from tests.backends.ray.cluster_run import ClusterRun, assert_gone, cause
from tests.backends.ray.test_kills import assert_last_recorded, kill
from tests.ray_versions import BOTH_RAYS, OLDEST_RAY, interpreter_with
from tests.support import until

pytestmark = [pytest.mark.ray, pytest.mark.expensive]

RETRIED_CALLS = (
    "ray::rpc::InternalKVGcsService.grpc_client.InternalKVGet",
    "ray::rpc::InternalKVGcsService.grpc_client.InternalKVDel",
    "ray::rpc::PlacementGroupInfoGcsService.grpc_client.CreatePlacementGroup",
    "ray::rpc::ActorInfoGcsService.grpc_client.RegisterActor",
    "ray::rpc::ActorInfoGcsService.grpc_client.CreateActor",
)
LEASES = "NodeManagerService.grpc_client.RequestWorkerLease"
"""If some of these are lost, Ray 2.49 may never start the actor."""

CALLS_OF_ACTORS = ("CoreWorkerService.grpc_client.PushTask",)
"""Ray does not make these again, and it starts jobs with one."""


@contextmanager
def cluster_that_loses(calls: Sequence[str], version: str) -> Iterator[RayCluster]:
    """Each process loses 30 % of these calls and 30 % of their answers, at most four of each call:
    see `rpc_chaos.cc` of Ray. Ray 2.49 crashes if its environment sets this. Where the call is lost
    that starts a driver, Ray fails the job after a minute, instead of fifteen."""
    percent = {"num_failures": 4, "req_failure_prob": 30, "resp_failure_prob": 30}
    losses = json.dumps(dict.fromkeys(calls, percent))
    if version == OLDEST_RAY:
        losses = ",".join(f"{call}=4:30:30" for call in calls)
    with ray_cluster(
        nodes=2,
        python=interpreter_with(version),
        environ={"RAY_JOB_START_TIMEOUT_SECONDS": "60"},
        system_config={"testing_rpc_failure": losses},
    ) as running:
        yield running


@pytest.mark.parametrize("version", BOTH_RAYS)
def test_lost_requests_between_the_processes_of_ray_change_nothing(
    version: str, tmp_path: Path
) -> None:
    newer = () if version == OLDEST_RAY else (LEASES,)
    with cluster_that_loses([*RETRIED_CALLS, *newer], version) as lossy:
        run = ClusterRun(lossy, tmp_path)
        for _ in range(2):
            run.bench.declare("value", args={"gate": str(run.bench.gate)}, until="always")
            assert cause(run.bench.ran()) == ("succeeded", None, None)
        assert run.bench.launches == 4
        run.bench.go()


@pytest.mark.parametrize("version", BOTH_RAYS)
def test_a_run_with_lost_calls_of_actors_ends_and_leaves_nothing(
    version: str, tmp_path: Path
) -> None:
    with cluster_that_loses(CALLS_OF_ACTORS, version) as lossy:
        run = ClusterRun(lossy, tmp_path)
        run.bench.declare("value", args={"gate": str(run.bench.gate)})
        run.bench.launched()

        state, failure, _ = cause(run.bench.ended())

        assert state == "succeeded" or failure in ("platform", "node_lost")
        launches = run.bench.gate / "launches"
        ranks = launches.read_text().split() if launches.exists() else []
        assert len(ranks) == len(set(ranks))  # none was started twice
        until(lambda: not run.actors)
        assert len(run.jobs) == 1
        assert run.keys() == []
        run.assert_is_freed()  # Ray itself keeps what it unpacked for a driver that never started


SUBREAPER = {"RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper": "1"}


@pytest.fixture(scope="module")
def unusual() -> Iterator[RayCluster]:
    """A cluster whose raylets end what workers leave, and take each disk for full, and whose
    workers are not told their GPUs."""
    settings = {
        **SUBREAPER,
        "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
        "RAY_local_fs_capacity_threshold": "0.0001",
    }
    python = interpreter_with("newest")
    with ray_cluster(nodes=2, gpus=2, python=python, environ=settings) as running:
        yield running


@pytest.mark.parametrize(
    "victims", ["driver", "job_supervisor", "actors", "node_programs", "supervisors", "ranks"]
)
def test_nothing_is_left_where_ray_itself_ends_what_workers_leave(
    unusual: RayCluster, tmp_path: Path, victims: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_verdict, "_VISIBLE", 5.0)  # of 60 s: the disk is one of this machine
    run = ClusterRun(unusual, tmp_path)
    run.hold()
    processes = run.processes

    victim = getattr(run, victims)
    kill(victim if isinstance(victim, int) else victim[0])

    assert_gone(processes)
    assert run.bench.ended()["state"] in ("failed", "lost")
    run.assert_frees_everything()


@pytest.mark.parametrize("victim", ["raylet", "head"])
def test_nothing_is_left_of_a_node_that_ends_what_workers_leave(
    tmp_path: Path, victim: str
) -> None:
    python = interpreter_with("newest")
    with ray_cluster(nodes=2, python=python, environ=SUBREAPER) as cluster:
        run = ClusterRun(cluster, tmp_path)
        run.hold()
        processes = run.processes

        if victim == "raylet":
            kill(*cluster.processes(1, "raylet"))
        else:
            cluster.kill_node(0)

        assert_gone(processes)
        if victim == "raylet":
            assert run.bench.ended()["first_cause"]["class"] == "node_lost"
            run.assert_frees_everything()
        else:
            assert_last_recorded(run)


SEEN = """\
import os, signal

def seen():
    leaked = ("PYTHONBREAKPOINT", "SPT_NOENV")
    return {
        "leaked": [name for name in os.environ if name.startswith("RAY_") or name in leaked],
        "threads": os.environ["OMP_NUM_THREADS"],
        "devices": os.environ["CUDA_VISIBLE_DEVICES"],
        "niceness": os.nice(0),
        "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    }
"""


@pytest.mark.parametrize(("kind", "devices"), [("GPU", {"0,1"}), ("CPU", {""})])
def test_ranks_find_their_devices_and_nothing_of_a_worker_of_ray(
    unusual: RayCluster, tmp_path: Path, kind: str, devices: set[str]
) -> None:
    run = ClusterRun(unusual, tmp_path)
    (run.bench.project / "tell.py").write_text(SEEN)
    fields = {**run.fields(ranks_per_node=2, resources_per_rank={"CPU": 2}), "type": kind}
    own = {"variables": {"RAY_OWN": "1"}}
    run.bench.declare("", **fields, entrypoint="tell.py:seen", env=own)

    assert run.bench.ran()["state"] == "succeeded"

    values = [value for _, value in run.bench.results()]
    assert {value.pop("devices") for value in values} == devices
    own_niceness = os.nice(0)  # the raylets have it, too; a worker of Ray is at 15 more
    expected = {"leaked": ["RAY_OWN"], "threads": "1", "niceness": own_niceness, "blocked": 0}
    assert values == [{**expected, "interrupt": True}] * 2


LARGE = """\
import hashlib, os, pathlib

def large(size):
    for _ in range(size // 100):
        print("x" * 99)
    content = os.urandom(size)
    pathlib.Path(os.environ["SGPU_OUTPUT_DIR"], os.environ["RANK"]).write_bytes(content)
    here = pathlib.Path("data").read_bytes()
    return [hashlib.sha256(data).hexdigest() for data in (content, here)]
"""


def test_what_an_object_store_cannot_hold_at_once_arrives_whole(
    unusual: RayCluster, tmp_path: Path
) -> None:
    """The object store of each node has 100 MB."""
    run = ClusterRun(unusual, tmp_path, storage=False)
    sent = os.urandom(170_000_000)
    (run.bench.project / "data").write_bytes(sent)
    (run.bench.project / "tell.py").write_text(LARGE)
    run.bench.declare(
        "large", **run.fields(), entrypoint="tell.py:large", args={"size": 40_000_000}
    )

    run.bench.launched()
    followed = run.bench.done("logs", "hello", "-f")

    assert run.bench.ended()["state"] == "succeeded"
    assert followed.out.count("x" * 99) == 400_000
    brought = Path(run.bench.done("fetch", "hello", "-o", "json").data["folder"])
    for rank, (left, arrived) in run.bench.results():
        assert arrived == hashlib.sha256(sent).hexdigest()
        assert left == hashlib.sha256((brought / str(rank)).read_bytes()).hexdigest()
