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
import glob
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
_POLL = 2.0  # seconds between two looks at what is waited for
_VISIBLE = 60.0  # seconds until this node sees what others wrote last
_LATE = 60.0  # seconds after which the agent must have ended ranks at their `timeout` itself
_SHOWN = 3  # lines of a log
_LOOK = 5.0  # seconds between two looks for a node that could not begin
# Seconds: Slurm may send `--signal` up to 60 s before it is due
# (https://slurm.schedmd.com/sbatch.html#OPT_signal).
_EARLY = 75.0
_JOB, _NODE = "sgpu-job-", "sgpu-node-"
"""What names of folders begin with."""
_SCRUBBED = ("SLURM", "SBATCH_", "SRUN_", "OMPI_", "PMI", "PRTE_", "MPI_LOCALRANKID")


def _job(told: Mapping[str, Any], text: str) -> int:
    folder, began = told["logs"], time.time()
    own = {"job": _own_id(), "name": os.environ.get("SLURM_JOB_NAME", "")}
    stop = _Stop()
    try:
        taken = _claim(folder, own)
    except FileNotFoundError:
        _say(f"nothing to do: `{folder}` is not there (any more)")
        return 0
    if taken != own:
        _say(f"nothing to do: job {taken.get('job')} has this launch")
        return 0
    before = _read_note(folder)
    note: dict[str, Any] = {
        **own,
        "restart": int(os.environ.get("SLURM_RESTART_COUNT") or 0),
        "links": before.get("links", 0),
        "spent": before.get("spent", 0.0),
    }
    if "started_at" in before:
        note["started_at"] = before["started_at"]
    run = tempfile.mkdtemp(prefix=_JOB)
    try:
        code = 128 + signal.SIGTERM
        _agent(told, run)
        _own(run)
        _await_upstreams(told, note, lambda: bool(stop.asked) or _has_cancel(folder))
        began = time.time()
        values = _values(told)
        address, (port, lock) = _address(told["nodes"]), _port()
        if not stop.asked and not _has_cancel(folder):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{folder}/refused.json")  # of an earlier start
            note.setdefault("started_at", _stamp(began))
            _write(folder, "job.json", {**note, "state": "started"})
            step = _step(told, text, address, port)
            left = None if told["seconds"] is None else began + told["seconds"] - note["spent"]
            code = stop.follow(step, values, lambda: _refusal(folder) is not None, left)
        why = "killed" if code == 128 + signal.SIGKILL else None
        refused = _refusal(folder)
        if code and not refused and not os.path.isdir(f"{folder}/{note['restart']}"):
            refused = f"no node could begin, srun ended with {code}: {_last_words(folder)}"
        if refused:
            why, note["refused"], note["class"] = "refused", refused, "staging_failed"
        elif stop.asked or _has_cancel(folder):
            why = "time" if stop.over else _why(told, own["job"], stop.asked)
        os.close(lock)
        note["spent"] += time.time() - began
        if why == "time" and told["links"] > 1:
            note["links"] += 1
            links = f"{note['links']} of {told['links']} links (`chain`)"
            note["why"] = "its `timeout` is over" if stop.over else "its job came to its time limit"
            note["why"] += f", in {links}"
        again = why == "time" and not stop.over and note["links"] < told["links"]
        if why in (None, "killed", "refused"):
            again = _starts_again(told, why, note["restart"] - note["links"])
        if again:
            _write(folder, "job.json", {**note, "state": "again"})
            if _requeue(own["job"]):
                return code
        ended = {"state": "ended", "code": code, "stop": why, "ended_at": _stamp(time.time())}
        _write(folder, "job.json", {**note, **ended})
        if why != "signal" or not told["again"]:
            _forget_values(told)
        return code
    except _Refused as error:
        _say(str(error))
        ended = {"state": "ended", "code": 1, "stop": "refused", "ended_at": _stamp(time.time())}
        _write(folder, "job.json", {**note, **ended, "refused": str(error), "class": error.failure})
        _forget_values(told)
        return 1
    finally:
        shutil.rmtree(run, ignore_errors=True)


def _own_id() -> str:
    """The id of this job; of a task of an array as squeue shows it."""
    task = os.environ.get("SLURM_ARRAY_TASK_ID")
    return (
        os.environ["SLURM_JOB_ID"] if task is None else f"{os.environ['SLURM_ARRAY_JOB_ID']}_{task}"
    )


class _Refused(Exception):
    """The launch cannot start, on whatever nodes; `failure` is the class of it."""

    def __init__(self, failure: str, summary: str) -> None:
        super().__init__(summary)
        self.failure = failure


def _await_upstreams(
    told: Mapping[str, Any], note: Mapping[str, Any], stopped: Callable[[], bool]
) -> None:
    """See that all that the launch comes after has ended, and as it must; bring the outputs that
    its ranks read. Slurm starts the job after those of its upstreams. But it is not asked for one
    that was forgotten, and somebody may have changed that: then it waits here.

    Raises:
        _Refused: an upstream has not succeeded, or its output is gone.
    """
    from sgpu_decl.agent.attempt.upstreams import listed, refusal
    from sgpu_decl.agent.node.earlier_output import UpstreamFailed, await_output, copy_output

    waiting = [_Upstream(one) for one in told["upstreams"] if one["waits"]]
    told_of: list[str] = []
    while not stopped():
        states = {one: one.look() for one in waiting}
        for one, state in states.items():
            if one.must_succeed and state not in (None, "succeeded"):
                raise _Refused("upstream_failed", refusal(one.name, str(state)))
        waiting = [one for one, state in states.items() if state is None]
        if not waiting:
            break
        names = [one.name for one in waiting]
        if names != told_of:
            _write(
                told["logs"], "job.json", {**note, "state": "waiting", "waiting_for": listed(names)}
            )
            told_of = names
        time.sleep(_POLL)
    try:
        for one in told["upstreams"]:
            if one["output"] is None or os.path.exists(one["output"]):
                continue  # an earlier start has brought it
            back, draft = one["back"], f"{one['output']}.{os.environ['SLURM_JOB_ID']}"
            if not await_output(
                one["name"], back, nodes=one["nodes"], stopped=stopped, wait=time.sleep, say=_say
            ):
                return
            shutil.rmtree(draft, ignore_errors=True)
            copy_output(one["name"], back, draft)
            os.rename(draft, one["output"])
    except UpstreamFailed as error:
        raise _Refused(error.failure, error.summary) from error


