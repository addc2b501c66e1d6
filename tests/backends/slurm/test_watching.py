"""How runs on Slurm end, and what is seen of them meanwhile."""

import os
import shutil
import signal
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.system.processes import command_line
from sgpu_decl.testing.contracts.backend_bench import BackendBench, until
from sgpu_decl.testing.slurm_cluster import SlurmCluster, slurm_cluster
from tests.backends.slurm.conftest import Benches
from tests.lossy_sbatch import LossySbatch

AGAIN = {"max": 1, "on": ["infra"]}
PROGRAM = """
import os, pathlib, signal, time

def told(names):
    return {name: os.environ.get(name) for name in names} | {
        "slurm": sorted(name for name in os.environ if name.startswith(("SLURM", "PMI")))
    }

def patient(gate):
    "Run until the second start, or until it was asked to stop."
    start = len(list(pathlib.Path(gate).glob("start-*")))
    pathlib.Path(gate, f"start-{start}").touch()
    print("word", len(os.environ.get("WORD", "")), flush=True)
    while not start:
        time.sleep(0.05)
    return start

def saver(gate):
    "Save a step whenever it is asked to stop; the work is done with the second."
    step = pathlib.Path(os.environ["SGPU_OUTPUT_DIR"], "step")
    before = os.environ.get("SGPU_PREVIOUS_OUTPUT_DIR")
    steps = int(pathlib.Path(before, "step").read_text()) if before else 0
    def save(*_):
        step.write_text(str(steps + 1))
        raise SystemExit(0)
    signal.signal(signal.SIGTERM, save)
    pathlib.Path(gate, f"start-{steps}").touch()
    while steps < 2:
        time.sleep(0.05)
    return steps
"""


@pytest.fixture
def forgetful_cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster(remembers=2) as cluster:
        yield cluster


@pytest.fixture
def forgetful(
    forgetful_cluster: SlurmCluster, benches: Benches
) -> tuple[SlurmCluster, BackendBench]:
    """A cluster that forgets jobs at once, for a test that may stop its controller."""
    return forgetful_cluster, benches(forgetful_cluster)


def declared(bench: BackendBench, function: str, **fields: Any) -> None:
    (bench.project / "more.py").write_text(textwrap.dedent(PROGRAM))
    bench.declare("value", **{"entrypoint": f"more.py:{function}", **fields})


def block(bench: BackendBench, **fields: Any) -> dict[str, Any]:
    return {**bench.case.pair["backend"], **fields}


def folder(bench: BackendBench) -> Path:
    return Path(bench.status()["links"]["folder"])


def test_ranks_have_their_devices_and_none_of_slurms_variables(bench: BackendBench) -> None:
    args = {"names": ["CUDA_VISIBLE_DEVICES", "LOCAL_RANK", "NODE_RANK", "MASTER_ADDR"]}
    declared(bench, "told", args=args, type="H100", gpus=4)

    assert bench.ran()["state"] == "succeeded"

    results = [value for _, value in bench.results()]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in results] == ["0,1"] * 4
    assert [one["NODE_RANK"] for one in results] == ["0", "0", "1", "1"]
    assert [one["slurm"] for one in results] == [[]] * 4


@pytest.mark.expensive
def test_variables_that_are_kept_reach_ranks(bench: BackendBench) -> None:
    keeps = block(bench, keep_variables=["SLURM_JOB_*"])
    declared(bench, "told", args={"names": ["SLURM_JOB_ID"]}, backend=keeps)

    run = bench.ran()

    ((_, value),) = bench.results()
    assert value["SLURM_JOB_ID"] == run["links"]["job"]
    assert all(name.startswith("SLURM_JOB_") for name in value["slurm"])


def test_what_a_job_waits_for_is_said_in_words(slurm: SlurmCluster, bench: BackendBench) -> None:
    bench.declare("value", args={"gate": str(bench.gate)}, backend=block(bench, partition="closed"))
    bench.launched()

    until(lambda: "down" in (bench.status()["waiting_for"] or ""))

    assert bench.status()["state"] == "queued"
    slurm.command("scontrol", "hold", bench.status()["links"]["job"])
    until(lambda: "holds it" in bench.status()["waiting_for"])
    bench.done("cancel", "hello")
    assert bench.status()["state"] == "cancelled"


