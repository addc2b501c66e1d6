"""What a run asks of a cluster: room within a time, another attempt on other nodes, a Python, an
end."""

import json
import os
import signal
from typing import Any

import pytest

from sgpu_decl.backends.ray.launching import ray_node_program
from tests.backends.ray.cluster_run import ClusterRun, assert_gone, cause
from tests.backends.ray.test_kills import assert_saved, hold_gracefully, kill
from tests.ray_versions import NEWEST_CLUSTER, OLDEST_RAY, interpreter_with
from tests.support import until

pytestmark = [pytest.mark.ray, pytest.mark.expensive]

TELL = """\
import os, sys, time

def where():
    return sys.executable

def flood(megabytes):
    line = "x" * 99
    began = time.monotonic()
    for number in range(megabytes * 10):
        print((line + "\\n") * 1000, end="")
        time.sleep(max(0.0, began + number / 100 - time.monotonic()))
"""


def lose_a_node(run: ClusterRun) -> None:
    """Kill a node. The head sends jobs there until its dashboard knows that the node is dead."""
    run.cluster.kill_node(1)
    until(lambda: '"DEAD"' in json.dumps(run.cluster.get("/nodes?view=summary")))


def test_a_cluster_that_has_become_too_small_ends_the_run_after_a_while(
    own_run: ClusterRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_node_program, "_INFEASIBLE", 8.0)  # of 60 s
    own_run.bench.declare("value", args={"gate": str(own_run.bench.gate)})
    own_run.bench.done("plan", "--out", "two.plan")
    lose_a_node(own_run)

    own_run.bench.done("apply", "--detach", "two.plan")
    until(lambda: own_run.bench.status()["state"] == "queued")
    waiting = own_run.bench.status()
    run = own_run.bench.ended()

    assert waiting["waiting_for"] == "2 × 1 CPU; 8 of 8 free"  # noqa: RUF001
    assert cause(run)[:2] == ("failed", "capacity")
    assert "the cluster has no room for 2 × 1 CPU" in run["first_cause"]["summary"]  # noqa: RUF001
    own_run.assert_frees_everything()


def test_groups_that_fit_alone_and_not_together_end_the_run_too(
    own_run: ClusterRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray waits for ever for these: it looks at one bundle after the other."""
    monkeypatch.setattr(ray_node_program, "_INFEASIBLE", 8.0)  # of 60 s
    packed = own_run.fields(strategy="pack", resources_per_rank={"CPU": 5})
    own_run.bench.declare("value", args={"gate": str(own_run.bench.gate)}, **packed)
    own_run.bench.done("plan", "--out", "two.plan")
    lose_a_node(own_run)

    own_run.bench.done("apply", "--detach", "two.plan")
    run = own_run.bench.ended()

    assert cause(run)[:2] == ("failed", "capacity")
    assert "the cluster has no room for 2 × 5 CPU" in run["first_cause"]["summary"]  # noqa: RUF001


@NEWEST_CLUSTER
def test_a_run_that_gets_no_nodes_within_its_startup_timeout_fails(run: ClusterRun) -> None:
    block = run.fields(resources_per_rank={"CPU": 5})["backend"]
    hold_gracefully(run, backend=block)
    other = run.bench.beside("other")
    other.declare("value", args={"gate": str(other.gate)}, backend=block, startup_timeout="3s")

    ended = other.ran()

    assert cause(ended)[:2] == ("failed", "capacity")
    assert ended["first_cause"]["summary"] == (
        "the cluster had no room within the `startup_timeout` of 3 s for 2 × 5 CPU; 6 of 16 free"  # noqa: RUF001
    )
    assert run.bench.status()["state"] == "running"

    # It is cancelled twice, and its ranks have their grace.
    run.bench.done("cancel", "hello", "--no-wait")
    run.bench.done("cancel", "hello")
    assert_saved(run)
    assert run.bench.ended()["state"] == "cancelled"
    run.assert_frees_everything()


@pytest.mark.parametrize(
    ("cluster", "victims"),
    [
        *(("newest", victims) for victims in ("actors", "node_programs", "ranks")),
        (OLDEST_RAY, "actors"),
    ],
    indirect=["cluster"],
    scope="session",
)
def test_a_lost_node_leads_to_new_nodes_where_retry_wants_them(
    run: ClusterRun, victims: str
) -> None:
    run.hold(retry={"on": ["infra"], "max": 1, "backoff": "100ms"})
    first = run.processes
    for marker in run.bench.gate.glob("up-*"):
        marker.unlink()

    kill(getattr(run, victims)[1])

    run.bench.up(ranks=2)
    run.bench.go()
    ended = run.bench.ended()
    assert (ended["state"], ended["attempt"]) == ("succeeded", 1)
    assert_gone(first)
    run.assert_frees_everything()


@NEWEST_CLUSTER
def test_ranks_run_with_the_python_that_the_backend_block_names(run: ClusterRun) -> None:
    python = interpreter_with(OLDEST_RAY)
    (run.bench.project / "tell.py").write_text(TELL)
    fields: dict[str, Any] = run.fields(python=python)
    run.bench.declare("value", entrypoint="tell.py:where", **fields)

    assert run.bench.ran()["state"] == "succeeded"

    assert {os.path.dirname(value) for _, value in run.bench.results()} == {os.path.dirname(python)}


@NEWEST_CLUSTER
def test_a_python_that_is_not_on_a_node_is_the_mistake_of_the_file(run: ClusterRun) -> None:
    run.bench.declare(
        "value", args={"gate": str(run.bench.gate)}, **run.fields(python="/no/such/python")
    )

    ended = run.bench.ran()

    assert cause(ended)[:2] == ("failed", "launch_failed_user")
    assert "`/no/such/python`, the `python` of the backend" in ended["first_cause"]["summary"]


def test_a_driver_that_does_not_answer_is_ended_by_ray(run: ClusterRun) -> None:
    run.hold()
    processes = run.processes
    os.kill(run.driver, signal.SIGSTOP)

    cancelled = run.bench.done("cancel", "hello")

    assert "Ray was asked to end the job" in cancelled.err
    assert_gone(processes)
    assert run.bench.ended()["state"] == "cancelled"


@NEWEST_CLUSTER
def test_all_lines_of_a_rank_that_writes_10_mb_a_second_are_followed(run: ClusterRun) -> None:
    (run.bench.project / "tell.py").write_text(TELL)
    fields: dict[str, Any] = run.fields()
    run.bench.declare(
        "flood", entrypoint="tell.py:flood", args={"megabytes": 50}, **{**fields, "gpus": 1}
    )
    run.bench.launched()

    followed = run.bench.done("logs", "hello", "-f")

    assert followed.out.count("x" * 99) == 500_000
    assert run.bench.ended()["state"] == "succeeded"
    (job,) = run.jobs
    log = run.cluster.get(f"/api/jobs/{job['submission_id']}/logs")["logs"]
    assert log.count("[rank 0] " + "x" * 99) == 500_000
