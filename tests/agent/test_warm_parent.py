"""Ranks forked from a warm parent: like cold ones in all that a program can see, and as safe.

What is imported ahead here are small modules in a folder on PYTHONPATH, which stand for installed
ones; those that must stop in the middle wait for a file.
"""

import json
import os
import re
import signal
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.attempt.attempt_status import request_cancel
from sgpu_decl.rendering.spec import Entry, RetrySpec, Warm
from tests.support import require

Make = Callable[..., Any]
Record = Callable[..., None]
FUNCTION = Entry(kind="file_function", path="main.py", function="main")
WAIT = """
import os, time
FOLDER = os.environ["SGPU_OUTPUT_DIR"] + "/"
def say(name):
    open(FOLDER + name + ".new", "w").write(str(os.getpid()))
    os.rename(FOLDER + name + ".new", FOLDER + name)
def until(name):
    while not os.path.exists(FOLDER + name):
        time.sleep(0.005)
"""
BLOCK = WAIT + "def main():\n    say('up' + os.environ['RANK'])\n    until('go')\n"


@pytest.fixture
def warm_attempt(make_attempt: Make, tmp_path: Path) -> Make:
    """Make an attempt that imports the given modules ahead; `modules` maps names to sources."""
    installed = tmp_path / "installed"
    installed.mkdir()

    def make(source: str, modules: dict[str, str] | None = None, **fields: Any) -> Any:
        given = {"plain": "", **(modules or {})}
        for name, text in given.items():
            (installed / f"{name}.py").write_text(textwrap.dedent(text))
        imports = tuple((name, ()) for name in given)
        fields.setdefault("entry", FUNCTION)
        fields.setdefault("warm", Warm(imports=imports, required=fields.pop("required", False)))
        env = {"PYTHONPATH": str(installed), **fields.pop("env", {})}
        return make_attempt(source, env=env, **fields)

    return make


def said(attempt: Any, name: str) -> int:
    """Wait until a process has said this word; return its pid."""
    path = attempt.folder / "output" / name
    attempt.until(path.exists)
    return int(path.read_text())


def go(attempt: Any, name: str = "go") -> None:
    (attempt.folder / "output" / name).touch()


def why_cold(attempt: Any) -> list[str]:
    return [event["reason"] for event in attempt.events("cold_start")]


def parent_of(attempt: Any) -> int:
    attempt.until(lambda: attempt.events("warm_started"))
    return int(attempt.events("warm_started")[0]["pid"])


# ── what a rank sees ─────────────────────────────────────────────────────────────────────────────

SELF_PORTRAIT = """
import ctypes, os, signal, sys

def main():
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    names = [name for name in os.environ if name not in ("MASTER_PORT",)]
    held = [os.readlink("/proc/self/fd/" + n) for n in "012"]
    status = open("/proc/self/status").read().splitlines()
    return {
        "environment": {name: os.environ[name] for name in names},
        "in C": {name: (getenv(name.encode()) or b"").decode() for name in names},
        "argv": sys.argv,
        "path": sys.path,
        "cwd": os.getcwd(),
        "main": [sys.modules["__main__"].__file__, __name__],
        "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
        "held": held,
        "signals": [line for line in status if line.startswith(("SigB", "SigI", "SigC", "Uma"))],
        "handlers": [str(signal.getsignal(n)).partition(" at ")[0] for n in range(1, 32)],
        "oom": open("/proc/self/oom_score_adj").read(),
        "cookie": b"SGPU_COOKIE" in open("/proc/self/environ", "rb").read(),
        "open": len(os.listdir("/proc/self/fd")),
    }
"""


OWN = ("SGPU_COOKIE", "TORCHELASTIC_RUN_ID", "SGPU_ATTEMPT", "KUBEFLOW_TRAINER_SERVER_URL")
"""Variables that differ from attempt to attempt."""


