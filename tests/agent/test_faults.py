"""Every fault that the agent stands up to: its verdict, nothing left running, a valid folder.

Rank 1 is the culprit and rank 0 its peer, unless the fault says otherwise. A fault that needs a
privilege which this machine does not give is skipped, with the reason. `SGPU_STOPPED` says for how
many seconds a supervisor is stopped.
"""

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.attempt.attempt_status import clear_remains
from sgpu_decl.agent.system.processes import start_time
from sgpu_decl.rendering.spec import Entry
from tests.support import PATIENCE

Make = Callable[..., Any]

PEER = "block()"
STUBBORN = "stubborn()"
EITHER = -1
STOPPED = float(os.environ.get("SGPU_STOPPED", "0"))
FOR_LONG = f" for {STOPPED:g} s" if STOPPED else ""
NOTHING: Mapping[str, Any] = {}


def nothing(_attempt: Any) -> None:
    """The ranks bring the fault with them."""


def no_fields(_place: Path) -> Mapping[str, Any]:
    return NOTHING


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`culprit` and `peer` are what ranks 1 and 0 run once both are up; `act` is what happens to
    the attempt from outside; `arrange` prepares the machine and returns fields of the spec."""

    name: str
    expect: tuple[str, str | None, int | None]  # state, class, rank of the first cause, or EITHER
    culprit: str = PEER
    peer: str = PEER
    fields: Mapping[str, Any] = field(default_factory=dict)
    arrange: Callable[[Path], Mapping[str, Any]] = no_fields
    act: Callable[[Any], None] = nothing
    exit_code: int | None = None
    queued: bool = False  # `act` comes while it waits for its turn, before any rank
    crash: bool = False  # the supervisor died in the middle of its writing
    torchrun: bool = True  # it means the same under torchrun

    @property
    def acts(self) -> bool:
        return self.act is not nothing

    @property
    def source(self) -> str:
        return f"if rank == 1:\n{_indented(self.culprit)}else:\n{_indented(self.peer)}"


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.strip().splitlines())


def dies(code: str) -> str:
    """A culprit that waits for its peer, notes the moment and then does `code`."""
    return f'up()\nawait_file(out + "/up0")\nmark()\n{code}'


def on_supervisor(*numbers: int) -> Callable[[Any], None]:
    def act(attempt: Any) -> None:
        for count, number in enumerate(numbers, 1):
            os.kill(attempt.supervisor, number)
            attempt.seen_signal(count)

    return act


def kill_supervisor(attempt: Any) -> None:
    os.kill(attempt.supervisor, signal.SIGKILL)


def kill_guardian_then_rank(attempt: Any) -> None:
    os.kill(attempt.guardian, signal.SIGKILL)
    attempt.until(lambda: start_time(attempt.guardian) is None)
    os.kill(attempt.rank_pid(1), signal.SIGKILL)


def hang_up(attempt: Any) -> None:
    os.kill(attempt.supervisor, signal.SIGHUP)
    os.kill(attempt.rank_pid(1), signal.SIGKILL)


def stop_for_a_while(attempt: Any) -> None:
    os.kill(attempt.supervisor, signal.SIGSTOP)
    os.kill(attempt.rank_pid(1), signal.SIGKILL)
    attempt.until(lambda: start_time(attempt.rank_pid(1)) is None)
    signal.sigtimedwait((), STOPPED)
    attempt.mark()
    os.kill(attempt.supervisor, signal.SIGCONT)


def take_descriptors(attempt: Any) -> None:
    """Leave the supervisor the descriptors it has; then a rank dies."""
    used = len(os.listdir(f"/proc/{attempt.supervisor}/fd"))
    resource.prlimit(attempt.supervisor, resource.RLIMIT_NOFILE, (used, used))
    os.kill(attempt.rank_pid(1), signal.SIGKILL)


def take_descriptors_before_the_ranks(attempt: Any) -> None:
    used = len(os.listdir(f"/proc/{attempt.supervisor}/fd"))
    resource.prlimit(attempt.supervisor, resource.RLIMIT_NOFILE, (used, used))


def take_processes(attempt: Any) -> None:
    """Let the supervisor fork no more: by a cgroup where we are root, whom no rlimit binds."""
    if os.getuid():
        resource.prlimit(attempt.supervisor, resource.RLIMIT_NPROC, (0, 0))
        return
    folder = cgroup("pids", attempt.folder.parent)
    (folder / "pids.max").write_text("1")
    (folder / "cgroup.procs").write_text(str(attempt.supervisor))


def not_executable(place: Path) -> Mapping[str, Any]:
    program = place / "program"
    program.write_bytes(b"\x7fELF, but not really")
    program.chmod(0o755)
    return {"entry": Entry(kind="command", command=(str(program),))}


def memory_limit(place: Path) -> Mapping[str, Any]:
    """A memory cgroup of 48 MiB, which the culprit joins."""
    folder = cgroup("memory", place)
    limit = folder / "memory.limit_in_bytes"
    (limit if limit.exists() else folder / "memory.max").write_text(str(48 << 20))
    if (folder / "memory.swap.max").exists():
        (folder / "memory.swap.max").write_text("0")
    return {"env": {"CGROUP": str(folder)}}


def cgroup(controller: str, place: Path) -> Path:
    """Make a cgroup with that controller, v1 or v2; `place` names it."""
    name = f"sgpu-test-{os.getpid()}-{place.name}"
    for parent in (Path("/sys/fs/cgroup") / controller, Path("/sys/fs/cgroup")):
        folder = parent / name
        try:
            folder.mkdir()
        except OSError:
            continue
        if any(file.name.startswith(controller + ".") for file in folder.iterdir()):
            made.append(folder)
            return folder
        folder.rmdir()
    pytest.skip(f"this machine lets us make no cgroup with the {controller} controller")


made: list[Path] = []


@pytest.fixture(autouse=True)
def _cgroups() -> Iterator[None]:
    yield
    while made:
        folder = made.pop()
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                folder.rmdir()
                break
            except OSError:  # what was killed in it is not reaped yet
                assert time.monotonic() < deadline, folder


ACROSS_A_SECOND = """
up()
await_file(out + "/up0")
while time.time() % 1 < 0.9: time.sleep(0.002)
mark()
atexit.register(await_file, os.path.dirname(errors).replace("ranks/1", "ranks/0") + "/error.json")
raise ValueError("first")
"""
AFTER_THE_SECOND = """
up()
await_file(os.path.dirname(errors).replace("ranks/0", "ranks/1") + "/error.json")
second = int(time.time())
while int(time.time()) == second: time.sleep(0.002)
raise ValueError("second")
"""
ORPHANS = """
up()
mark()
for _ in range(500):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(0.01)
        os._exit(0)
    os.wait()
