"""The program of a node before it becomes the node program of the agent, `agent.node.program`."""

from __future__ import annotations

import fnmatch
import os
import sys

from sgpu_decl.agent.node.python_folder import python_folder
from sgpu_decl.agent.system.fast_stdlib import loads
from sgpu_decl.agent.system.secrets import split_secrets
from sgpu_decl.backends.slurm.job.launch_files import node_logs
from sgpu_decl.backends.slurm.job.program_folder import own_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from sgpu_decl.backends.slurm.job.launch_files import JobLaunch

_SCRUBBED = ("SLURM", "SBATCH_", "SRUN_", "OMPI_", "PMI", "PRTE_", "MPI_LOCALRANKID")


def become_agent(launch: JobLaunch, run: str, address: str, port: str) -> NoReturn:
    """Run the part of a launch that this node has, in the folder `run`. The nodes meet at `address`
    and `port`. Raises OSError: it cannot begin."""
    number = os.environ["SLURM_NODEID"]
    logs = node_logs(launch["folder"])
    os.makedirs(logs, exist_ok=True)
    log = os.open(f"{logs}/{number}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    with open(0, "rb", buffering=0, closefd=False) as stdin:  # it reads nothing behind the line
        values = loads(stdin.readline() or b"{}")
    lifeline, lock = os.dup(0), own_folder(run)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    kept = {name: value for name, value in os.environ.items() if _keeps(name, launch["keep"])}
    own = {
        **kept,
        "PATH": os.pathsep.join([python_folder(sys.executable, run), kept.get("PATH", os.defpath)]),
        "NODE_RANK": number,
        "NUM_NODES": str(launch["nodes"]),
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        **values,
    }
    environment, memory = split_secrets(own, values)
    for descriptor in (lifeline, memory, lock):
        os.set_inheritable(descriptor, True)  # noqa: FBT003
    words = [run if word == "RUN" else word for word in launch["arguments"]]
    words = [f"{run}/agent.zip", *words, "--lifeline", str(lifeline)]
    os.execve(sys.executable, [sys.executable, "-I", "-S", *words], environment)  # noqa: S606


def _keeps(name: str, patterns: Sequence[str]) -> bool:
    scrubbed = name.startswith(_SCRUBBED)
    return not scrubbed or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