def test_a_warm_rank_sees_what_a_cold_one_sees(warm_attempt: Make) -> None:
    warm = warm_attempt(SELF_PORTRAIT, secrets={"TOKEN": "env:TOKEN"}).launch({"TOKEN": "x" * 9})
    cold = warm_attempt(SELF_PORTRAIT, secrets={"TOKEN": "env:TOKEN"}, warm=None).launch(
        {"TOKEN": "x" * 9}
    )
    for own, other in zip(warm.values(), cold.values(), strict=True):
        for name in OWN:
            for part in ("environment", "in C"):
                own[part].pop(name), other[part].pop(name)
        # Two more are open: the logs of the parent for its stacks.
        assert own.pop("open") == other.pop("open") + 2
        assert own == json.loads(json.dumps(other).replace("attempt-2", "attempt-1"))
    assert len(warm.events("warm_started")) == 1
    assert not why_cold(warm)
    assert not warm.left()


def test_what_is_random_is_so_in_every_rank(warm_attempt: Make) -> None:
    require("numpy")
    source = """
        import multiprocessing, random
        import numpy

        def main():
            key = multiprocessing.current_process().authkey.hex()
            return [random.random(), numpy.random.rand(), key]
    """
    attempt = warm_attempt(
        textwrap.dedent(source), {"ahead": "import multiprocessing, random, numpy.random"}
    ).launch()
    first, second = attempt.values()
    assert not why_cold(attempt)
    assert [one != other for one, other in zip(first, second, strict=True)] == [True] * 3


def test_a_script_pickles_its_classes_and_spawns_workers(warm_attempt: Make) -> None:
    source = """
        import multiprocessing, pickle, sys

        class Item:
            pass

        def double(n):
            return 2 * n

        if __name__ == "__main__":
            assert type(pickle.loads(pickle.dumps(Item()))) is Item
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(double, [1, 2]), sys.argv[1:])
    """
    entry = Entry(kind="script", path="main.py", args=("--lr", 1))
    attempt = warm_attempt(
        textwrap.dedent(source), {"ahead": "import multiprocessing"}, entry=entry
    )
    assert attempt.launch().wait()["state"] == "succeeded", attempt.log(0, "stderr")
    assert not why_cold(attempt)
    assert [attempt.log(rank) for rank in (0, 1)] == ["[2, 4] ['--lr', '1']\n"] * 2


def test_what_an_import_prints_stands_in_every_log(warm_attempt: Make) -> None:
    modules = {"loud": "import sys\nprint('hello')\nsys.stderr.write('a warning\\n')"}
    attempt = warm_attempt("print('there')", modules, entry=Entry(kind="script", path="main.py"))
    assert attempt.launch().wait()["state"] == "succeeded"
    for rank in (0, 1):
        assert attempt.log(rank) == "hello\nthere\n"
        assert attempt.log(rank, "stderr") == "a warning\n"


def test_a_pool_of_openblas_is_no_hindrance_and_works_in_ranks(warm_attempt: Make) -> None:
    require("numpy")
    source = (
        "import numpy\ndef main():\n    a = numpy.ones((300, 300))\n    return float((a @ a)[0, 0])"
    )
    attempt = warm_attempt(source, {"ahead": "import numpy"}, env={"OMP_NUM_THREADS": "2"}).launch()
    assert attempt.values() == [300.0, 300.0]
    assert not why_cold(attempt)


def test_secrets_are_not_in_the_parent(warm_attempt: Make) -> None:
    secret = "s3cr-" + os.urandom(8).hex()
    source = BLOCK + "    return os.environ['TOKEN']\n"
    attempt = warm_attempt(source, secrets={"TOKEN": "env:TOKEN"}).launch({"TOKEN": secret})
    said(attempt, "up0")
    parent = parent_of(attempt)
    assert secret.encode() not in Path(f"/proc/{parent}/environ").read_bytes()
    try:
        with open(f"/proc/{parent}/maps") as maps, open(f"/proc/{parent}/mem", "rb", 0) as memory:
            for line in maps:
                low, high = (int(part, 16) for part in line.split()[0].split("-"))
                if line.split()[1].startswith("rw"):
                    memory.seek(low)
                    assert secret.encode() not in memory.read(high - low)
    except PermissionError:
        pytest.skip("this machine does not let a process be looked into")
    go(attempt)
    assert attempt.values() == [secret, secret]


