"""2 x 2 torch ranks on a Slurm of two nodes, by `sgpu apply` and by a script for `sbatch` that
starts torchrun on each node by `srun`, as people write it.

Both commands wait for the end, in turns. A launch begins when its command does. The line of the
ranks comes once they have a process group. The program imports torch first, as most do: on each
node sgpu imports it once for all ranks there, and torchrun imports it for itself and for each rank.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from measuring import Row
from ray_launches import NOTE

from sgpu_decl.testing.slurm_cluster import missing_programs, slurm_cluster

__all__ = ["slurm_ranks"]

ROUNDS = 5
RUN = """\
name: ranks
gpus: 4
type: CPU
entrypoint: ranks.py
args: ['{out}']
until: always
mlflow: {{enabled: false}}
backend: {{kind: slurm, storage: {storage}, gpus_per_node: 2, python: {python}}}
"""
RANKS = f"""\
import sys

import torch
from torch import distributed

{NOTE}
if __name__ == "__main__":
    distributed.init_process_group("gloo")
    if distributed.get_rank() == 0:
        note(sys.argv[1])
    ones = torch.ones(1000)
    distributed.all_reduce(ones)
    assert ones.sum() == 4000
    distributed.destroy_process_group()
"""
# Both nodes are this machine, so no name of a node leads to it.
SCRIPT = """\
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --output=job.log
export OMP_NUM_THREADS=1
srun bash -c '{torchrun} --nnodes=2 --nproc-per-node=2 --node-rank=$SLURM_NODEID \\
    --master-addr=127.0.0.1 --master-port=$((20000 + SLURM_JOB_ID)) ranks.py {out}'
"""


def slurm_ranks(scratch: Path) -> Iterator[Row]:
    missing = missing_programs()
    if missing or find_spec("torch") is None:
        print(
            f"{missing[0] if missing else 'torch'} is not installed: no figures of ranks on Slurm"
        )
        return
    folder, out = scratch / "slurm_ranks", scratch / "slurm_ranks.out"
    folder.mkdir()
    programs = Path(sys.executable).parent
    (folder / "ranks.py").write_text(RANKS)
    (folder / "job.sh").write_text(SCRIPT.format(torchrun=programs / "torchrun", out=out))
    with slurm_cluster() as cluster:
        where = {"storage": cluster.storage, "python": sys.executable}
        (folder / "run.yaml").write_text(RUN.format(out=out, **where))
        commands = (programs / "sgpu", "apply", "-y"), ("sbatch", "--wait", "job.sh")
        environ = {**os.environ, **cluster.environ}
        times = [
            [_took(command, folder, out, environ) for command in commands]
            for _ in range(ROUNDS + 1)
        ]
    mine, theirs = (statistics.median(column) for column in zip(*times[1:], strict=True))
    yield Row(
        what="2 x 2 torch ranks on Slurm: first line",
        took=f"{mine:.2f} s",
        against=f"sbatch with srun and torchrun, {theirs:.2f} s, n={ROUNDS}",
        ratio=mine / theirs,
        limit=1.0,
    )


def _took(words: Sequence[object], folder: Path, out: Path, environ: dict[str, str]) -> float:
    """Seconds from the start of a command until the first line."""
    out.unlink(missing_ok=True)
    begun = time.time()
    done = subprocess.run(
        list(map(str, words)), cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        log = folder / "job.log"
        said = done.stdout + done.stderr + (log.read_text() if log.exists() else "")
        sys.exit(f"a command of the benchmark failed:\n{said[-3000:]}")
    return float(json.loads(out.read_text())["line"]) - begun
