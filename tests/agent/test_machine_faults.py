"""Faults of what lies around an attempt: disk, clock, terminal, pids, the machine itself."""

import errno
import fcntl
import json
import os
import pty
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.attempt.attempt_status import clear_remains, request_cancel
from sgpu_decl.agent.system.locks import create_held
from sgpu_decl.agent.system.processes import start_time
from sgpu_decl.rendering.spec import RetrySpec
from tests.mounts import small_disk

Make = Callable[..., Any]
Record = Callable[..., None]
DiskOn = Callable[[Path, int], None]


@pytest.mark.fault("ever more descriptors, until there are enough")
@pytest.mark.parametrize("spare", range(1, 12))
def test_with_ever_more_descriptors_it_fails_cleanly_until_it_works(
    make_queued: Make, spare: int
) -> None:
    attempt, turn = make_queued("print('hello')")
    used = len(os.listdir(f"/proc/{attempt.supervisor}/fd")) + spare
    resource.prlimit(attempt.supervisor, resource.RLIMIT_NOFILE, (used, used))
    os.close(turn)
    status = attempt.wait()
    assert (status["state"], status["class"]) in {
        ("failed", "launch_failed"),
        ("failed", "launch_failed_user"),  # the ranks have the same limit, and Python needs more
        ("failed", "exit_code"),
        ("failed", "exception"),
        ("succeeded", None),
    }, status
    attempt.until_gone()
    attempt.check()


@pytest.mark.fault("supervisor and guardian killed, daemon beside a rank: cleared by a later look")
def test_a_setsid_descendant_of_a_total_crash_is_cleared_by_a_later_look(
    make_faulty: Make, record_fault: Record
) -> None:
    source = "if rank == 1: daemon(block)\nstubborn()"
    attempt = make_faulty(source).launch().until_up()
    attempt.mark()
    attempt.kill_both()
    attempt.until(lambda: len(attempt.left()) == 1)  # the ranks are gone at once
    assert attempt.read()["class"] == "supervisor_lost"
    assert clear_remains(attempt.folder, grace=0.1) == 1
    assert not attempt.left()
    record_fault(attempt)


@pytest.mark.fault("the same with a daemon that hides its environment: killed by its cgroup")
def test_one_that_hides_from_its_cookie_too_is_killed_by_its_cgroup(make_faulty: Make) -> None:
    source = (
        "def hide():\n"
        "    leave('hidden', str(os.getpid()))\n"
        "    await_file(out + '/go')\n"
        "    os.execve('/bin/sleep', ['sleep', '600'], {})\n"
        "if rank == 1: daemon(hide)\n"
        "block()"
    )
    attempt = make_faulty(source).launch().until_up()
    identity = json.loads(attempt.text("identity.json"))
    if not identity["cgroup"]:
        pytest.skip("this machine lets us make no cgroup v2")
    attempt.until((attempt.folder / "output" / "hidden").exists)
    hidden = int(attempt.text("output/hidden"))
    procs = Path(identity["cgroup"], "cgroup.procs")
    attempt.until(lambda: str(hidden) in procs.read_text().split())
    (attempt.folder / "output" / "go").touch()
    attempt.until(lambda: b"SGPU" not in Path(f"/proc/{hidden}/environ").read_bytes())
    attempt.kill_both()
    attempt.until_gone()
    assert start_time(hidden) is not None
    clear_remains(attempt.folder)
    attempt.until(lambda: start_time(hidden) is None)


# A root without this capability is to other users what a user is to root.
WITHOUT_KILL = ("unshare", "--mount", "setpriv", "--bounding-set", "-kill", "--inh-caps", "-kill")
WITHOUT_CGROUPS = 'umount --lazy --all --types cgroup2 && exec "$@"'
LAUNCH = (
    "import sys; from sgpu_decl.agent.launching.agent_launch import launch\n"
    "launch(sys.argv[1], secrets={})"
)


def launch_without_kill(attempt: Any, *, cgroups: bool) -> None:
    before = () if cgroups else ("sh", "-c", WITHOUT_CGROUPS, "sh")
    if subprocess.run(
        [*WITHOUT_KILL, *before, "true"], check=False, capture_output=True
    ).returncode:
        pytest.skip("this machine lets us start no program of another user")
    argv = [*WITHOUT_KILL, *before, sys.executable, "-c", LAUNCH, str(attempt.folder)]
    subprocess.run(argv, check=True)