# ── how ranks end ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "code",
    [
        "raise ValueError('no such layer')",
        "sys.exit(7)",
        "os._exit(9)",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGSEGV)",
    ],
)
def test_a_warm_rank_fails_as_a_cold_one(warm_attempt: Make, code: str) -> None:
    source = (
        "import os, signal, sys\ndef main():\n"
        f"    if os.environ['RANK'] == '1': {code}\n    signal.pause()\n"
    )
    told = []
    for fields in ({}, {"warm": None}):
        attempt = warm_attempt(source, **fields).launch()
        status = attempt.wait()
        assert not why_cold(attempt)
        assert not attempt.left()
        cause = status["first_cause"]
        text = (cause["traceback"] or "").replace("attempt-2", "attempt-1")
        cause["traceback"] = re.sub("thread 0x[0-9a-f]+", "thread", text)
        told.append({key: status[key] for key in ("state", "class", "exit_code", "first_cause")})
        told[-1]["ranks"] = status["ranks"]
    assert told[0] == told[1]
    assert told[0]["first_cause"]["rank"] == 1


LAST_ACTS = """
import atexit, gzip, logging, logging.handlers, os, sys, tempfile, threading, zipfile

out = os.environ["SGPU_OUTPUT_DIR"] + "/" + os.environ["RANK"] + "-"

class Told:
    def __init__(self, name):
        self.name = name
    def __del__(self):
        print("deleted:", self.name)

def late():
    threading.main_thread().join()
    open(out + "thread", "w").write("late")

def broken():
    raise ValueError("at exit")

text = open(out + "text", "w")
text.write("not flushed")
packed = gzip.GzipFile(out + "packed", "wb", mtime=0)
packed.write(b"not closed")
archive = zipfile.ZipFile(out + "archive", "w")
archive.writestr(zipfile.ZipInfo("name"), "not closed")
folder = tempfile.TemporaryDirectory(dir=os.environ["SGPU_OUTPUT_DIR"])
log = logging.handlers.MemoryHandler(9, target=logging.FileHandler(out + "log"))
logging.getLogger().addHandler(log)
logging.warning("kept back")
held, cycle = Told("held by the script"), Told("held by itself")
cycle.itself = cycle
del cycle
threading.Thread(target=late).start()
for act in (broken, lambda: print("at exit")):
    atexit.register(act)
sys.stderr.write("the end\\n")
"""


def test_a_warm_rank_ends_as_a_cold_one(warm_attempt: Make) -> None:
    """Its threads, `atexit` functions, open files and finalizers all come to their end."""
    left = []
    for fields in ({}, {"warm": None}):
        entry = Entry(kind="script", path="main.py")
        attempt = warm_attempt(LAST_ACTS, entry=entry, **fields).launch()
        assert attempt.wait()["state"] == "succeeded", attempt.log(0, "stderr")
        assert not why_cold(attempt)
        texts = [attempt.log(rank, stream) for rank in (0, 1) for stream in ("stdout", "stderr")]
        files = {path.name: path.read_bytes() for path in (attempt.folder / "output").iterdir()}
        left.append(([re.sub("0x[0-9a-f]+|attempt-[12]", "", text) for text in texts], files))
    assert left[0] == left[1]
    texts, files = left[0]
    assert "deleted: held by the script" in texts[0]
    assert "ValueError: at exit" in texts[1]
    names = ("archive", "log", "packed", "text", "thread")
    assert sorted(files) == [f"{rank}-{name}" for rank in (0, 1) for name in names]
    assert all(files.values())


def test_a_warm_rank_that_cannot_be_set_up_is_told_as_a_cold_one(warm_attempt: Make) -> None:
    told = []
    for fields in ({}, {"warm": None}):
        attempt = warm_attempt("import signal\nmain = signal.pause", **fields)
        (attempt.folder / "ranks/1/0/stdout.log").mkdir(parents=True)
        status = attempt.launch().wait()
        told.append((status["class"], status["first_cause"]["rank"]))
        assert "Is a directory" in status["first_cause"]["summary"]
        assert not attempt.left()
    assert told == [("launch_failed_user", 1)] * 2


