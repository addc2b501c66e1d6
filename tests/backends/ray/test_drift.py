"""What a plan says after something happened to an attempt at its cluster, without sgpu."""

import copy
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.backends.ray.api.dashboard import Dashboard
from sgpu_decl.backends.ray.api.dashboard_address import DashboardAddress
from sgpu_decl.backends.ray.api.dashboard_credentials import Credentials
from sgpu_decl.backends.ray.launching.jobs import stop_job
from sgpu_decl.testing.contracts.backend_bench import BackendBench, BackendCase
from sgpu_decl.testing.ray_cluster import ray_cluster
from tests.backends.ray.answers import Answers, answering, recorded
from tests.ray_versions import BOTH_RAYS, interpreter_with

JOB = "/api/jobs/*"


def bench_at(url: str, folder: Path, **block: Any) -> BackendBench:
    shared = folder / "shared"
    shared.mkdir()
    block = {"kind": "ray", "address": url, "storage": str(shared), **block}
    one = {"type": "CPU", "gpus": 1, "backend": block, "mlflow": {"enabled": False}}
    case = BackendCase(
        fields=one, pair={**one, "gpus": 2}, many=one, secret=("", ""), missing="",
        environ={f"XDG_{name}_HOME": str(folder / name) for name in ("DATA", "CACHE", "STATE")},
    )  # fmt: skip
    return BackendBench(case, folder)


@pytest.fixture
def cluster() -> Iterator[Answers]:
    """A cluster that takes jobs and starts none."""
    with answering(recorded("2.60.0")) as answers:
        answers.by_path["/api/packages/gcs/*"] = {}
        yield answers


@pytest.fixture
def bench(cluster: Answers, tmp_path: Path) -> BackendBench:
    """A run that was submitted, and whose driver wrote nothing."""
    bench = bench_at(cluster.url, tmp_path)
    bench.declare("hold", args={"gate": str(bench.gate)})
    bench.done("apply", "-y", "--detach")
    assert ("POST /api/jobs/", None) in cluster.requests
    return bench


def test_nothing_of_the_user_is_in_the_words_that_a_shell_reads(
    cluster: Answers, tmp_path: Path
) -> None:
    """Ray starts a job through a shell."""
    bench = bench_at(cluster.url, tmp_path, resources_per_rank={"CPU": 0.5})
    evil = "'; touch $(pwd)/evil\n\"`id`"
    bench.declare("hold", args={"gate": evil}, description=evil, tags={"evil": evil})
    bench.done("apply", "-y", "--detach")
    (body,) = (body for request, body in cluster.bodies if request == "POST /api/jobs/")
    assert b"evil" not in body
    assert b"touch" not in body


def job_of(cluster: Answers, number: int, **fields: Any) -> dict[str, Any]:
    """The recorded job that runs (0), succeeded, failed, or was stopped (3)."""
    return {**cluster.by_path["/api/jobs/"][number], **fields}


def change_of(bench: BackendBench) -> tuple[str, str, str]:
    """What a plan would do; a cluster that has lost a node may have too little room for that."""
    (change,) = bench("plan", "-o", "json").data["changes"]
    return change["action"], change["reason"], change["prior"]["state"]


def test_a_job_that_runs_is_attached_to(cluster: Answers, bench: BackendBench) -> None:
    rows = cluster.by_path["/api/v0/nodes"]["data"]["result"]["result"]
    cluster.by_path[JOB] = job_of(cluster, 0, driver_node_id=rows[0]["node_id"])
    assert change_of(bench) == ("adopt", "already_running", "starting")
    assert "no new GPUs" in bench.done("plan").out


def test_a_job_that_was_stopped_by_hand_is_a_cancelled_run(
    cluster: Answers, bench: BackendBench
) -> None:
    """Somebody wanted it to end, so a plan does not start it again unasked."""
    cluster.by_path[JOB] = job_of(cluster, 3)
    assert change_of(bench) == ("no_op", "cancelled_by_user", "cancelled")
    assert "`--rerun` launches it again" in bench.done("plan").out
    assert bench.done("plan", "--rerun", "hello", "-o", "json").data["summary"]["create"] == 1


def test_a_job_that_was_deleted_by_hand_is_a_lost_run(
    cluster: Answers, bench: BackendBench
) -> None:
    assert JOB not in cluster.by_path
    assert change_of(bench) == ("create", "previous_lost", "lost")
    assert "because: the last attempt was lost" in bench.done("plan").out


def test_a_cluster_that_was_started_again_has_lost_the_run(
    cluster: Answers, bench: BackendBench
) -> None:
    """It has another session, and none of the jobs of the one before."""
    answer = copy.deepcopy(cluster.by_path["/api/version"])
    cluster.by_path["/api/version"] = {**answer, "session_name": "session_of_today"}
    assert change_of(bench) == ("create", "previous_lost", "lost")


def test_a_driver_whose_node_died_is_a_lost_run(cluster: Answers, bench: BackendBench) -> None:
    """Ray goes on to say that its job is running."""
    cluster.by_path[JOB] = job_of(cluster, 0, driver_node_id="of-a-node-that-died")
    assert change_of(bench) == ("create", "previous_lost", "lost")


def test_a_cluster_that_is_silent_has_lost_nothing(cluster: Answers, bench: BackendBench) -> None:
    cluster.by_path = {}
    cluster.by_path[JOB] = (503, "starting")
    assert change_of(bench) == ("adopt", "already_running", "starting")


@pytest.mark.ray
@pytest.mark.expensive
@pytest.mark.parametrize("version", BOTH_RAYS)
def test_a_real_cluster_is_read_the_same(version: str, tmp_path: Path) -> None:
    python = interpreter_with(version)
    with ray_cluster(nodes=2, cpus=2, python=python) as cluster:
        bench = bench_at(cluster.url, tmp_path, ranks_per_node=1)
        bench.declare("hold", like="pair", args={"gate": str(bench.gate)}, retry={"max": 0})

        bench.launched()
        bench.up(ranks=2)
        (job,) = cluster.get("/api/jobs/")
        with closing(Dashboard(DashboardAddress(url=cluster.url), Credentials())) as ray:
            stop_job(ray, job["submission_id"])
        assert bench.ended()["state"] == "cancelled"
        assert change_of(bench) == ("no_op", "cancelled_by_user", "cancelled")

        for gate in bench.gate.iterdir():
            gate.unlink()
        bench.done("apply", "-y", "--detach", "--rerun", "hello")
        bench.up(ranks=2)
        cluster.kill_node(1)
        run = bench.ended()
        assert run["state"] == "failed"
        # The processes of a node end one after the other.
        assert run["first_cause"]["class"] in ("node_lost", "killed")
        assert change_of(bench) == ("create", "previous_failed", "failed")
