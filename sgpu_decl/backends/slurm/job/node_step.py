"""The step of a job that starts a program on each of its nodes, by `srun`, and stops it.

Each node has its stdin from the job: a line with the values of secrets, and then the end that asks
it to stop. (srun 22.05 ends its tasks by SIGKILL when it gets SIGTERM itself.)
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

from sgpu_decl.agent.attempt.attempt_files import encode
from sgpu_decl.agent.host.interfaces import address_towards
from sgpu_decl.backends.slurm.job.launch_files import JOB_LOG, REFUSED, node_logs, read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import IO

    from sgpu_decl.backends.slurm.job.launch_files import JobLaunch

_LATE = 60.0  # seconds after which the agent must have ended ranks at their `timeout` itself
_LOOK = 5.0  # seconds between two looks for a node that could not begin
_SHOWN = 3  # lines of a log


class StopSignal:
    """`asked` is when SIGTERM came, 0 before; `over` says that the time of all starts is over."""

    def __init__(self) -> None:
        self.asked = 0.0
        self.over = False
        self.lifeline: IO[bytes] | None = None
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))

    def _on_signal(self, number: int, frame: object) -> None:
        del number, frame
        self.asked = self.asked or time.time()
        if self.lifeline is not None:
            self.lifeline.close()


class NodeStep:
    """The nodes meet at `port` of this one."""

    def __init__(self, launch: JobLaunch, port: int) -> None:
        self._folder = launch["folder"]
        # `--wait=0`, `--kill-on-bad-exit=0`: nodes end by themselves when one of them fails.
        # `--cpu-bind=none`: a node has all processors of the job there, and its ranks share them.
        # https://slurm.schedmd.com/srun.html
        self._words = [
            "srun", "--export=ALL", "--mpi=none", "--cpu-bind=none", "--input=all", "--wait=0",
            "--kill-on-bad-exit=0", f"--nodes={launch['nodes']}", f"--ntasks={launch['nodes']}",
            *(launch["python"] or [sys.executable]), "-I", "-S",
            "-c", sys.orig_argv[sys.orig_argv.index("-c") + 1],
            "node", encode(launch).decode(), _address(launch["nodes"]), str(port),
        ]  # fmt: skip

    def run(
        self, stop: StopSignal, values: Mapping[str, str], deadline: float | None
    ) -> tuple[int, str | None]:
        """Start the nodes, send them the values, and wait for the end of all; return the exit code,
        and why one of them could not begin. Then, and at the deadline, the others are asked to
        stop."""
        step = subprocess.Popen(self._words, stdin=subprocess.PIPE)
        stdin = step.stdin
        assert stdin is not None  # noqa: S101
        with suppress(BrokenPipeError):
            stdin.write(json.dumps(values).encode() + b"\n")
            stdin.flush()
        stop.lifeline = stdin
        if stop.asked:
            stdin.close()
        while True:
            try:
                code = step.wait(_LOOK)
                return code, self._refusal(code)
            except subprocess.TimeoutExpired:
                stop.over = stop.over or (deadline is not None and time.time() > deadline + _LATE)
                if stop.over or "why" in read_file(self._folder, REFUSED):
                    stdin.close()

    def _refusal(self, code: int) -> str | None:
        why: str | None = read_file(self._folder, REFUSED).get("why")
        if why is None and code and not os.path.isdir(node_logs(self._folder)):
            return f"no node could begin, srun ended with {code}: {self._last_words()}"
        return why

    def _last_words(self) -> str:
        """The last lines of the log of the job."""
        try:
            with open(f"{self._folder}/{JOB_LOG}", errors="replace") as file:
                lines = [line.strip() for line in file]
        except OSError:
            return "it left no log"
        return "; ".join([line for line in lines if line][-_SHOWN:])


def _address(nodes: int) -> str:
    """The address of this node for the others: the one on the way to the last of them. (What its
    own name leads to may be a loopback address.)"""
    if nodes == 1:
        return "127.0.0.1"
    names = _said("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]).split()
    node = _said("scontrol", "--oneliner", "show", "node", names[-1])
    return address_towards(node.partition("NodeAddr=")[2].split()[0])


def _said(*words: str) -> str:
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout
