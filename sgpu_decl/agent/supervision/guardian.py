"""The parent of the supervisor: it cleans up and writes the outcome if the supervisor cannot.

    apply ─▶ starter (leaves at once) ─▶ guardian (guardian.lock) ─▶ supervisor (supervisor.lock)
                                                                       ├─ rank 0 ... rank N
                                            └─ notice (at the end)     └─ tracker

Both are child subreapers. If the supervisor is killed, its ranks die with it by their parent-death
signal. Other processes become children of the guardian, which stops them and writes the outcome
`lost`. If the guardian is killed, the supervisor goes on and cleans up by itself.
"""

from __future__ import annotations

import os
import time

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.attempt.attempt_record import cancelled_outcome, lost_outcome
from sgpu_decl.agent.attempt.host_record import HostRecord
from sgpu_decl.agent.notices.notice_process import NoticeProcess
from sgpu_decl.agent.several_nodes.node_group import FIRST, Node
from sgpu_decl.agent.supervision.orphans import rank_sessions, start_reaper
from sgpu_decl.agent.supervision.supervisor import Supervisor
from sgpu_decl.agent.system import processes
from sgpu_decl.agent.system.cgroup import rank_cgroup, remove_cgroup
from sgpu_decl.agent.system.fast_stdlib import loads, signal
from sgpu_decl.agent.system.locks import create_held, held, open_lock, try_lock
from sgpu_decl.agent.system.process_tree import ProcessTree, rank_marks
from sgpu_decl.agent.system.safe_files import FolderHandle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

_TRACKER_WAIT = 30.0
_PARENT = 0.5  # seconds between two looks at a parent whose end the kernel does not report
_LOOK = 0.1  # seconds between two looks at the remaining processes, if they are not our children
_WATCHED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2}


def main(arguments: Sequence[str]) -> int:
    """Start the detached tree for the attempt folder in `arguments`: see `run`."""
    try:
        if os.fork():
            os._exit(0)  # the launcher waits for this process only
    except OSError as error:
        refuse(1, error)
        raise
    return run(arguments[0])


def run(folder: str) -> int:
    """Be the guardian of an attempt: start its supervisor, and clean up behind it.

    Secrets and the environment of ranks come as a JSON object on stdin, `{"secrets", "environ",
    "token"}`, at least `{}`: if that ends early, the launcher has died and nothing is started. Nor
    is anything if the folder holds a launch with another token by now. With `node`, this is one of
    several hosts: see `supervision.host_node`. Stdout gets `ok` once the supervisor holds its
    lock, or the reason why not.
    """
    node = FIRST
    answer = os.dup(1)
    try:
        message = loads(_read_all(0))
        secrets = message.get("secrets", {})
        os.environ.update(message.get("environ", {}))
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(2, 1)
        os.close(null)
        # Held until guardian and supervisor have both ended: of several starters one goes on. Who
        # gives up a launch holds it while the folder goes.
        claim = open_lock(_launch_lock(folder))
        alone = try_lock(claim)
        if not alone or held(os.path.join(folder, attempt_files.SUPERVISOR_LOCK)) is not None:
            raise OSError(17, "this attempt was launched before")
        spec = attempt_files.read_json(folder, attempt_files.SPEC)
        if spec is None:
            raise OSError(2, f"`{folder}/spec.json` is missing or damaged")
        in_place = os.path.samestat(os.fstat(claim), os.stat(_launch_lock(folder)))
        if not in_place or message.get("token", spec["token"]) != spec["token"]:
            raise OSError(17, "another launch took its place while this one waited")
        lock = create_held(os.path.join(folder, attempt_files.GUARDIAN_LOCK), replace=True)
        attempt_files.reserve_space(folder)
        host_record = HostRecord(folder)
        if "node" in message:
            from sgpu_decl.agent.supervision.host_node import host_node

            node, spec = host_node(message["node"], folder, spec)
        start_reaper(folder, rank_marks(spec["token"], node.number))
        processes.become_subreaper()
        tracker_pipe, tracked = os.pipe()
        notice = NoticeProcess(spec, folder, secrets)
        supervisor = fork_supervisor()
    except (OSError, ValueError) as error:
        refuse(answer, error)
        return 1
    if supervisor == 0:
        os.close(lock)
        supervise(
            {**spec, "run_dir": folder},
            secrets,
            tracker_pipe=tracker_pipe,
            answer=answer,
            node=node,
            host_record=host_record,
            notice=notice if node.number == 0 else None,
        )
        return 0
    secrets.clear()
    os.close(tracker_pipe)
    os.close(answer)

    def over() -> float:
        host_record.drop()
        return notice.start() if node.number == 0 else 0.0

    try:
        return guard(folder, spec, supervisor, tracked, over, node)
    finally:
        host_record.drop()