class _Upstream:
    """An attempt that is waited for, by what its job wrote, and by what Slurm says of that."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.name: str = told["name"]
        self.must_succeed: bool = told["must_succeed"]
        self._job: str = told["job"]
        self._task: str | None = told["task"]
        self._logs: str = told["logs"]
        self._gone_since: float | None = None

    def look(self) -> str | None:
        """The state that it has ended in; None while it goes on, or if that is not known."""
        goes_on = None if self._ended() else self._goes_on()
        note = self._ended()  # it is written before the job ends
        if note:
            if note["stop"] is None:
                return "failed" if note["code"] else "succeeded"
            return "cancelled" if note["stop"] in ("cancelled", "signal") else "failed"
        if goes_on is not False:
            self._gone_since = None
            return None
        if not os.path.exists(f"{self._logs}/claim.json"):
            return "cancelled"  # before it began
        self._gone_since = self._gone_since or time.monotonic()
        return "lost" if time.monotonic() - self._gone_since > _VISIBLE else None

    def _ended(self) -> dict[str, Any]:
        note = _read_note(self._logs)
        return note if note.get("state") == "ended" else {}

    def _goes_on(self) -> bool | None:
        """Whether Slurm has a job of it that has not ended; None if Slurm does not answer."""
        words = ["squeue", "--noheader", "--array", f"--name={self._job}", "--format=%i"]
        try:
            jobs = _said(*words).split()
            return self._task in jobs if self._task is not None else bool(jobs)
        except (OSError, subprocess.SubprocessError):
            return None


def _read_note(folder: str) -> dict[str, Any]:
    """What the job of a launch wrote last."""
    try:
        with open(f"{folder}/job.json") as file:
            note: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return {}
    return note


def _has_cancel(folder: str) -> bool:
    return os.path.exists(f"{folder}/cancel")


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


def _requeue(job: str) -> bool:
    """Have Slurm end this job, and start it again: https://slurm.schedmd.com/scontrol.html#OPT_requeue
    A controller that is away is asked again, until Slurm ends the job."""
    for pause in _PAUSES:
        time.sleep(pause)
        done = subprocess.run(["scontrol", "requeue", job], check=False)
        if done.returncode == 0:
            return True
        if subprocess.run(["scontrol", "ping"], check=False, capture_output=True).returncode == 0:
            return False  # it refuses
    return False


class _Stop:
    """`asked` is when SIGTERM came, 0 before; `over` says that the time of all starts is over."""

    def __init__(self) -> None:
        self.asked = 0.0
        self.over = False
        self._stdin: IO[bytes] | None = None
        signal.signal(signal.SIGTERM, self._on_signal)

    def follow(
        self,
        step: subprocess.Popen[bytes],
        values: Mapping[str, str],
        refused: Callable[[], bool],
        deadline: float | None,
    ) -> int:
        """Send nodes the values, wait for the end of all, and return the exit code. Once one of
        them has `refused` to begin, or at the deadline, the others are asked to stop."""
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
                self.over = self.over or (deadline is not None and time.time() > deadline + _LATE)
                if self.over or refused():
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


def _last_words(folder: str) -> str:
    """The last lines of the log of the job."""
    try:
        with open(f"{folder}/job.log", errors="replace") as file:
            lines = [line.strip() for line in file]
    except OSError:
        return "it left no log"
    return "; ".join([line for line in lines if line][-_SHOWN:])


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
    python = sys.executable
    if told["container"] is not None:
        words += told["container"]["options"] + told["container"]["command"]
        python = told["container"]["python"]
    words += [python, "-I", "-S", "-c", program, "node", text, address, str(port)]
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
        if sys.version_info < (3, 10):  # noqa: UP036  that of an image was not looked at before
            raise OSError(f"its Python, {sys.executable}, is not 3.10 or newer")
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
    run = tempfile.mkdtemp(prefix=_NODE)
    agent, lock = _agent(told, run), _own(run)
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
    for descriptor in (lifeline, memory, lock):
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


def _own(run: str) -> int:
    """Show that a folder of this node is in use, as long as the descriptor is open that this
    returns. Delete those of this user that no process uses: of programs that were killed."""
    from sgpu_decl.agent.attempt.attempt_files import SUPERVISOR_LOCK
    from sgpu_decl.agent.node.input_folder import delete_unused
    from sgpu_decl.agent.system.locks import create_held, held

    lock = create_held(f"{run}/lock")
    delete_unused()
    above = glob.escape(tempfile.gettempdir())
    for path in glob.glob(f"{above}/{_JOB}*/lock") + glob.glob(f"{above}/{_NODE}*/lock"):
        folder = os.path.dirname(path)
        with contextlib.suppress(OSError):  # it is another user's, or was deleted just now
            ranks = glob.glob(f"{folder}/nodes/*/{SUPERVISOR_LOCK}")
            locks = [path, f"{folder}/{SUPERVISOR_LOCK}", *ranks]
            if os.stat(folder).st_uid == os.getuid() and not any(map(held, locks)):
                shutil.rmtree(folder)
    return lock


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
