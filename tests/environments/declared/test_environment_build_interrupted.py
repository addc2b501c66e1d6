"""Two that build at once, and builds that are cut off."""

import fcntl
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from sgpu_decl.environments.declared.build_lock import build_folder
from sgpu_decl.environments.declared.environment_build import BuildResult, find_build
from sgpu_decl.environments.declared.lock import Lock
from sgpu_decl.environments.declared.uv import find_uv
from sgpu_decl.environments.environment_store import EnvironmentStore
from sgpu_decl.model.step_progress import Quiet
from tests.environments.declared.conftest import Declared
from tests.support import PATIENCE, refusing

BUILDS = """
import json, os, sys
from pathlib import Path
from sgpu_decl.environments.declared.environment_build import build
from sgpu_decl.environments.declared.lock import Lock
from sgpu_decl.environments.interpreters import LocalPython
from sgpu_decl.environments.environment_store import EnvironmentStore
class Told:
    def advance(self, phase, done, total):
        print(phase, done, flush=True)
lock = Lock.from_json(json.loads(sys.argv[1]))
python = LocalPython(sys.executable, lock.python, sys.executable)
store = EnvironmentStore(Path(sys.argv[2]))
build(lock, python, store, Told(), folder=Path.cwd(), environ=os.environ)
"""


def test_a_builder_that_waits_for_another_one_says_so(tmp_path: Path) -> None:
    first, said = ExitStack(), set[str]()

    class Watched:
        """Hears that the second builder waits, and ends the first."""

        def advance(self, phase: str, done: int, total: int) -> None:
            said.add(phase)
            first.close()

    first.enter_context(build_folder(tmp_path / "place", Quiet()))
    with build_folder(tmp_path / "place", Watched()):
        assert said == {"queueing"}


@pytest.fixture
def wrap(declared: Declared, tmp_path: Path) -> Callable[[str], None]:
    """Put a uv on the PATH that does `what` before it installs, and counts that."""
    real = find_uv(declared.environ)
    folder = tmp_path / "wrapped"
    folder.mkdir()
    declared.environ["PATH"] = f"{folder}:{os.environ['PATH']}"

    def write(what: str) -> None:
        text = f'if [ "$1 $2" = "pip sync" ]; then echo x >> {tmp_path}/syncs; {what}; fi'
        path = folder / "new"
        path.write_text(f'#!/bin/sh\n{text}\nexec {shlex.quote(real)} "$@"\n')
        path.chmod(0o755)
        path.rename(folder / "uv")

    return write


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


@pytest.fixture
def start(
    declared: Declared, store: EnvironmentStore, wrap: Callable[[str], None], fifo: Path
) -> Callable[[Lock], tuple[subprocess.Popen[str], int]]:
    """Start to build a lock in a process; gives it and its uv, which has said a word and waits."""

    def call(lock: Lock) -> tuple[subprocess.Popen[str], int]:
        wrap(f"echo Built a thing >&2; echo $$ > {fifo}; read it < {fifo}")
        store.objects.parent.mkdir(parents=True)
        process = subprocess.Popen(
            [sys.executable, "-c", BUILDS, json.dumps(lock.to_json()), store.objects.parent],
            env=declared.environ, cwd=declared.folder, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        uv = int(fifo.read_text())
        assert "building 1\n" in iter(process.stdout.readline, "")
        process.stdout.close()
        wrap("true")
        return process, uv

    return call


class _Noticing:
    """A progress that notices when another build is waited for."""

    def __init__(self) -> None:
        self.waits = threading.Event()

    def advance(self, phase: str, done: int, total: int) -> None:
        if phase == "queueing":
            self.waits.set()


def test_of_two_at_once_one_builds(
    declared: Declared,
    make: Callable[..., BuildResult],
    wrap: Callable[[str], None],
    left: Callable[[], list[str]],
    tmp_path: Path,
) -> None:
    lock = declared.lock(dependencies=["beta<2"])
    wrap("true")
    with ThreadPoolExecutor(2) as both:
        first, second = both.map(make, [lock, lock])
    assert first.manifest == second.manifest
    assert (tmp_path / "syncs").read_text() == "x\n"
    assert left() == []


def test_what_a_killed_build_started_is_waited_for(
    declared: Declared,
    make: Callable[..., BuildResult],
    store: EnvironmentStore,
    start: Callable[[Lock], tuple[subprocess.Popen[str], int]],
    left: Callable[[], list[str]],
    fifo: Path,
) -> None:
    lock = declared.lock(dependencies=["beta<2"])
    process, _ = start(lock)
    process.kill()
    process.wait()
    assert find_build(lock, store) is None
    made = []
    progress = _Noticing()
    thread = threading.Thread(target=lambda: made.append(make(lock, progress)))
    thread.start()
    assert progress.waits.wait(PATIENCE)
    fifo.write_text("go on\n")
    thread.join()
    assert made[0].manifest.packages == (("alpha", "1.1"), ("beta", "1.0"))
    assert left() == []


def test_what_a_killed_build_left_is_cleared_by_the_next(
    declared: Declared,
    make: Callable[..., BuildResult],
    store: EnvironmentStore,
    start: Callable[[Lock], tuple[subprocess.Popen[str], int]],
    left: Callable[[], list[str]],
) -> None:
    process, uv = start(declared.lock(dependencies=["beta<2"]))
    process.kill()
    process.wait()
    os.killpg(uv, signal.SIGKILL)
    (held,) = (store.objects.parent / "building").glob("*.lock")
    with open(held) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # uv is gone
    assert len(left()) == 2
    make(declared.lock(dependencies=["alpha==1.0"]))
    assert left() == []


def test_an_interrupt_leaves_no_uv_behind(
    declared: Declared,
    start: Callable[[Lock], tuple[subprocess.Popen[str], int]],
    left: Callable[[], list[str]],
) -> None:
    process, uv = start(declared.lock(dependencies=["alpha==1.0"]))
    handle = os.pidfd_open(uv)
    process.send_signal(signal.SIGINT)
    process.wait()
    assert select.select([handle], [], [], 60)[0] == [handle]
    os.close(handle)
    assert left() == []


def test_a_full_disk_leaves_nothing_half_there(
    declared: Declared,
    make: Callable[..., BuildResult],
    store: EnvironmentStore,
    wrap: Callable[[str], None],
    left: Callable[[], list[str]],
) -> None:
    lock = declared.lock(dependencies=["alpha==1.0"])
    wrap("echo 'error: Failed (os error 28)' >&2; exit 2")
    with refusing("disk_full"):
        make(lock)
    assert (left(), find_build(lock, store)) == ([], None)
    wrap("true")
    assert make(lock).manifest.packages == (("alpha", "1.0"),)