def _launch_lock(folder: str) -> str:
    return os.path.join(folder, attempt_files.LAUNCH_LOCK)


def fork_guardian(streams: list[int]) -> bool:
    """Fork; return whether this is the new process, which then calls `run`.

    Args:
        streams: what `run` gets as stdin, stdout and stderr. They are closed here; whoever reads
            stdout is told if nothing can be forked.
    """
    is_guardian = False
    try:
        is_guardian = os.fork() == 0
    except OSError as error:
        refuse(streams.pop(1), error)
    if is_guardian:
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
    for stream in streams:
        os.close(stream)
    return is_guardian


def refuse(answer: int, error: OSError | ValueError) -> None:
    """Say why nothing was launched."""
    reason = getattr(error, "strerror", None) or f"no secrets were given: {error}"
    attempt_files.say(f"nothing was launched: {reason}")
    _answer(answer, reason.encode(), "nothing was launched")


def _answer(answer: int, word: bytes, what: str = "the run goes on") -> None:
    """Say how the launch went. The run goes on if the launcher has died since."""
    try:
        os.write(answer, word)
    except (BrokenPipeError, ConnectionResetError):
        attempt_files.say(f"the process that launched this is gone; {what}")
    os.close(answer)


def _read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 65_536):
        parts.append(part)
    return b"".join(parts)