@pytest.mark.parametrize(
    "cgroups",
    [
        pytest.param(True, marks=pytest.mark.fault("daemon of another user (setuid)")),
        pytest.param(
            False, marks=pytest.mark.fault("daemon of another user, no cgroup: left, and told")
        ),
    ],
)
def test_a_daemon_of_another_user_is_killed_by_its_cgroup_or_told(
    make_faulty: Make, record_fault: Record, cgroups: bool
) -> None:
    source = "def other():\n    os.setuid(65534)\n    print('up')\n    signal.pause()\n"
    source += "daemon(other)\nmark()"
    attempt = make_faulty(source, world_size=1)
    launch_without_kill(attempt, cgroups=cgroups)
    assert attempt.wait()["state"] == "succeeded"
    told = [pid for event in attempt.events("left_running") for pid in event["pids"]]
    assert attempt.left() == told
    assert len(told) == (not json.loads(attempt.text("identity.json"))["cgroup"])
    record_fault(attempt)


def test_a_rank_of_another_user_is_waited_for(make_faulty: Make) -> None:
    source = (
        "import fcntl\nhold = open(os.environ['SGPU_PROJECT_DIR'] + '/hold')\n"
        "os.setuid(65534)\nprint('up')\nfcntl.flock(hold, fcntl.LOCK_SH)"
    )
    attempt = make_faulty(source)
    with open(attempt.folder.parent / "hold", "w") as hold:
        fcntl.flock(hold, fcntl.LOCK_EX)
        launch_without_kill(attempt, cgroups=False)
        attempt.until(lambda: attempt.log(0) and attempt.log(1))
        request_cancel(attempt.folder)
        attempt.until(lambda: attempt.events("state")[-1]["state"] == "stopping")
        assert attempt.rank_pid(0) in attempt.left()
    assert attempt.wait()["state"] == "cancelled"
    attempt.until_gone()
    attempt.check()


@pytest.mark.fault("recycled pid: not signalled")
def test_a_reused_pid_is_not_signalled(make_faulty: Make, tmp_path: Path) -> None:
    bystander = subprocess.Popen(
        ["sh", "-c", f"trap 'exit 3' WINCH; touch {tmp_path}/up; while :; do sleep 0.01; done"]
    )
    attempt = make_faulty("")
    attempt.until((tmp_path / "up").exists)
    supervisor = create_held(str(attempt.folder / "supervisor.lock"))
    identity = {"pid": bystander.pid, "start_time": 1, "boot": "x", "token": attempt.token}
    (attempt.folder / "identity.json").write_text(json.dumps(identity))
    request_cancel(attempt.folder)
    identity["start_time"] = start_time(bystander.pid)
    (attempt.folder / "identity.json").write_text(json.dumps(identity))
    assert bystander.poll() is None
    request_cancel(attempt.folder)
    assert bystander.wait() == 3
    os.close(supervisor)


@pytest.mark.fault("reboot (another boot id): lost, node_lost, and nothing is signalled")
def test_another_boot_id_means_a_reboot(make_faulty: Make, tmp_path: Path) -> None:
    attempt = make_faulty("block()").launch().until_up()
    attempt.kill_both()
    attempt.until_gone()
    (tmp_path / "boot").write_text("00000000-0000-0000-0000-000000000000")
    code = "import sys; from sgpu_decl.agent.attempt.attempt_status import *\n"
    code += "r = read_attempt(sys.argv[1])\n"
    code += "print(r['state'], r['class'], clear_remains(sys.argv[1]))"
    script = (
        f"mount --bind {tmp_path}/boot /proc/sys/kernel/random/boot_id || exit 9\n"
        f'exec {shlex.quote(sys.executable)} -c "{code}" {attempt.folder}\n'
    )
    argv = ["unshare", "--mount", "sh", "-c", script]
    seen = subprocess.run(argv, capture_output=True, text=True, check=False)
    if seen.returncode in (1, 9):
        pytest.skip("this machine lets us give no other boot id to a process")
    assert seen.stdout == "lost node_lost 0\n", seen.stderr


IN_A_TERMINAL = """
import os, signal, sys
os.close(os.open(os.ttyname(0), os.O_RDWR))  # the first that a new session opens becomes its own
from sgpu_decl.agent.launching.agent_launch import launch
if sys.argv[2]: signal.signal(signal.SIGHUP, signal.SIG_IGN)
launch(sys.argv[1], secrets={})
signal.pause()
"""


