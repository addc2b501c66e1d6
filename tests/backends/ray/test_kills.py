"""Nothing of a run stays on any node, whatever is killed, and its state says so: on real clusters,
whose nodes are processes of this machine."""

import os
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.backends.ray.cluster_run import ClusterRun, assert_gone, cause, words
from tests.ray_versions import OLDEST_RAY
from tests.support import until

pytestmark = pytest.mark.ray


CLASSES = {
    "actors": {"node_lost"},
    "node_programs": {"killed", "node_lost"},
    "supervisors": {"supervisor_lost", "node_lost"},
    "ranks": {"killed"},
}
"""What ends a run whose process on a node was killed. Ray may be the first to say so."""

LAST_RECORDED = ("running", "stopping")
"""The states of a run whose head is gone: a process of it may notice the end of another first."""

GRACEFUL = """\
import os, pathlib, signal, sys, time

def hold(gate):
    def save(*_):
        time.sleep(0.5)
        pathlib.Path(gate, f"saved-{rank}").touch()
        sys.exit(1)

    rank = os.environ["RANK"]
    signal.signal(signal.SIGTERM, save)
    pathlib.Path(gate, f"up-0-{rank}").touch()
    while True:
        time.sleep(0.01)
"""
"""Ranks that need half a second after SIGTERM to save their work."""


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.mark.expensive
def test_a_driver_that_is_killed_takes_all_with_it(run: ClusterRun) -> None:
    run.hold()
    processes = run.processes
    assert len(processes) >= 11  # driver; actor, node program, guardian, supervisor, rank: twice

    kill(run.driver)

    assert_gone(processes)
    assert cause(run.bench.ended())[:2] == ("lost", "supervisor_lost")
    (change,) = run.bench.done("plan", "-o", "json").data["changes"]
    assert (change["action"], change["reason"]) == ("create", "previous_lost")
    run.assert_frees_everything()


@pytest.mark.expensive
def test_a_supervisor_of_ray_that_is_killed_takes_all_with_it(run: ClusterRun) -> None:
    run.hold()
    processes = run.processes

    kill(run.job_supervisor)

    assert_gone(processes)
    assert cause(run.bench.ended())[:2] == ("failed", "platform")
    run.assert_frees_everything()


@pytest.mark.expensive
@pytest.mark.parametrize(
    ("cluster", "victims", "node"),
    [
        *(("newest", victims, node) for victims in CLASSES for node in (0, 1)),
        *((OLDEST_RAY, victims, number % 2) for number, victims in enumerate(CLASSES)),
    ],
    indirect=["cluster"],
    scope="session",
)
def test_a_process_that_is_killed_on_a_node_ends_the_run(
    run: ClusterRun, victims: str, node: int
) -> None:
    run.hold()
    processes = run.processes

    kill(getattr(run, victims)[node])

    assert_gone(processes)
    ended = run.bench.ended()
    state, failure, _ = cause(ended)
    assert state in ("failed", "lost")
    assert failure in CLASSES[victims]
    if victims == "actors":
        assert "the worker process there" in ended["first_cause"]["summary"]
    run.assert_frees_everything()


@pytest.mark.expensive
def test_a_guardian_that_is_killed_ends_nothing(run: ClusterRun) -> None:
    run.hold()

    kill(run.guardians[0])
    run.bench.go()

    assert run.bench.ended()["state"] == "succeeded"


@pytest.mark.expensive
def test_a_raylet_that_is_killed_ends_the_run(own_run: ClusterRun) -> None:
    own_run.hold()
    processes = own_run.processes

    kill(*own_run.cluster.processes(1, "raylet"))

    assert_gone(processes)
    ended = own_run.bench.ended()
    assert cause(ended)[:2] == ("failed", "node_lost")
    assert ended["first_cause"]["summary"].endswith(
        "was lost: the raylet there, Ray's process on each node, has ended or cannot be reached"
    )
    own_run.assert_frees_everything()


def hold_gracefully(run: ClusterRun, **fields: Any) -> None:
    """See `ClusterRun.hold`, with ranks that have more time than they need to save their work."""
    (run.bench.project / "graceful.py").write_text(GRACEFUL)
    run.hold(entrypoint="graceful.py:hold", grace="30s", **fields)


def assert_saved(run: ClusterRun) -> None:
    """All ranks had their grace."""
    assert sorted(path.name for path in run.bench.gate.glob("saved-*")) == ["saved-0", "saved-1"]


def assert_last_recorded(run: ClusterRun) -> None:
    """Nobody says how a run ended whose cluster does not answer, unless its agents wrote that: the
    first of them may have seen the other node go. Nothing is launched or deleted meanwhile."""
    status = run.bench.status()
    (change,) = run.bench.done("plan", "-o", "json").data["changes"]
    state, failure, *_ = cause(status)
    if state == "failed" and failure in ("node_lost", "killed"):  # processes end one by one
        assert change["reason"] == "previous_failed"
        run.assert_is_freed()
        return
    assert status["state"] in LAST_RECORDED
    assert status["first_cause"] is None
    assert status["unavailable"] is not None
    assert (change["action"], change["reason"]) == ("adopt", "already_running")
    run.bench.done("gc", "-y", "--all", "--keep-last", "0")
    assert run.launch_folder("hello").exists()


@pytest.mark.expensive
def test_a_head_that_is_killed_leaves_nothing_and_the_attempt_as_it_was(
    own_run: ClusterRun,
) -> None:
    own_run.hold()
    processes = own_run.processes

    own_run.cluster.kill_node(0)

    assert_gone(processes)
    assert_last_recorded(own_run)


@pytest.mark.expensive
def test_a_worker_node_that_is_gone_ends_the_run(own_run: ClusterRun) -> None:
    own_run.hold()
    processes = own_run.processes

    own_run.cluster.kill_node(1)

    assert_gone(processes)
    state, failure, *_ = cause(own_run.bench.ended())
    assert state == "failed"
    assert failure in ("node_lost", "killed")  # its processes end one after the other
    own_run.assert_frees_everything()


@pytest.mark.expensive
def test_a_gcs_that_is_killed_leaves_nothing_and_the_attempt_as_it_was(
    own_run: ClusterRun,
) -> None:
    own_run.hold()
    processes = own_run.processes

    kill(*own_run.cluster.processes(0, "gcs_server"))

    assert_gone(processes)
    assert_last_recorded(own_run)


@pytest.mark.expensive
def test_a_job_that_is_stopped_at_the_cluster_is_cancelled(run: ClusterRun) -> None:
    hold_gracefully(run)
    processes = run.processes
    (job,) = run.jobs
    stop = f"{run.cluster.url}/api/jobs/{job['submission_id']}/stop"

    urllib.request.urlopen(urllib.request.Request(stop, method="POST")).close()

    assert_gone(processes)
    assert_saved(run)
    assert run.bench.ended()["state"] == "cancelled"
    run.assert_frees_everything()


@pytest.mark.expensive
def test_folders_of_node_programs_that_were_killed_are_deleted_by_the_next_run(
    run: ClusterRun,
) -> None:
    run.hold()
    lines = [words(pid) for pid in run.node_programs]
    folders = [Path(item[item.index("--run") + 1]) for item in lines]
    assert all(folder.parent == Path(f"/tmp/sgpu-nodes-{os.getuid()}") for folder in folders)
    processes = run.processes
    kill(run.driver)
    assert_gone(processes)
    assert run.bench.ended()["state"] == "lost"
    run.bench.go()

    assert run.bench.ran()["state"] == "succeeded"

    until(lambda: not any(folder.exists() for folder in folders))
