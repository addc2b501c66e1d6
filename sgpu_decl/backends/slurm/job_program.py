"""The program of a job: Python 3.10, the standard library, and the node agent once that is here.

    job     on the first node, in place of the job's script: takes the launch, chooses a port where
            the nodes meet, and has `srun` start the next one on each node
    node    becomes the node program of the agent (`agent.node.program`)

Its text is a part of the script that `sbatch` is given, and says nothing of a launch. What it is
told is one argument in JSON (`job_script.SlurmNodeProgram`).

Two jobs may have been submitted for one launch, where an answer of Slurm was lost. The one that
makes the file `claim.json` has the launch; the other ends at once. A job that Slurm starts again
keeps its id (https://slurm.schedmd.com/scontrol.html#OPT_requeue), and so its launch. Evidence: E1.

Each node has its stdin from `job`: a line with the values of secrets, and then the end that asks
it to stop. (srun 22.05 ends its tasks by SIGKILL when it gets SIGTERM itself.)
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import IO, Any

_PAUSES = (0.0, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)  # what was uploaded may be seen late
_LOOK = 5.0  # seconds between two looks for a node that could not begin
# Seconds: Slurm may send `--signal` up to 60 s before it is due
# (https://slurm.schedmd.com/sbatch.html#OPT_signal).
_EARLY = 75.0
_SCRUBBED = ("SLURM", "SBATCH_", "SRUN_", "OMPI_", "PMI", "PRTE_", "MPI_LOCALRANKID")


def _job(told: Mapping[str, Any], text: str) -> int:
    folder, started = told["logs"], time.time()
    own = {"job": os.environ["SLURM_JOB_ID"], "name": os.environ.get("SLURM_JOB_NAME", "")}
    stop = _Stop()
    try:
        taken = _claim(folder, own)
    except FileNotFoundError:
        _say(f"nothing to do: `{folder}` is not there (any more)")
        return 0
    if taken != own:
        _say(f"nothing to do: job {taken.get('job')} has this launch")
        return 0
    note: dict[str, Any] = {**own, "restart": int(os.environ.get("SLURM_RESTART_COUNT") or 0)}
    run = tempfile.mkdtemp(prefix="sgpu-job-")
    try:
        code = 128 + signal.SIGTERM
        values = _values(told)
        _agent(told, run)
        address, (port, lock) = _address(told["nodes"]), _port()
        if not stop.asked and not os.path.exists(f"{folder}/cancel"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{folder}/refused.json")  # of an earlier start
            note["started_at"] = _stamp(started)
            _write(folder, "job.json", {**note, "state": "started"})
            step = _step(told, text, address, port)
            code = stop.follow(step, values, lambda: _refusal(folder) is not None)
        why = "killed" if code == 128 + signal.SIGKILL else None
        refused = _refusal(folder)
        if refused:
            why, note["refused"] = "refused", refused
        elif stop.asked or os.path.exists(f"{folder}/cancel"):
            why = _why(told, own["job"], stop.asked)
        os.close(lock)
        if why in (None, "killed", "refused") and _starts_again(told, why, note["restart"]):
            _write(folder, "job.json", {**note, "state": "again"})
            # It ends this job, and has it wait again:
            # https://slurm.schedmd.com/scontrol.html#OPT_requeue
            if subprocess.run(["scontrol", "requeue", own["job"]], check=False).returncode == 0:
                return code
        ended = {"state": "ended", "code": code, "stop": why, "ended_at": _stamp(time.time())}
        _write(folder, "job.json", {**note, **ended})
        if why != "signal" or not told["again"]:
            _forget_values(told)
        return code
    finally:
        shutil.rmtree(run, ignore_errors=True)


def _starts_again(told: Mapping[str, Any], why: str | None, restart: int) -> bool:
    """Whether other nodes may help, and `retry` allows it. Slurm itself does that only if it has
    taken the nodes away."""
    if not told["again"]:
        return False
    from sgpu_decl.agent.node.platform_attempts import PlatformAttempts
    from sgpu_decl.agent.retry_rule import starts_left, why_ended

    outcome, starts = PlatformAttempts(told["back"]).look()
    starts = max(starts, restart + 1)
    if why is not None or outcome is None:  # what its nodes say is not the cause
        return starts_left(told["retry"], starts)
    return why_ended(outcome, told["retry"], starts, other_nodes=True) is None


class _Stop:
    """`asked` is when SIGTERM came, 0 before."""

    def __init__(self) -> None:
        self.asked = 0.0
        self._stdin: IO[bytes] | None = None
        signal.signal(signal.SIGTERM, self._on_signal)

    def follow(
        self,
        step: subprocess.Popen[bytes],
        values: Mapping[str, str],
        refused: Callable[[], bool],
    ) -> int:
        """Send nodes the values, wait for the end of all, and return the exit code. Once one of
        them has `refused` to begin, the others are asked to stop."""
        stdin = step.stdin
        assert stdin is not None  # noqa: S101
        with contextlib.suppress(BrokenPipeError):
            stdin.write(json.dumps(values).encode() + b"\n")
            stdin.flush()
        self._stdin = stdin
        if self.asked:
            stdin.close()
        while True:
            try:
                return step.wait(_LOOK)
            except subprocess.TimeoutExpired:
                if refused():
                    stdin.close()

    def _on_signal(self, number: int, frame: object) -> None:
        del number, frame
        self.asked = self.asked or time.time()
        if self._stdin is not None:
            self._stdin.close()


def _refusal(folder: str) -> str | None:
    """Why a node could not begin, if one left word of it."""
    try:
        with open(f"{folder}/refused.json") as file:
            return str(json.load(file)["why"])
    except FileNotFoundError:
        return None


def _claim(folder: str, own: dict[str, str]) -> dict[str, str]:
    """Take a launch, or return who has it. `link` is atomic on NFS, too. Evidence: E2."""
    draft = f"{folder}/.claim-{own['job']}"
    with open(draft, "w") as file:
        json.dump(own, file)
    try:
        with contextlib.suppress(FileExistsError):
            os.link(draft, f"{folder}/claim.json")
    finally:
        os.unlink(draft)
    with open(f"{folder}/claim.json") as file:
        taken: dict[str, str] = json.load(file)
    return taken


def _values(told: Mapping[str, Any]) -> dict[str, str]:
    """The values of secrets, which nobody else can read; they are deleted unless this job may start
    once more."""
    try:
        with open(f"{told['logs']}/values.json") as file:
            values: dict[str, str] = json.load(file)
    except FileNotFoundError:
        return {}
    if not told["again"]:
        _forget_values(told)
    return values


def _forget_values(told: Mapping[str, Any]) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{told['logs']}/values.json")


def _port() -> tuple[int, int]:
    from sgpu_decl.agent.host.ports import claim_port
    from sgpu_decl.agent.system.host_locks import host_lock_folder

    return claim_port(host_lock_folder("ports"), int.from_bytes(os.urandom(4), "big"))


def _address(nodes: int) -> str:
    """The address of this node for the others: the one on the way to the last of them. (What its
    own name leads to may be a loopback address.)"""
    if nodes == 1:
        return "127.0.0.1"
    from sgpu_decl.agent.node.missing_variables import address_towards

    names = _said("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]).split()
    node = _said("scontrol", "--oneliner", "show", "node", names[-1])
    return address_towards(node.partition("NodeAddr=")[2].split()[0])


def _said(*words: str) -> str:
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout


def _step(told: Mapping[str, Any], text: str, address: str, port: int) -> subprocess.Popen[bytes]:
    # `--wait=0`, `--kill-on-bad-exit=0`: nodes end by themselves when one of them fails.
    # `--cpu-bind=none`: a node has all processors of the job there, and its ranks share them.
    # https://slurm.schedmd.com/srun.html
    words = ["srun", "--export=ALL", "--mpi=none", "--cpu-bind=none", "--input=all", "--wait=0"]
    words += ["--kill-on-bad-exit=0", f"--nodes={told['nodes']}", f"--ntasks={told['nodes']}"]
    program = sys.orig_argv[sys.orig_argv.index("-c") + 1]
    words += [sys.executable, "-I", "-S", "-c", program, "node", text, address, str(port)]
    return subprocess.Popen(words, stdin=subprocess.PIPE)


def _why(told: Mapping[str, Any], job: str, asked: float) -> str:
    """Why the job was asked to stop: by sgpu, by its time limit, or by somebody else."""
    if os.path.exists(f"{told['logs']}/cancel"):
        return "cancelled"
    words = ["squeue", "--noheader", f"--jobs={job}", "--format=%T|%S|%l"]
    environ = {**os.environ, "SLURM_TIME_FORMAT": "%s"}
    try:
        done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=30)
        state, started, limit = done.stdout.strip().split("|")
        days, _, clock = limit.rpartition("-")
        parts = [int(part) for part in clock.split(":")]
        seconds = sum(part * 60**at for at, part in enumerate(reversed(parts)))
        end = int(started) + int(days or 0) * 86_400 + seconds
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return "signal"  # of a job without a limit, too
    # Slurm says itself why it ends a job that does not run any more.
    return "time" if state == "RUNNING" and asked >= end - told["lead"] - _EARLY else "signal"


def _node(told: Mapping[str, Any], address: str, port: str) -> None:
    number, host = os.environ["SLURM_NODEID"], os.environ.get("SLURMD_NODENAME", "?")
    try:
        _become_agent(told, number, address, port)
    except OSError as error:
        # Other nodes would wait for this one.
        _write(told["logs"], "refused.json", {"why": f"node {number} ({host}): {error}"})
        raise


def _become_agent(told: Mapping[str, Any], number: str, address: str, port: str) -> None:
    logs = f"{told['logs']}/{os.environ.get('SLURM_RESTART_COUNT') or 0}"
    os.makedirs(logs, exist_ok=True)
    log = os.open(f"{logs}/{number}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    values = json.loads(_line(0) or "{}")
    lifeline = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    run = tempfile.mkdtemp(prefix="sgpu-node-")
    agent = _agent(told, run)
    from sgpu_decl.agent.node.python_folder import python_folder
    from sgpu_decl.agent.system.secrets import split_secrets

    kept = {name: value for name, value in os.environ.items() if _keeps(name, told["keep"])}
    own = {
        **kept,
        "PATH": os.pathsep.join([python_folder(sys.executable, run), kept.get("PATH", os.defpath)]),
        "NODE_RANK": number,
        "NUM_NODES": str(told["nodes"]),
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        **values,
    }
    environment, memory = split_secrets(own, values)
    for descriptor in (lifeline, memory):
        os.set_inheritable(descriptor, True)  # noqa: FBT003
    words = [run if word == "RUN" else word for word in told["arguments"]]
    words = [sys.executable, "-I", "-S", agent, *words, "--lifeline", str(lifeline)]
    os.execve(sys.executable, words, environment)  # noqa: S606


def _keeps(name: str, patterns: Sequence[str]) -> bool:
    scrubbed = name.startswith(_SCRUBBED)
    return not scrubbed or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _line(descriptor: int) -> bytes:
    """The first line that comes, and nothing behind it."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(descriptor, 1)):
        line += byte
    return line