@pytest.mark.parametrize(
    "nohup",
    [
        pytest.param(False, marks=pytest.mark.fault("terminal of apply closed")),
        pytest.param(True, marks=pytest.mark.fault("terminal of apply closed, under nohup")),
    ],
)
def test_the_terminal_of_apply_is_closed(
    make_faulty: Make, record_fault: Record, nohup: bool
) -> None:
    attempt = make_faulty("up()\nawait_file(out + '/go')")
    terminal, inside = pty.openpty()
    apply = subprocess.Popen(
        [sys.executable, "-c", IN_A_TERMINAL, attempt.folder, "nohup" if nohup else ""],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
    )
    os.close(inside)
    attempt.until_up()
    attempt.mark()
    os.close(terminal)  # the kernel hangs up on the session, as sshd's end does
    apply.kill()
    apply.wait()
    (attempt.folder / "output" / "go").touch()
    assert attempt.wait()["state"] == "succeeded"
    attempt.until_gone()
    record_fault(attempt)
    attempt.check()


@pytest.mark.fault("TERM between two spawns")
def test_term_between_two_spawns(make_faulty: Make, record_fault: Record) -> None:
    attempt = make_faulty("stubborn()", world_size=12).launch()
    attempt.until(lambda: attempt.events("rank_started"))
    attempt.mark()
    os.kill(attempt.supervisor, signal.SIGTERM)
    assert attempt.wait()["state"] == "cancelled"
    assert not attempt.left()
    record_fault(attempt)
    attempt.check()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_user_signals_reach_the_ranks_through_guardian_and_supervisor(
    make_faulty: Make, number: int
) -> None:
    source = (
        f"signal.pthread_sigmask(signal.SIG_BLOCK, [{number}])\nup()\nsignal.sigwait([{number}])"
    )
    for process in ("guardian", "supervisor"):
        attempt = make_faulty(source).launch()
        attempt.until_up()
        os.kill(attempt.guardian, signal.SIGHUP)
        os.kill(getattr(attempt, process), number)
        assert attempt.wait()["state"] == "succeeded"


@pytest.mark.fault("attempt folder deleted: its ranks are stopped, nothing is left")
@pytest.mark.parametrize("source", ["block()", "stubborn()", "await_file(go); sys.exit(3)"])
@pytest.mark.parametrize("restarts", [0, 1])
def test_the_folder_is_deleted_underneath(
    make_faulty: Make, tmp_path: Path, restarts: int, source: str
) -> None:
    source = f"daemon(block)\nup()\ngo = '{tmp_path}/go'\n{source}"
    retry = RetrySpec(max=restarts, on=("error",), backoff=0.01)
    attempt = make_faulty(source, progress_timeout=60.0, retry=retry).launch().until_up()
    processes = [attempt.guardian, attempt.supervisor]
    while attempt.folder.exists():  # the ranks may be writing into it
        shutil.rmtree(attempt.folder, ignore_errors=True)
    (tmp_path / "go").touch()
    attempt.until_gone()
    attempt.until(lambda: not any(start_time(pid) for pid in processes))
    assert not attempt.folder.exists()


@pytest.mark.fault("attempt folder deleted while it waits for its turn: nothing is started")
def test_the_folder_of_a_queued_attempt_is_deleted(make_queued: Make) -> None:
    attempt, turn = make_queued("block()")
    processes = [attempt.guardian, attempt.supervisor]
    shutil.rmtree(attempt.folder)
    os.close(turn)
    attempt.until(lambda: not any(start_time(pid) for pid in processes))
    assert not attempt.folder.exists()


CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, at);
    if (id == CLOCK_REALTIME && access(SET_BACK, F_OK) == 0) at->tv_sec -= 86400;
    return code;
}
"""


@pytest.mark.fault("wall clock set back a day, then a rank exits 1")
def test_the_wall_clock_is_set_back_a_day(
    make_faulty: Make, record_fault: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("this machine has no C compiler for a clock that can be set back")
    (tmp_path / "clock.c").write_text(CLOCK)
    library = tmp_path / "clock.so"
    flags = ["-shared", "-fPIC", f'-DSET_BACK="{tmp_path}/back"', "-ldl"]
    subprocess.run([compiler, tmp_path / "clock.c", *flags, "-o", library], check=True)
    attempt = make_faulty("up()\nawait_file(out + '/go')\nsys.exit(rank)")
    with monkeypatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(library))
        attempt.launch().until_up()
    attempt.mark()
    (tmp_path / "back").touch()
    (attempt.folder / "output" / "go").touch()
    status = attempt.wait()
    assert (status["class"], status["first_cause"]["rank"]) == ("exit_code", 1)
    times = [event["time"] for event in attempt.events("rank_ended")]
    assert max(times) < status["started_at"] <= status["ended_at"]
    attempt.until_gone()
    record_fault(attempt)
    attempt.check()


@pytest.fixture
def disk_on() -> Iterator[DiskOn]:
    """Puts a disk of its own on a folder, of so many bytes, that can be full."""
    with ExitStack() as mounted:

        def put(folder: Path, size: int) -> None:
            folder.mkdir(parents=True, exist_ok=True)
            mounted.enter_context(small_disk(folder, size))

        yield put


FILL = """
with open(os.environ["SGPU_RUN_DIR"] + "/output/junk", "wb", buffering=0) as file:
    for size in (65536, 1):
        try:
            while file.write(b"x" * size): pass
        except OSError:
            pass
