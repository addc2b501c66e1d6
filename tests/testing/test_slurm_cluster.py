import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from sgpu_decl.agent.system.processes import command_line, related
from sgpu_decl.testing.contracts.backend_bench import until
from sgpu_decl.testing.slurm_cluster import SlurmCluster

_HOLDER = """
import sys
from sgpu_decl.testing.slurm_cluster import slurm_cluster
with slurm_cluster() as cluster:
    cluster.command("sbatch", "--wrap", "exec sleep 3600", "--output=/dev/null")
    print(cluster.keeper, cluster.folder, flush=True)
    sys.stdin.read()
"""


def test_two_nodes_run_a_step_together_each_with_a_gpu(slurm: SlurmCluster) -> None:
    said = slurm.command(
        "srun", "--nodes=2", "--gres=gpu:h100:1",
        "sh", "-c", "echo $SLURM_NODEID $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES",
    )  # fmt: skip

    assert sorted(said.split("\n")) == ["", "0 n1 0", "1 n2 0"]
    until(lambda: slurm.leftovers() == [])


def test_nothing_is_left_when_the_program_of_the_tests_is_killed(slurm: SlurmCluster) -> None:
    assert slurm.processes("slurmctld")  # this machine can start one
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    keeper, folder = holder.stdout.readline().split()
    until(lambda: any(b"sleep" in command_line(pid) for pid in related(int(keeper))))
    started = related(int(keeper))

    os.kill(holder.pid, signal.SIGKILL)
    with suppress(BrokenPipeError):
        holder.communicate()

    until(lambda: not Path(folder).exists())
    assert [pid for pid in started if folder.encode() in command_line(pid)] == []
    assert [pid for pid in started if b"sleep" in command_line(pid)] == []