def fork_supervisor() -> int:
    """Fork, with signals blocked until both sides can handle them.

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
    tracker_pipe: int,
    answer: int,
    node: Node = FIRST,
    host_record: HostRecord | None = None,
    notice: NoticeProcess | None = None,
) -> None:
    """Be the supervisor of a node: `answer` gets `ok`. If the guardian is gone at the end, the
    `notice` is started here."""
    folder = node.records(spec["run_dir"])
    guardian = os.getppid()

    def launch() -> None:
        pid = os.getpid()
        identity = {
            "v": 1,
            "machine": processes.machine_id(),
            "boot": processes.boot_id(),
            "pid": pid,
            "start_time": processes.start_time(pid),
            "guardian": guardian,
            "guardian_start": processes.start_time(guardian),
            "token": spec["token"],
            "cgroup": cgroup,
            "launched_at": attempt_files.stamp(),
        }
        # Held by the open descriptor until this process ends; a second launch fails here.
        lock = os.path.join(folder, attempt_files.SUPERVISOR_LOCK)
        create_held(lock)
        try:
            attempt_files.write_atomic(
                folder, attempt_files.IDENTITY, attempt_files.encode(identity)
            )
            if host_record is not None:
                names = ("address", "attempt", "run_dir", "grace")
                host_record.publish({**identity, **{name: spec[name] for name in names}})
        except OSError:
            os.unlink(lock)  # nothing was launched, so nothing is lost
            raise

    def begun() -> None:
        try:
            attempt_files.sync_folder(folder)  # after `ok`, a power cut leaves a `lost` attempt
        except OSError as error:
            attempt_files.say(f"the launch is not safe from a power cut: {error}")
        _answer(answer, b"ok")

    try:
        os.setpgid(0, 0)  # Ctrl-C reaches the guardian alone, which passes it on
        processes.become_subreaper()
        cgroup = rank_cgroup()
        supervisor = Supervisor(spec, secrets, tracker_pipe, node, cgroup, host_record)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        launch()
    except OSError as error:
        refuse(answer, error)
        raise
    supervisor.run(begun)
    if host_record is not None and notice is not None and os.getppid() != guardian:
        host_record.drop()  # the guardian is gone
        notice.start()


def guard(
    folder: str,
    spec: dict[str, Any],
    supervisor: int,
    tracked: int,
    over: Callable[[], float] = lambda: 0.0,
    node: Node = FIRST,
    parent: int | None = None,
) -> int:
    """Wait for the supervisor and clean up after it; return 0, or 1 if it never began.

    Args:
        over: called once the attempt has ended; its tracker may still work. It returns for how many
            seconds others that it has started may work, too.
        parent: the ranks are stopped once this is not our parent any more.
    """
    handle = FolderHandle(folder)
    marker = f"SGPU_TRACKER={spec['token']}".encode()
    tree = ProcessTree(rank_marks(spec["token"], node.number), frozenset({marker}))
    while True:
        number = _next_signal(parent)
        if number == signal.SIGTERM:
            parent = None
        if number != signal.SIGCHLD:
            os.kill(supervisor, number)  # not reaped yet, so the pid is still its own
        elif supervisor in processes.reap():
            break
    if not handle.in_place or not os.path.exists(os.path.join(folder, attempt_files.OUTCOME)):
        for leader in rank_sessions(folder) if handle.in_place else ():
            tree.start(leader)
        _clear(tree, marker, float(spec["grace"]))
        if not handle.in_place:
            return 1  # somebody deleted the folder, so the outcome has no place
        identity = attempt_files.read_json(folder, attempt_files.IDENTITY) or {}
        remove_cgroup(identity.get("cgroup") or "")
        if held(os.path.join(folder, attempt_files.SUPERVISOR_LOCK)) is None:
            return 1  # it was never launched, and the reason was sent
        status = attempt_files.read_json(folder, attempt_files.STATUS)
        if os.path.exists(os.path.join(folder, attempt_files.CANCEL)):
            summary = "it was asked to stop, and its supervisor was killed or did not answer"
            outcome = cancelled_outcome(status, summary, "guardian")
        else:
            summary = "the supervisor of this attempt was killed or crashed; see `agent.log`"
            outcome = lost_outcome(status, "supervisor_lost", summary, "guardian")
        attempt_files.write_once(folder, attempt_files.OUTCOME, attempt_files.encode(outcome))
    patience = max(_TRACKER_WAIT, over())
    os.close(tracked)  # the tracker reads the outcome now
    _wait_for_rest(tree, patience)
    return 0


def _next_signal(parent: int | None) -> int:
    """Wait for a signal; the end of the parent counts as SIGTERM."""
    if parent is None:
        return signal.sigwait(_WATCHED)
    while True:
        info = signal.sigtimedwait(_WATCHED, _PARENT)
        if info is not None:
            return int(info.si_signo)
        if os.getppid() != parent:
            return signal.SIGTERM


def _clear(tree: ProcessTree, tracker: bytes, grace: float) -> None:
    """Stop all but the tracker."""
    processes.stop_all(
        lambda: [pid for pid in tree.pids() if not processes.carries(pid, tracker)], grace
    )


def _wait_for_rest(tree: ProcessTree, seconds: float) -> None:
    """Wait for the tracker and the notice; then kill what is left."""
    deadline = time.monotonic() + seconds
    while processes.has_children() if tree.adopts else tree.pids():
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            members = list(filter(processes.may_signal, tree.pids()))
            if not members:
                return
            for pid in members:
                processes.send_signal(pid, processes.start_time(pid), signal.SIGKILL)
        longest = max(remaining, 0.2) if tree.adopts else _LOOK
        signal.sigtimedwait({signal.SIGCHLD}, longest)