def _agent(told: Mapping[str, Any], run: str) -> str:
    """Copy the archive of the agent to a folder of this node, and let this program import it."""
    archive = os.path.join(run, "agent.zip")
    for pause in _PAUSES:
        time.sleep(pause)
        try:
            with open(f"{told['objects']}/agent/{told['agent']}.zip", "rb") as file:
                data = file.read()
        except OSError:
            continue
        if hashlib.sha256(data).hexdigest() == told["agent"]:
            with open(archive, "wb") as file:
                file.write(data)
            for name in ("sgpu_decl", "sgpu_decl.agent"):
                package = sys.modules.setdefault(name, type(sys)(name))
                package.__path__ = [archive]
            return archive
    raise OSError(f"the node agent in `{told['objects']}` is missing or damaged")


def _write(folder: str, name: str, value: Mapping[str, Any]) -> None:
    with open(f"{folder}/.{name}", "w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{folder}/.{name}", f"{folder}/{name}")


def _stamp(seconds: float) -> str:
    return (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1e6):06d}Z"
    )


def _say(text: str) -> None:
    sys.stderr.write(f"sgpu: {text}\n")


if __name__ == "__main__":
    os.umask(0o077)
    if sys.argv[1] == "job":
        sys.exit(_job(json.loads(sys.argv[2]), sys.argv[2]))
    _node(json.loads(sys.argv[2]), *sys.argv[3:5])