def test_a_lost_node_ends_a_run_as_a_failure_of_nodes(
    slurm: SlurmCluster, bench: BackendBench
) -> None:
    bench.declare("hold", like="pair", args={"gate": str(bench.gate)})
    bench.launched()
    bench.up(ranks=2)

    slurm.command("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=test")
    run = bench.ended()
    slurm.resume("n2")

    assert (run["state"], run["first_cause"]["class"]) == ("failed", "node_lost")
    (change,) = bench.done("plan", "-o", "json").data["changes"]
    assert (change["action"], change["reason"]) == ("create", "previous_failed")


@pytest.mark.expensive
def test_a_run_that_retry_covers_starts_again_where_a_node_is_lost(
    slurm: SlurmCluster, bench: BackendBench
) -> None:
    """See `slurm-restarted-job`."""
    declared(
        bench, "patient", like="pair", args={"gate": str(bench.gate)}, retry=AGAIN,
        env={"secrets": {"WORD": "env:THE_WORD"}},
    )  # fmt: skip
    bench._environ["THE_WORD"] = "four"
    bench.launched()
    until((bench.gate / "start-1").exists)

    slurm.command("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=test")
    until(lambda: bench.status()["state"] == "queued")
    slurm.resume("n2")
    run = bench.ended()

    assert (run["attempt"], run["state"]) == (1, "succeeded")
    assert len(list(bench.gate.glob("start-*"))) == 4
    assert bench.done("logs", "hello", "--rank", "all").out.count("word 4") == 4
    assert not (folder(bench) / "logs/values.json").exists()


@pytest.mark.expensive
@pytest.mark.parametrize("retry", [None, AGAIN])
def test_a_run_that_makes_room_for_others_is_preempted(
    slurm: SlurmCluster, bench: BackendBench, retry: dict[str, Any] | None
) -> None:
    low = block(bench, partition="low", exclusive=True)
    fields = {"retry": retry} if retry else {}
    declared(bench, "patient", args={"gate": str(bench.gate)}, backend=low, **fields)
    bench.launched()
    until((bench.gate / "start-0").exists)

    slurm.command("srun", "--partition=main", "--exclusive", "--nodes=2", "true")
    run = bench.ended()

    if retry is None:
        assert (run["state"], run["first_cause"]["class"]) == ("failed", "preempted")
        assert not (bench.gate / "start-1").exists()
    else:
        assert (run["attempt"], run["state"]) == (1, "succeeded")
        assert (bench.gate / "start-1").exists()


@pytest.mark.expensive
def test_the_time_limit_of_a_partition_ends_a_run_as_its_timeout(
    slurm: SlurmCluster, bench: BackendBench
) -> None:
    declared(bench, "patient", args={"gate": str(bench.gate)})
    bench.launched()
    until((bench.gate / "start-0").exists)

    slurm.command("scontrol", "update", f"JobId={bench.status()['links']['job']}", "TimeLimit=1")
    run = bench.ended()

    assert (run["state"], run["first_cause"]["class"]) == ("failed", "timeout")
    assert "time limit" in run["first_cause"]["summary"]


@pytest.mark.expensive
@pytest.mark.parametrize("chain", [2, 4])
def test_a_chain_goes_on_where_its_job_ended_until_the_work_is_done(
    slurm: SlurmCluster, bench: BackendBench, chain: int
) -> None:
    low = block(bench, partition="low", chain=chain)
    args = {"gate": str(bench.gate)}
    declared(bench, "saver", args=args, backend=low, timeout="80m", grace="5s", resume="auto")
    bench.launched()
    job = f"JobId={bench.status()['links']['job']}"

    for step in range(2):
        until((bench.gate / f"start-{step}").exists)
        slurm.command("scontrol", "update", job, "TimeLimit=1")  # Slurm signals at once
        if chain > step + 1:
            until(lambda: bench.status()["state"] == "queued")
            slurm.command("scontrol", "update", job, "TimeLimit=60")
    run = bench.ended()

    assert run["attempt"] == 1
    if chain == 2:
        assert (run["state"], run["first_cause"]["class"]) == ("failed", "timeout")
        assert "2 of 2 links" in run["first_cause"]["summary"]
    else:
        assert run["state"] == "succeeded"
        assert bench.results() == [(0, 2)]


@pytest.mark.expensive
def test_a_python_that_nodes_do_not_have_is_named(bench: BackendBench) -> None:
    lacks = block(bench, python="/no/such/python3")
    bench.declare("value", args={"gate": str(bench.gate)}, backend=lacks)

    run = bench.ran()

    assert (run["state"], run["first_cause"]["class"]) == ("failed", "launch_failed")
    assert "none of these is a Python 3.10 or newer" in run["first_cause"]["summary"]
    assert "/no/such/python3" in run["first_cause"]["summary"]


@pytest.mark.expensive
def test_a_node_that_cannot_begin_is_named_and_the_others_do_not_wait(
    slurm: SlurmCluster, bench: BackendBench
) -> None:
    closed = block(bench, partition="closed")
    bench.declare("value", like="pair", args={"gate": str(bench.gate)}, backend=closed)
    bench.launched()
    (folder(bench) / "logs/0/1.log").mkdir(parents=True)  # where the second node has its log

    slurm.command("scontrol", "update", f"JobId={bench.status()['links']['job']}", "Partition=main")
    run = bench.ended()

    assert (run["state"], run["first_cause"]["class"]) == ("failed", "staging_failed")
    assert run["first_cause"]["summary"].startswith("node 1 (n2): ")
    assert "Is a directory" in run["first_cause"]["summary"]


@pytest.mark.expensive
def test_a_job_that_does_not_stop_by_itself_is_ended_by_slurm(bench: BackendBench) -> None:
    bench.declare("hold", args={"gate": str(bench.gate)})
    bench.launched()
    bench.up()
    record = bench.record("hello")

    with bench.backend() as backend:
        stop = backend.launcher.forced_stop(record, -1e9)
        assert stop is not None
        assert stop.look() == "it did not stop by itself: Slurm was asked to end its job"
        assert stop.look() is None

    assert bench.ended()["state"] == "cancelled"


@pytest.mark.expensive
def test_a_machine_without_the_storage_says_so_and_takes_nothing_for_lost(
    bench: BackendBench,
) -> None:
    bench.declare("hold", args={"gate": str(bench.gate)})
    bench.launched()
    bench.up()
    storage = Path(bench.case.fields["backend"]["storage"])
    shutil.rmtree(bench.project / ".sgpu/default/runs")
    storage.rename(storage.with_name("elsewhere"))

    with bench.backend() as backend:
        elsewhere = backend.attempts.elsewhere(bench.record("hello"))
        assert elsewhere is not None
        assert f"`{storage}`" in elsewhere.reason
        assert backend.attempts.look([bench.record("hello")]) == {}

    storage.with_name("elsewhere").rename(storage)


@pytest.mark.expensive
def test_a_job_that_somebody_else_cancels_is_cancelled(
    slurm: SlurmCluster, bench: BackendBench
) -> None:
    bench.declare("hold", like="pair", args={"gate": str(bench.gate)})
    bench.launched()
    bench.up(ranks=2)

    slurm.command("scancel", bench.status()["links"]["job"])

    assert bench.ended()["state"] == "cancelled"


@pytest.mark.expensive
def test_a_run_goes_on_and_ends_without_a_controller(
    forgetful: tuple[SlurmCluster, BackendBench],
) -> None:
    cluster, bench = forgetful
    bench.declare("hold", like="pair", args={"gate": str(bench.gate)})
    bench.launched()
    bench.up(ranks=2)
    assert bench.running()["state"] == "running"

    for pid in cluster.processes("slurmctld"):
        os.kill(pid, signal.SIGKILL)
    away = bench.status()
    bench.go()
    run = bench.ended()

    assert (away["state"], away["unavailable"][:23]) == ("running", "Slurm does not answer: ")
    assert run["state"] == "succeeded"
    assert bench.results() == [(0, {"rank": 0, "n": 0}), (1, {"rank": 1, "n": 0})]


