"""One launch on Slurm, whatever is killed or lost meanwhile."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.backends.slurm.job_script import job_script
from sgpu_decl.testing.contracts.backend_bench import PATIENCE, BackendBench, until
from sgpu_decl.testing.slurm_cluster import SlurmCluster
from tests.lossy_sbatch import LossySbatch
from tests.sampling import sampled

WRITER = "sgpu_decl.storing.sqlite.writer,SqliteWriter"
LAUNCHES = "sgpu_decl.backends.remote.launching.remote_launches,RemoteLaunches"
SLURM = "sgpu_decl.backends.slurm"
STEPS = [
    f"{WRITER},begin,after,1",
    "sgpu_decl.backends.remote.launching.uploader,,fill_launch_folder,after,1",
    f"{LAUNCHES},mark,before,1",
    f"{LAUNCHES},mark,after,1",
    f"{SLURM}.slurm_launcher,SlurmLauncher,_earlier,after,1",
    f"{SLURM}.slurm_launcher,SlurmLauncher,start,after,1",
    f"{LAUNCHES},mark,after,2",
    f"{WRITER},launched,before,1",
    f"{WRITER},launched,after,1",
]


@pytest.mark.parametrize("step", sampled(STEPS, quick=2))
def test_killed_at_a_step_and_applied_again_there_is_one_run(
    bench: BackendBench, step: str
) -> None:
    bench.declare("value", args={"gate": str(bench.gate)})
    bench.killed(step, "apply", "-y", "--detach")

    run = bench.ran()

    assert (run["attempt"], run["state"], bench.launches) == (1, "succeeded", 1)


@pytest.mark.expensive
@pytest.mark.parametrize("how", ["die-before", "die-after"])
def test_killed_around_the_submission_there_is_one_run(
    bench: BackendBench, sbatch: LossySbatch, how: str
) -> None:
    bench.declare("value", args={"gate": str(bench.gate)})
    sbatch.next(how)
    assert _killed_apply(bench) == -signal.SIGKILL

    run = bench.ran()

    assert (run["attempt"], run["state"], bench.launches) == (1, "succeeded", 1)


def test_a_submission_that_comes_late_ends_at_once(
    slurm: SlurmCluster, bench: BackendBench, sbatch: LossySbatch
) -> None:
    """The client is killed, and its request reaches Slurm when the next apply has launched. This
    needs `slurm-job-name` and `slurm-claim-link`."""
    bench.declare("value", args={"gate": str(bench.gate)})
    sbatch.next("late")
    assert _killed_apply(bench) == -signal.SIGKILL
    assert bench.ran()["state"] == "succeeded"

    (sbatch.folder / "go").touch()
    until((sbatch.folder / "done").exists)
    until(lambda: slurm.leftovers() == [])

    late = (sbatch.folder / "job").read_text().strip()
    assert "JobState=COMPLETED" in slurm.command("scontrol", "show", "job", late)
    assert bench.launches == 1


def test_of_two_jobs_of_a_launch_the_one_that_begins_first_has_it(
    slurm: SlurmCluster, bench: BackendBench
) -> None:
    blocker = slurm.command(
        "sbatch", "--parsable", "--exclusive", "--nodes=2", "--output=/dev/null", "--wrap",
        "exec sleep 600",
    ).strip()  # fmt: skip
    bench.declare("value", args={"gate": str(bench.gate)})
    bench.launched()
    until(lambda: bench.status()["state"] == "queued")
    folder = bench.status()["links"]["folder"]
    with open(f"{folder}/launch.json") as file:
        told = json.load(file)
    other = slurm.command(
        "sbatch", "--parsable", "--priority=4294901760", "--job-name=renamed",
        f"--output={folder}/logs/other.log",
        f"{folder}/job.sh", json.dumps(told), sys.executable,
    ).strip()  # fmt: skip
    slurm.command("scontrol", "update", f"JobId={bench.status()['links']['job']}", "Priority=1")

    slurm.command("scancel", blocker)
    run = bench.ended()

    with open(f"{folder}/logs/claim.json") as file:
        assert json.load(file)["job"] == other
    assert (run["attempt"], run["state"], bench.launches) == (1, "succeeded", 1)


def test_a_job_has_the_token_and_a_script_without_a_text_of_the_user(
    slurm: SlurmCluster, bench: BackendBench
) -> None:
    bench.declare("value", args={"gate": str(bench.gate)}, backend=_closed(bench))
    bench.launched()
    token, links = bench.record("hello").token, bench.status()["links"]

    said = slurm.command("squeue", "--noheader", f"--jobs={links['job']}", "--format=%j|%k|%l")
    script = slurm.command("scontrol", "write", "batch_script", links["job"], "-")

    assert said.strip() == f"hello-{token[:32]}|sgpu hello#1 {token}|UNLIMITED"
    assert script.rstrip("\n\0") == job_script().rstrip("\n")
    assert "hello" not in script
    bench.done("cancel", "hello")


def test_values_of_secrets_are_gone_with_a_job_that_never_began(bench: BackendBench) -> None:
    bench._environ["THE_WORD"] = "a-word-that-nobody-may-see"
    secrets = {"secrets": {"WORD": "env:THE_WORD"}}
    bench.declare("tell", env=secrets, backend=_closed(bench))
    bench.launched()
    (values,) = Path(bench.case.fields["backend"]["storage"]).glob("runs/*/*/*/logs/values.json")
    mode = values.stat().st_mode & 0o777

    bench.done("cancel", "hello")

    assert bench.status()["state"] == "cancelled"
    assert (mode, values.exists()) == (0o600, False)


@pytest.mark.expensive
def test_a_job_whose_launch_folder_is_gone_starts_nothing(
    slurm: SlurmCluster, bench: BackendBench, sbatch: LossySbatch
) -> None:
    bench.declare("value", args={"gate": str(bench.gate)})
    sbatch.next("late")
    assert _killed_apply(bench) == -signal.SIGKILL
    bench.done("state", "rm", "hello")
    subprocess.run(["rm", "-r", *bench.case.fields["backend"]["storage"].split()], check=True)

    (sbatch.folder / "go").touch()
    until((sbatch.folder / "done").exists)
    until(lambda: slurm.leftovers() == [])

    assert not (bench.gate / "launches").exists()


@pytest.mark.expensive
def test_a_submission_that_slurm_refuses_leaves_nothing(bench: BackendBench) -> None:
    block = {**bench.case.fields["backend"], "options": ["--licenses=no-such-one:1"]}
    bench.declare("value", args={"gate": str(bench.gate)}, backend=block)

    refused = bench("apply", "-y", "--detach", "-o", "json")

    assert refused.error["code"] == "slurm_refused"
    assert "license" in refused.error["message"].lower()
    assert bench.done("status", "-o", "json").data["runs"] == []
    bench.declare("value", args={"gate": str(bench.gate)})
    assert (bench.ran()["attempt"], bench.launches) == (1, 1)


def _closed(bench: BackendBench) -> dict[str, Any]:
    """A `backend` block for a job that waits."""
    return {**bench.case.fields["backend"], "partition": "closed"}


def _killed_apply(bench: BackendBench) -> int:
    """The return code of an apply in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "sgpu_decl", "apply", "-y", "--detach"],
        cwd=bench.project, env=bench._environ, capture_output=True, check=False, timeout=PATIENCE,
    ).returncode  # fmt: skip