"""


@pytest.mark.fault("log disk full: output dropped and counted")
def test_a_full_log_disk_drops_output_and_no_run(
    make_faulty: Make, record_fault: Record, disk_on: DiskOn
) -> None:
    attempt = make_faulty("mark()\nprint('x' * 3_000_000)\nprint('done')", world_size=1)
    disk_on(attempt.folder / "ranks", 1 << 20)
    status = attempt.launch().wait()
    assert status["state"] == "succeeded", status
    assert 1_900_000 < status["ranks"][0]["dropped_bytes"] < 3_000_010  # told on the full disk too
    attempt.until_gone()
    record_fault(attempt)
    attempt.check()


def _kibibytes(folder: Path) -> int:
    """What the files of a folder take on a disk with blocks of 4 KiB."""
    return sum(-(-file.stat().st_size // 4096) * 4 for file in folder.rglob("*") if file.is_file())


def onto_a_disk(attempt: Any, disk_on: DiskOn, size: int) -> None:
    """Move the folder of an attempt to a disk of that size."""
    aside = attempt.folder.with_name("aside")
    attempt.folder.rename(aside)
    disk_on(attempt.folder, size)
    shutil.copytree(aside, attempt.folder, dirs_exist_ok=True)


@pytest.mark.fault("attempt-folder disk full at the start: refused, nothing is launched")
def test_the_disk_is_full_at_the_start(make_faulty: Make, disk_on: DiskOn) -> None:
    attempt = make_faulty("print('never')")
    onto_a_disk(attempt, disk_on, (_kibibytes(attempt.folder) + 16) << 10)
    with pytest.raises(OSError, match=r"[Nn]o space left") as caught:
        attempt.launch()
    assert caught.value.errno == errno.ECHILD
    assert attempt.read()["state"] == "staging"
    assert not (attempt.folder / "ranks").exists()


@pytest.mark.fault("attempt-folder disk full exactly at the outcome, rank exits 7")
def test_the_disk_is_full_exactly_at_the_outcome(
    make_faulty: Make, record_fault: Record, disk_on: DiskOn
) -> None:
    attempt = make_faulty("mark()\n" + FILL + "os._exit(7)", world_size=1)
    onto_a_disk(attempt, disk_on, 4 << 20)
    status = attempt.launch().wait()
    assert (status["state"], status["class"], status["exit_code"]) == ("failed", "exit_code", 7)
    disk = os.statvfs(attempt.folder)
    assert disk.f_bavail * disk.f_frsize < 1 << 20
    attempt.until_gone()
    record_fault(attempt)
    attempt.check(dropped=True)


@pytest.mark.fault("attempt-folder disk full, then cancelled")
def test_a_run_that_filled_the_disk_can_be_cancelled(
    make_faulty: Make, record_fault: Record, disk_on: DiskOn
) -> None:
    attempt = make_faulty(FILL + "signal.pause()")
    onto_a_disk(attempt, disk_on, 4 << 20)
    attempt.launch()
    attempt.until(lambda: os.statvfs(attempt.folder).f_bavail == 0)
    request_cancel(attempt.folder)
    request_cancel(attempt.folder)
    assert attempt.wait()["state"] == "cancelled"
    attempt.until_gone()
    record_fault(attempt)
    attempt.check(dropped=True)


@pytest.mark.fault("attempt-folder disk full, supervisor killed")
def test_the_supervisor_is_killed_on_a_full_disk(
    make_faulty: Make, record_fault: Record, disk_on: DiskOn
) -> None:
    marked = "mark() if rank else await_file(out + '/moment')\n"
    attempt = make_faulty(marked + FILL + "signal.pause()")
    onto_a_disk(attempt, disk_on, 4 << 20)
    attempt.launch()
    attempt.until(lambda: os.statvfs(attempt.folder).f_bavail == 0)
    os.kill(attempt.supervisor, signal.SIGKILL)
    assert attempt.wait()["class"] == "supervisor_lost"
    attempt.until((attempt.folder / "outcome.json").exists)
    attempt.until_gone()
    record_fault(attempt)