def test_a_restart_is_forked_from_the_same_parent(warm_attempt: Make) -> None:
    source = (
        "import os, sys\ndef main():\n"
        "    if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': sys.exit(3)\n"
        "    return os.environ['TORCHELASTIC_RESTART_COUNT']\n"
    )
    retry = RetrySpec(max=2, on=("error",), backoff=0.01)
    attempt = warm_attempt(source, retry=retry).launch()
    assert attempt.values() == ["1", "1"]
    assert (len(attempt.events("warm_started")), len(attempt.events("rank_started"))) == (1, 4)
    assert not why_cold(attempt)
    assert not attempt.left()


@pytest.mark.fault("supervisor killed, warm parent beside the ranks")
def test_a_killed_supervisor_takes_parent_and_ranks_with_it(
    warm_attempt: Make, record_fault: Record
) -> None:
    attempt = warm_attempt(BLOCK).launch()
    said(attempt, "up0"), said(attempt, "up1")
    attempt.mark()
    os.kill(attempt.guardian, signal.SIGSTOP)  # so that nobody is left to stop them
    os.kill(attempt.supervisor, signal.SIGKILL)
    attempt.until_gone()
    os.kill(attempt.guardian, signal.SIGCONT)
    assert attempt.wait()["class"] == "supervisor_lost"
    record_fault(attempt)


@pytest.mark.parametrize("killed", [False, True])
def test_an_attempt_says_which_imports_it_waits_for(warm_attempt: Make, killed: bool) -> None:
    slow = WAIT + "if 'RANK' not in os.environ:\n    say('importing')\n    until('imported')\n"
    attempt = warm_attempt(BLOCK, {"slow": slow}).launch()
    attempt.until(lambda: attempt.read().get("waiting_for") == "its imports (plain, slow)")
    assert attempt.read()["state"] == "starting"
    if killed:  # and the ranks start cold
        os.kill(parent_of(attempt), signal.SIGKILL)
    go(attempt, "imported")
    for rank in range(2):
        said(attempt, f"up{rank}")
    attempt.until(lambda: attempt.read().get("waiting_for") is None)
    go(attempt)
    assert attempt.values() == [None, None]


# ── the parent dies ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.fault("warm parent killed while it imports: the ranks start cold")
def test_killed_while_it_imports_the_ranks_start_cold(
    warm_attempt: Make, record_fault: Record
) -> None:
    slow = WAIT + "if 'RANK' not in os.environ:\n    say('importing')\n    until('never')\n"
    attempt = warm_attempt("def main(): return 1", {"slow": slow}).launch()
    parent = said(attempt, "importing")
    attempt.mark()
    os.kill(parent, signal.SIGKILL)
    assert attempt.values() == [1, 1]
    attempt.until_gone()
    record_fault(attempt)
    assert why_cold(attempt) == ["the warm parent was killed with SIGKILL"]
    assert "sgpu: cold start: the warm parent was killed" in attempt.text("agent.log")
    assert not attempt.left()


# The forker says that it is there, and goes on when told; so does the first rank, and the forker
# waits once more before it forks the second.
FORKING = WAIT + textwrap.dedent(
    """
    depth = forks = 0
    def forked():
        global depth
        depth += 1
        if depth == 1:
            say("forker")
            until("on")
        elif forks == 1:
            say("rank")
    def before():
        global forks
        forks += depth == 1
        if (depth, forks) == (1, 2):
            until("second")
    os.register_at_fork(after_in_child=forked, before=before)
    """
)


@pytest.mark.fault("warm parent killed while it forks: the ranks start cold")
def test_killed_while_it_forks_the_ranks_start_cold(
    warm_attempt: Make, record_fault: Record
) -> None:
    attempt = warm_attempt("def main(): return 1", {"forking": FORKING}).launch()
    forker = said(attempt, "forker")
    attempt.mark()
    os.kill(parent_of(attempt), signal.SIGKILL)
    attempt.until(lambda: why_cold(attempt))
    go(attempt, "on")
    go(attempt, "second")
    assert attempt.values() == [1, 1]
    assert forker not in [event["pid"] for event in attempt.events("rank_started")]
    attempt.until_gone()
    record_fault(attempt)