"""
# What torch writes when it gives up, and how it then ends the process.
WATCHDOG = """
up()
await_file(out + "/up1")
leave("victim")
sys.stderr.write("[rank0]:[E709 17:05:39.08 ProcessGroupNCCL.cpp:1899] Process group watchdog "
    "thread terminated with exception: [Rank 0] Watchdog caught collective operation timeout\\n")
os.abort()
"""
BAD_ERROR_FILE = 'with open(errors, "wb") as file:\n    {}\nos._exit(5)'
DATALOADER = """
for _ in range(3):
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True: time.sleep(60)
"""
SIGNALS = {
    "SIGSEGV": "signal_self", "SIGABRT": "signal_self", "SIGBUS": "signal_self",
    "SIGKILL": "killed",
}  # fmt: skip
FAULTS = [
    Fault(name="rank raises", expect=("failed", "exception", 1), exit_code=1,
          culprit=dies('raise ValueError("no such layer")')),
    Fault(name="rank exits 7", expect=("failed", "exit_code", 1), exit_code=7,
          culprit=dies("sys.exit(7)")),
    Fault(name="rank calls os._exit(9)", expect=("failed", "exit_code", 1), exit_code=9,
          culprit=dies("os._exit(9)")),
    *(Fault(name=f"rank dies by {name}", expect=("failed", failure, 1),
            exit_code=128 + signal.Signals[name],
            culprit=dies(f"os.kill(os.getpid(), signal.{name})"))
      for name, failure in SIGNALS.items()),
    Fault(name="rank is killed for memory", expect=("failed", "oom", 1), arrange=memory_limit,
          exit_code=137,
          culprit=dies('open(os.environ["CGROUP"] + "/cgroup.procs", "w").write(str(os.getpid()))\n'
                       "data = bytearray(os.urandom(1 << 20)) * 512")),
    Fault(name="victim reports 4 ms before the culprit dies", expect=("failed", "killed", 1),
          peer='up()\nawait_file(out + "/up1")\nleave("victim")\n'
               'raise ConnectionResetError("peer")',
          culprit='up()\nawait_file(out + "/victim")\ntime.sleep(0.004)\nmark()\n'
                  "os.kill(os.getpid(), signal.SIGKILL)"),
    Fault(name="NCCL's watchdog aborts a rank before the culprit dies",
          expect=("failed", "killed", 1), peer=WATCHDOG,
          culprit='up()\nawait_file(out + "/victim")\ntime.sleep(0.004)\nmark()\n'
                  "os.kill(os.getpid(), signal.SIGKILL)"),
    Fault(name="two die together", expect=("failed", "exit_code", EITHER), exit_code=9,
          peer='up()\nawait_file(out + "/moment")\nos._exit(9)',
          culprit=dies("os._exit(9)")),
    Fault(name="failure across a second boundary", expect=("failed", "exception", 1),
          culprit=ACROSS_A_SECOND, peer=AFTER_THE_SECOND, fields={"grace": 5.0}, torchrun=False),
    Fault(name="error file truncated", expect=("failed", "exit_code", 1),
          culprit=dies(BAD_ERROR_FILE.format("file.write(b'{\"message\": ')"))),
    Fault(name="error file of 100 MB", expect=("failed", "exit_code", 1),
          culprit=dies(BAD_ERROR_FILE.format("file.write(b'{\"message\": \"'); "
                                             "file.truncate(100 << 20)"))),
    Fault(name="error file not UTF-8", expect=("failed", "exit_code", 1),
          culprit=dies(BAD_ERROR_FILE.format("file.write(b'{\"message\": \"\\xff\\xfe\"}')"))),
    Fault(name="rank stopped (SIGSTOP)", expect=("failed", "hung", None), exit_code=124,
          fields={"progress_timeout": 0.4},
          culprit=dies("os.kill(os.getpid(), signal.SIGSTOP)")),
    Fault(name="rank deadlocked", expect=("failed", "hung", None), exit_code=124,
          fields={"progress_timeout": 0.4},
          culprit=dies("import threading\nlock = threading.Lock()\nlock.acquire()\n"
                       "lock.acquire()")),
    Fault(name="rank spinning", expect=("failed", "timeout", None), exit_code=124,
          fields={"timeout": 1.0}, culprit=dies("while True: pass")),
    Fault(name="peer ignores TERM", expect=("failed", "exit_code", 1), exit_code=7,
          culprit=dies("sys.exit(7)"), peer=STUBBORN),
    Fault(name="children of a crashed rank", expect=("failed", "signal_self", 1),
          culprit=DATALOADER + dies("os.kill(os.getpid(), signal.SIGSEGV)")),
    Fault(name="double-forked setsid daemon", expect=("succeeded", None, None),
          culprit="daemon(block)\nmark()", peer="pass"),
    Fault(name="daemon whose main thread has ended", expect=("succeeded", None, None),
          culprit="daemon(leave_the_rest_to_a_thread)\nmark()", peer="pass", torchrun=False),
    Fault(name="descendant keeps the log open", expect=("succeeded", None, None),
          culprit="daemon(block, new_session=False)\nmark()", peer="pass"),
    Fault(name="1,000 quick orphans", expect=("succeeded", None, None),
          culprit=ORPHANS, peer=ORPHANS),
    Fault(name="missing interpreter", expect=("failed", "launch_failed_user", 0),
          fields={"python": "/gone/python"}, torchrun=False),
    Fault(name="program that cannot be executed", expect=("failed", "launch_failed_user", 0),
          arrange=not_executable, torchrun=False),
    Fault(name="missing script", expect=("failed", "launch_failed_user", 0),
          fields={"world_size": 1, "entry": Entry(kind="script", path="gone.py")}, torchrun=False),
    Fault(name="no process left at spawn", expect=("failed", "launch_failed", 0), queued=True,
          act=take_processes, torchrun=False),
    Fault(name="no descriptor left at spawn", expect=("failed", "launch_failed", None),
          queued=True, act=take_descriptors_before_the_ranks, torchrun=False),
    Fault(name="TERM once", expect=("cancelled", None, None), exit_code=130,
          act=on_supervisor(signal.SIGTERM)),
    Fault(name="three signals, stubborn ranks", expect=("cancelled", None, None),
          culprit=STUBBORN, peer=STUBBORN, fields={"grace": 600.0},
          act=on_supervisor(signal.SIGTERM, signal.SIGINT, signal.SIGTERM)),
    Fault(name="HUP, then a rank is killed", expect=("failed", "killed", 1), act=hang_up),
    Fault(name="supervisor killed", expect=("lost", "supervisor_lost", None), crash=True,
          culprit=STUBBORN, peer=STUBBORN, act=kill_supervisor),
    Fault(name="supervisor killed, daemon beside a rank", expect=("lost", "supervisor_lost", None),
          culprit="daemon(block)\nstubborn()", peer=STUBBORN, crash=True, act=kill_supervisor),
    Fault(name="guardian killed, then a rank with a daemon", expect=("failed", "killed", 1),
          culprit="daemon(block)\nblock()", act=kill_guardian_then_rank, torchrun=False),
    Fault(name="supervisor and guardian killed", expect=("lost", "supervisor_lost", None),
          culprit=STUBBORN, peer=STUBBORN, crash=True,
          act=lambda attempt: attempt.kill_both(), torchrun=False),
    Fault(name=f"supervisor stopped{FOR_LONG} while a rank dies", expect=("failed", "killed", 1),
          act=stop_for_a_while),
    Fault(name="supervisor out of descriptors while a rank dies", expect=("failed", "killed", 1),
          act=take_descriptors, torchrun=False),
]  # fmt: skip


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, id=fault.name, marks=pytest.mark.fault(fault.name)) for fault in FAULTS],
)
def test_a_fault(
    make_faulty: Make,
    make_queued: Make,
    tmp_path: Path,
    record_fault: Callable[..., None],
    fault: Fault,
) -> None:
    fields = {**fault.fields, **fault.arrange(tmp_path)}
    if fault.queued:
        attempt, turn = make_queued(fault.source, **fields)
        attempt.mark()
        fault.act(attempt)
        os.close(turn)
    else:
        attempt = make_faulty(fault.source, **fields).launch()
    if fault.acts and not fault.queued:
        attempt.until_up()
        attempt.mark()
        fault.act(attempt)
    status = attempt.wait()
    cause = status["first_cause"] or {"class": None, "rank": None}
    rank = EITHER if fault.expect[2] == EITHER and cause["rank"] in (0, 1) else cause["rank"]
    assert (status["state"], cause["class"], rank) == fault.expect, status
    if fault.exit_code is not None:
        assert status["exit_code"] == fault.exit_code
    attempt.until_gone()
    if not (attempt.folder / "outcome.json").exists():
        clear_remains(attempt.folder)  # as the next command does: nobody is left to do it
    record_fault(attempt)
    attempt.check(crash=fault.crash)
