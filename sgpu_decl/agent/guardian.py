"""Stands above the supervisor: adopts what it leaves behind, and speaks when it no longer can.

    apply ─▶ starter (leaves at once) ─▶ guardian (guardian.lock) ─▶ supervisor (supervisor.lock)
                                                                       ├─ rank 0 ... rank N
                                                                       └─ tracker

Both are child subreapers. If the supervisor is killed, its ranks die with it by their parent-death
signal and whatever escapes becomes the guardian's child: it is stopped, and the outcome is `lost`.
If the guardian is killed the supervisor goes on and cleans up by itself.
"""

from __future__ import annotations

import os
import time

from sgpu_decl.agent import processes, records
from sgpu_decl.agent.cgroup import rank_cgroup, remove_cgroup
from sgpu_decl.agent.home import Home
from sgpu_decl.agent.lean import loads, signal
from sgpu_decl.agent.locks import create_held, held, open_lock, try_lock
from sgpu_decl.agent.nodes import FIRST, Node
from sgpu_decl.agent.report import lost_outcome
from sgpu_decl.agent.supervisor import Supervisor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

__all__ = ["fork_supervisor", "guard", "main", "supervise"]

_TRACKER_WAIT = 30.0
_WATCHED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2}


def main(arguments: Sequence[str]) -> int:
    """Start the detached tree for the attempt folder in `arguments`.

    Secrets come as a JSON object on stdin, at least `{}`: if that ends early, whoever
    launched has died and nothing is started. Stdout gets `ok` once the supervisor holds its lock,
    or the reason why not.
    """
    folder = arguments[0]
    try:
        secrets = loads(_read_all(0))
        if os.fork():
            os._exit(0)  # whoever launched waits for this process only
        answer = os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(2, 1)
        os.close(null)
        spec = records.read_json(folder, records.SPEC)
        if spec is None:
            raise OSError(2, f"`{folder}/spec.json` is missing or damaged")
        # Ours until guardian and supervisor have both ended: of several starters one goes on.
        alone = try_lock(open_lock(os.path.join(folder, records.LAUNCH_LOCK)))
        if not alone or held(os.path.join(folder, records.SUPERVISOR_LOCK)) is not None:
            raise OSError(17, "this attempt was launched before")
        lock = create_held(os.path.join(folder, records.GUARDIAN_LOCK), replace=True)
        records.set_aside(folder)
        processes.become_subreaper()
        told, tracked = os.pipe()
        supervisor = fork_supervisor()
    except (OSError, ValueError) as error:
        _refuse(1 if "answer" not in locals() else answer, error)
        raise
    if supervisor == 0:
        os.close(lock)
        supervise({**spec, "run_dir": folder}, secrets, told=told, answer=answer)
        return 0
    secrets.clear()
    os.close(told)
    os.close(answer)
    return guard(folder, spec, supervisor, tracked)


def _refuse(answer: int, error: OSError | ValueError) -> None:
    reason = getattr(error, "strerror", None) or f"no secrets were given: {error}"
    _tell(answer, reason.encode())


def _tell(answer: int, word: bytes) -> None:
    """Say how the launch went; whoever asked may have died since, which is no matter of the run."""
    try:
        os.write(answer, word)
    except BrokenPipeError:
        records.say("whoever asked for this launch is gone; the run goes on")
    os.close(answer)


def _read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 65_536):
        parts.append(part)
    return b"".join(parts)


def fork_supervisor() -> int:
    """Fork; from before that on no signal can come while neither side is there to handle it.

    The child goes on with `supervise`, the parent with `guard`.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # inherited as ignored it would hide deaths
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    return os.fork()


def supervise(
    spec: dict[str, Any],
    secrets: dict[str, str],
    *,
    told: int,
    answer: int,
    node: Node = FIRST,
) -> None:
    """Be the supervisor of a node: `told` is the tracker's pipe, `answer` gets `ok`."""
    folder = node.records(spec["run_dir"])

    def launch() -> None:
        pid = os.getpid()
        identity = {
            "v": 1,
            "machine": processes.machine_id(),
            "boot": processes.boot_id(),
            "pid": pid,
            "start_time": processes.start_time(pid),
            "guardian": os.getppid(),
            "token": spec["token"],
            "cgroup": cgroup,
            "launched_at": records.stamp(),
        }
        # Held by the open descriptor until this process ends; a second launch fails here.
        lock = os.path.join(folder, records.SUPERVISOR_LOCK)
        create_held(lock)
        try:
            records.write_atomic(folder, records.IDENTITY, records.encode(identity))
        except OSError:
            os.unlink(lock)  # nothing was launched, and nothing has to be told as lost
            raise

    def begun() -> None:
        try:
            records.sync_folder(folder)  # once `ok` is told, a power cut leaves one that was lost
        except OSError as error:
            records.say(f"the launch is not safe from a power cut: {error}")
        _tell(answer, b"ok")

    try:
        os.setpgid(0, 0)  # Ctrl-C reaches the guardian alone, which passes it on: it counts once
        processes.become_subreaper()
        cgroup = rank_cgroup(f"{spec['token']}-{node.number}")
        supervisor = Supervisor(spec, secrets, told, node, cgroup)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        launch()
    except OSError as error:
        _refuse(answer, error)
        raise
    supervisor.run(begun)


def guard(folder: str, spec: dict[str, Any], supervisor: int, tracked: int) -> int:
    """Wait for the supervisor and clean up behind it; 0, or 1 where it never began."""
    home = Home(folder)
    while True:
        number = signal.sigwait(_WATCHED)
        if number != signal.SIGCHLD:
            os.kill(supervisor, number)  # not reaped yet, so the pid is still its own
        elif supervisor in processes.reap():
            break
    marker = f"SGPU_TRACKER={spec['token']}".encode()
    if not home.there or not os.path.exists(os.path.join(folder, records.OUTCOME)):
        _clear(lambda pid: not processes.carries(pid, marker), float(spec["grace"]))
        if not home.there:
            return 1  # somebody deleted the folder, and there is nothing left to say it to
        identity = records.read_json(folder, records.IDENTITY) or {}
        remove_cgroup(identity.get("cgroup") or "")
        if held(os.path.join(folder, records.SUPERVISOR_LOCK)) is None:
            return 1  # never launched, and the reason was told
        summary = "the supervisor of this attempt was killed or crashed; see `agent.log`"
        outcome = lost_outcome(
            records.read_json(folder, records.STATUS), "supervisor_lost", summary, "guardian"
        )
        records.write_once(folder, records.OUTCOME, records.encode(outcome))
    os.close(tracked)  # the tracker reads the outcome now
    _wait_for_children(_TRACKER_WAIT)
    return 0


def _clear(wanted: Callable[[int], bool], grace: float) -> None:
    own = os.getpid()
    processes.stop_all(lambda: [pid for pid in processes.descendants(own) if wanted(pid)], grace)


def _wait_for_children(seconds: float) -> None:
    """Give the tracker its time; what is left after that is killed."""
    deadline = time.monotonic() + seconds
    while processes.has_children():
        left = deadline - time.monotonic()
        if left <= 0:
            members = list(filter(processes.may_signal, processes.descendants(os.getpid())))
            if not members:
                return
            for pid in members:
                processes.tell(pid, processes.start_time(pid), signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, max(left, 0.2))