@pytest.mark.expensive
def test_a_controller_that_is_started_again_knows_the_run(
    forgetful: tuple[SlurmCluster, BackendBench],
) -> None:
    cluster, bench = forgetful
    bench.declare("hold", args={"gate": str(bench.gate)})
    bench.launched()
    bench.up()
    for pid in cluster.processes("slurmctld"):
        os.kill(pid, signal.SIGKILL)
    assert bench.running()["state"] == "running"

    with cluster.controller():
        until(lambda: bench.status().get("unavailable") is None)
        bench.done("cancel", "hello")
        assert bench.status()["state"] == "cancelled"


@pytest.mark.expensive
@pytest.mark.parametrize("retry", [None, AGAIN])
def test_a_node_program_that_is_killed_is_a_failure_of_nodes(
    slurm: SlurmCluster, bench: BackendBench, retry: dict[str, Any] | None
) -> None:
    fields = {"retry": retry} if retry else {}
    declared(bench, "patient", like="pair", args={"gate": str(bench.gate)}, **fields)
    bench.launched()
    until((bench.gate / "start-1").exists)

    for pid in slurm.job_processes():
        words = command_line(pid).split(b"\0")
        if b"node" in words and b"--lifeline" in words and b"NODE_RANK=1" in _environment(pid):
            folder = Path(words[words.index(b"--run") + 1].decode())
            os.kill(pid, signal.SIGKILL)
    assert folder.is_dir()
    run = bench.ended()

    if retry is None:
        assert (run["state"], run["first_cause"]["class"]) == ("failed", "killed")
    else:
        assert (run["attempt"], run["state"]) == (1, "succeeded")
        assert len(list(bench.gate.glob("start-*"))) == 4
        assert not folder.exists()  # the next program there has deleted it


def _environment(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


@pytest.mark.expensive
def test_how_a_run_ended_is_known_when_slurm_has_forgotten_its_job(
    forgetful: tuple[SlurmCluster, BackendBench],
) -> None:
    cluster, bench = forgetful
    bench.declare("value", args={"gate": str(bench.gate)})
    bench.launched()
    job = bench.status()["links"]["job"]
    until(lambda: job not in cluster.command("squeue", "--states=all", "--format=%i"))
    shutil.rmtree(bench.project / ".sgpu/default/runs")

    assert bench.ended()["state"] == "succeeded"
    assert bench.launches == 1


@pytest.mark.expensive
def test_a_job_that_left_no_word_and_is_forgotten_is_lost(
    forgetful: tuple[SlurmCluster, BackendBench],
) -> None:
    cluster, bench = forgetful
    bench.declare("hold", args={"gate": str(bench.gate)})
    bench.launched()
    bench.up()
    job = bench.status()["links"]["job"]

    pids = cluster.job_processes()
    for number in (signal.SIGSTOP, signal.SIGKILL):  # none lives to see that another one died
        for pid in pids:
            with suppress(ProcessLookupError):  # it ended with another one
                os.kill(pid, number)
    until(lambda: job not in cluster.command("squeue", "--states=all", "--format=%i"))

    run = bench.ended()
    assert (run["state"], run["first_cause"]["class"]) == ("lost", "supervisor_lost")


@pytest.mark.expensive
def test_accounting_says_how_a_job_ended_that_slurm_has_forgotten(
    forgetful: tuple[SlurmCluster, BackendBench], sbatch: LossySbatch
) -> None:
    """A program answers in place of `sacct`, which needs a database."""
    cluster, bench = forgetful
    cluster.command("scontrol", "update", "PartitionName=main", "State=DOWN")
    bench.declare("value", args={"gate": str(bench.gate)})
    bench.launched()
    job = bench.status()["links"]["job"]
    program = sbatch.folder / "sacct"
    program.write_text(f"#!/bin/sh\necho '{job}|hello|NODE_FAIL|None|1788547933|1788632544'\n")
    program.chmod(0o755)

    cluster.command("scancel", job)
    until(lambda: job not in cluster.command("squeue", "--states=all", "--format=%i"))
    run = bench.ended()

    assert (run["state"], run["first_cause"]["class"]) == ("failed", "node_lost")