def test_with_its_forker_killed_the_ranks_start_cold(warm_attempt: Make) -> None:
    attempt = warm_attempt("def main(): return 1", {"forking": FORKING}).launch()
    forker = said(attempt, "forker")
    go(attempt, "on")
    said(attempt, "rank")
    os.kill(forker, signal.SIGKILL)
    assert attempt.values() == [1, 1]
    assert why_cold(attempt) == ["the fork of the ranks was cut short"]
    attempt.until_gone()


def test_a_rank_killed_before_it_was_adopted_is_told_as_killed(warm_attempt: Make) -> None:
    attempt = warm_attempt("import signal\nmain = signal.pause", {"forking": FORKING}).launch()
    said(attempt, "forker")
    go(attempt, "on")
    os.kill(said(attempt, "rank"), signal.SIGKILL)
    go(attempt, "second")
    status = attempt.wait()
    assert (status["class"], status["first_cause"]["rank"]) == ("killed", 0)
    assert not why_cold(attempt)
    assert not attempt.left()


@pytest.mark.fault("warm parent killed when the ranks run: missed by nobody, a restart is cold")
def test_killed_after_the_forks_it_is_missed_by_nobody(
    warm_attempt: Make, record_fault: Record
) -> None:
    retry = RetrySpec(max=1, on=("error",), backoff=0.01)
    source = BLOCK + "    if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': os._exit(3)\n"
    attempt = warm_attempt(source, retry=retry).launch()
    said(attempt, "up0"), said(attempt, "up1")
    attempt.mark()
    os.kill(parent_of(attempt), signal.SIGKILL)
    attempt.until(lambda: attempt.events("warm_ended"))
    go(attempt)
    assert attempt.values() == [None, None]
    assert attempt.read()["restart"] == 1
    assert len(attempt.events("warm_started")) == 1
    assert not attempt.left()
    record_fault(attempt)


def test_hanging_up_it_is_missed_by_nobody(warm_attempt: Make) -> None:
    modules = {"closes": "import os\nos.closerange(3, 100)"}
    attempt = warm_attempt("def main(): return 1", modules).launch()
    assert attempt.values() == [1, 1]
    assert len(why_cold(attempt)) == 1
    assert not attempt.left()


@pytest.mark.parametrize(
    "how", ["cancel", pytest.param("startup_timeout", marks=pytest.mark.expensive)]
)
def test_a_stop_while_it_imports_leaves_nothing(warm_attempt: Make, how: str) -> None:
    slow = WAIT + "say('importing')\nuntil('never')\n"
    limit = 4.0 if how == "startup_timeout" else None
    attempt = warm_attempt("def main(): pass", {"slow": slow}, startup_timeout=limit).launch()
    said(attempt, "importing")
    if how == "cancel":
        request_cancel(attempt.folder)
    status = attempt.wait()
    wanted = ("cancelled", None) if how == "cancel" else ("failed", "timeout")
    assert (status["state"], status["class"]) == wanted
    assert not attempt.left()


# ── not safe ─────────────────────────────────────────────────────────────────────────────────────

UNSAFE = {
    "a Python thread": (
        """
        import threading
        threading.Thread(target=threading.Event().wait, daemon=True, name="ticker").start()
        """,
        "an import started a Python thread, `ticker`",
    ),
    "a native thread": (
        """
        import ctypes
        libc = ctypes.CDLL(None)
        libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, libc.pause, None)
        """,
        "an import started the native thread",
    ),
    "a process": ("import subprocess\nkept = subprocess.Popen(['sleep', '60'])", "a process"),
    "a socket": ("import socket\nkept = socket.socket()", "which all ranks would share"),
}


@pytest.mark.parametrize("kind", UNSAFE)
def test_what_does_not_survive_a_fork_makes_a_cold_start(warm_attempt: Make, kind: str) -> None:
    source, reason = UNSAFE[kind]
    attempt = warm_attempt("def main(): return 1", {"unsafe": source}).launch()
    assert attempt.values() == [1, 1]
    assert len(why_cold(attempt)) == 1
    assert reason in why_cold(attempt)[0]
    attempt.until_gone()


# ── imports that fail, and code that has modules of the same name ────────────────────────────────


