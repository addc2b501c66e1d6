"""One launch on Slurm, whatever is killed or lost meanwhile."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.backends.slurm.slurm_node_program import job_script
from sgpu_decl.testing.contracts.backend_bench import PATIENCE, BackendBench, until
from sgpu_decl.testing.slurm_cluster import SlurmCluster
from tests.lossy_sbatch import LossySbatch
from tests.sampling import sampled

MODULE = 'module() { [ "$2" != nope ] && LOADED="$LOADED $2" && export LOADED; }'
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


@pytest.mark.expensive
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
        f"{folder}/job.sh", json.dumps(told), "--", sys.executable,
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


@pytest.mark.parametrize(
    ("profile", "modules", "said"),
    [
        (
            "",
            ["cuda/12"],
            "a login shell on HOST has no command 'module' that could load 'cuda/12'",
        ),
        (MODULE, ["cuda/12", "nope"], "'module load nope' fails on HOST: 'module avail' lists"),
        (MODULE, ["cuda/12", "nccl"], "loaded cuda/12 nccl"),
    ],
)
def test_modules_are_loaded_before_the_program_starts(
    tmp_path: Path, profile: str, modules: list[str], said: str
) -> None:
    (tmp_path / ".bash_profile").write_text(profile)
    (tmp_path / "job.sh").write_text(job_script())
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$5" != job ] || echo "loaded$LOADED"\n')
    python.chmod(0o755)

    done = subprocess.run(
        ["bash", "-l", tmp_path / "job.sh", "{}", *modules, "--", python],
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    last = (done.stdout or done.stderr).strip().rpartition("\n")[2]
    assert said in last.replace(socket.gethostname(), "HOST")
    assert done.returncode == (0 if said.startswith("loaded") else 72)


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        ("pyxis", "--container-image=image --container-mounts=ROOT:ROOT,/data:/data python3"),
        ("apptainer", "apptainer exec --nv --bind ROOT,/data image python3"),
    ],
)
def test_nodes_start_in_a_container(bench: BackendBench, runtime: str, words: str) -> None:
    block = {**_closed(bench), "container": "image", "container_runtime": runtime}
    bench.declare("value", args={"gate": "."}, type="H100", backend={**block, "mounts": ["/data"]})
    bench.launched()
    told = json.loads(Path(bench.status()["links"]["folder"], "launch.json").read_text())

    assert " ".join(told["python"]).replace(block["storage"], "ROOT") == words
    bench.done("cancel", "hello")


@pytest.mark.expensive
def test_a_container_that_does_not_start_is_said_in_the_words_of_the_cluster(
    bench: BackendBench,
) -> None:
    block = {**bench.case.fields["backend"], "container": "image"}
    bench.declare("value", args={"gate": "."}, backend=block)

    run = bench.ran()

    assert (run["state"], run["first_cause"]["class"]) == ("failed", "staging_failed")
    assert "no node could begin" in run["first_cause"]["summary"]
    assert "--container-image=image" in run["first_cause"]["summary"]


@pytest.mark.expensive
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


ARRAY = [
    "die-before",
    "die-after",
    "late",
    f"{LAUNCHES},mark,after,2",
    f"{SLURM}.slurm_launcher,SlurmLauncher,_submitted_array,before,1",
    f"{SLURM}.slurm_launcher,SlurmLauncher,_submitted_array,after,1",
    f"{LAUNCHES},mark,after,5",
    f"{WRITER},launched,before,1",
]


@pytest.mark.expensive
@pytest.mark.parametrize("step", ARRAY)
def test_cells_are_launched_once_by_one_array_whatever_is_killed(
    slurm: SlurmCluster, bench: BackendBench, sbatch: LossySbatch, step: str
) -> None:
    bench.declare(
        "value", args={"gate": str(bench.gate), "n": "${matrix.n}"}, matrix={"n": [1, 2, 3, 4]}
    )  # fmt: skip
    if "," in step:
        bench.killed(step, "apply", "-y", "--detach")
    else:
        sbatch.next(step)
        assert _killed_apply(bench) == -signal.SIGKILL

    bench.launched()
    if step == "late":
        (sbatch.folder / "go").touch()
        until((sbatch.folder / "done").exists)
    until(lambda: slurm.leftovers() == [])

    runs = bench.done("status", "-o", "json").data["runs"]
    assert [(one["attempt"], one["state"]) for one in runs] == [(1, "succeeded")] * 4
    assert bench.launches == 4


@pytest.mark.expensive
def test_an_array_starts_as_many_cells_as_are_allowed(
    slurm: SlurmCluster, bench: BackendBench
) -> None:
    gate = {"gate": str(bench.gate)}
    bench.declare("hold", args=gate, matrix={"n": [0, 1, 2]}, max_parallel=1)
    bench.launched()
    bench.up()

    runs = bench.done("status", "-o", "json").data["runs"]
    assert len({one["links"]["job"].partition("_")[0] for one in runs}) == 1
    assert sorted(one.get("waiting_for") or "" for one in runs) == ["", *["max_parallel"] * 2]
    bench.done("cancel", runs[-1]["name"])
    bench.go(0)
    bench.go(1)
    until(lambda: slurm.leftovers() == [])

    states = [one["state"] for one in bench.done("status", "-o", "json").data["runs"]]
    assert states == ["succeeded", "succeeded", "cancelled"]


@pytest.mark.expensive
def test_cells_are_stopped_by_few_commands_whether_they_run_or_wait(
    slurm: SlurmCluster, bench: BackendBench, sbatch: LossySbatch
) -> None:
    calls = sbatch.folder / "calls"
    for name in ("scancel", "squeue", "sacct"):
        script = sbatch.folder / name
        script.write_text(f'#!/bin/sh\necho {name} >> {calls}\nexec {shutil.which(name)} "$@"\n')
        script.chmod(0o755)
    bench.declare(
        "hold", args={"gate": str(bench.gate)}, matrix={"n": list(range(40))}, max_parallel=2
    )
    for words in (("cancel", "*", "--no-wait"), ("destroy", "-y")):
        (bench.gate / "up-0-0").unlink(missing_ok=True)
        bench.done("apply", "-y", "--detach", "--rerun", "hello")
        bench.up()
        calls.unlink(missing_ok=True)

        bench.done(*words)

        asked = calls.read_text().split()
        assert (asked.count("scancel"), asked.count("sacct") <= 1) == (2, True)
        assert asked.count("squeue") < 20
        until(lambda: slurm.leftovers() == [])


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


def test_a_run_does_not_wait_for_its_attempt_on_another_backend(bench: BackendBench) -> None:
    gate = {"gate": str(bench.gate)}
    bench.declare("hold", backend="local", args=gate)
    bench.launched()
    bench.up()
    bench.declare("value", args=gate)

    behind = bench("apply", "-y", "--detach", "--on-active", "queue")

    assert behind.code == 1
    assert "`hello#1` goes on on the backend `local`" in behind.err
    bench.go()
    assert bench.ended()["attempt"] == 1


@pytest.mark.expensive
def test_a_job_whose_dependency_somebody_removed_waits_for_its_upstream_all_the_same(
    slurm: SlurmCluster, bench: BackendBench
) -> None:
    gate = {"gate": str(bench.gate)}
    bench.declare_all({
        "hello": {"function": "hold", "args": gate},
        "later": {"function": "value", "after": ["hello"], "args": gate},
    })  # fmt: skip
    bench.launched()
    bench.up()

    job = bench.status("later")["links"]["job"]
    slurm.command("scontrol", "update", f"JobId={job}", "Dependency=")
    until(lambda: f"{job} RUNNING" in slurm.command("squeue", "--format=%i %T"))
    until(lambda: bench.status("later").get("waiting_for") == "hello#1")
    bench.go()
    later = bench.ended("later")

    assert later["state"] == "succeeded"
    assert bench.status("hello")["ended_at"] <= later["started_at"]


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