def test_an_import_that_was_asked_for_and_fails_is_the_users_error(warm_attempt: Make) -> None:
    modules = {"broken": "import gone_away"}
    status = warm_attempt("def main(): pass", modules, required=True).launch().wait()
    cause = status["first_cause"]
    assert (status["class"], cause["rank"]) == ("exception", None)
    assert cause["summary"] == "ModuleNotFoundError: No module named 'gone_away'"
    assert "broken.py" in cause["traceback"]
    assert "_air.py" not in cause["traceback"]


def test_an_import_that_was_asked_for_and_crashes_is_the_users_error(warm_attempt: Make) -> None:
    modules = {"crash": "import ctypes\nctypes.string_at(0)"}
    attempt = warm_attempt("def main(): pass", modules, required=True).launch()
    status = attempt.wait()
    assert status["class"] == "signal_self"
    assert "was killed with SIGSEGV" in status["first_cause"]["summary"]
    assert "crash.py" in status["first_cause"]["traceback"]
    assert not attempt.left()


def test_an_import_that_fails_ahead_is_told_by_the_rank_that_needs_it(warm_attempt: Make) -> None:
    modules = {"broken": "import gone_away"}
    attempt = warm_attempt("def f(): pass\nimport broken\nmain = f", modules).launch()
    status = attempt.wait()
    assert (status["class"], len(why_cold(attempt))) == ("exception", 1)
    assert "main.py" in status["first_cause"]["traceback"]


@pytest.mark.parametrize("name", ["plain", "inner", "optional", "socket"])
def test_a_module_of_the_code_is_never_taken_for_an_installed_one(
    warm_attempt: Make, name: str
) -> None:
    ahead = "import inner\ntry:\n    import optional\nexcept ImportError:\n    optional = None\n"
    source = (
        "import ahead, plain\ndef main(): return getattr(ahead.optional, 'here', plain.__file__)"
    )
    attempt = warm_attempt(source, {"inner": "", "ahead": ahead})
    (attempt.folder / "code" / f"{name}.py").write_text("here = 'code'")
    where = str(attempt.folder / "code" / "plain.py")
    found = attempt.launch().values()
    assert why_cold(attempt) == [f"the code of this run has a module `{name}` of its own"]
    if name == "plain":
        assert found == [where, where]
    if name == "optional":
        assert found == ["code", "code"]


def test_a_module_of_the_code_cannot_be_asked_for(warm_attempt: Make) -> None:
    attempt = warm_attempt("def main(): pass", required=True)
    (attempt.folder / "code" / "plain.py").write_text("")
    status = attempt.launch().wait()
    assert status["class"] == "launch_failed_user"
    assert "`launch.warm` cannot import `plain` ahead" in status["first_cause"]["summary"]


def test_a_refusal_of_the_plan_is_told(warm_attempt: Make) -> None:
    refused = Warm(refused="`train.py` imports torch after line 3")
    attempt = warm_attempt("def main(): return 1", warm=refused).launch()
    assert attempt.values() == [1, 1]
    assert why_cold(attempt) == [refused.refused]


def test_a_missing_interpreter_is_told_as_for_cold_ranks(warm_attempt: Make) -> None:
    status = warm_attempt("", python="/no/python").launch().wait()
    assert (status["class"], status["first_cause"]["rank"]) == ("launch_failed_user", 0)
    assert "/no/python" in status["first_cause"]["summary"]


def test_ps_shows_ranks_by_their_names(warm_attempt: Make) -> None:
    source = """
def main():
    with open("/proc/self/cmdline") as title, open("/proc/self/comm") as name:
        return [title.read().rstrip("\\0"), name.read()]
"""
    for fields in ({}, {"warm": None}, {"warm": None, "address": "run.a-model-with-a-long-name"}):
        attempt = warm_attempt(source, **fields).launch()
        number = attempt.folder.name.rpartition("-")[2]
        run = fields.get("address", "run.test").removeprefix("run.")
        for rank, (title, name) in enumerate(attempt.values()):
            end = f"#{number} rank {rank}"
            assert title == f"sgpu: {run}{end}"
            assert name == f"{run[: 15 - len(end)]}{end}\n"
