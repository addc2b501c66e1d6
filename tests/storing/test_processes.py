"""Two real processes at one state."""

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from sgpu_decl.errors import Locked
from sgpu_decl.storing.liveness import ProcessMark, mark_of_this_process, provably_dead

HOLDS = """
import sys
from pathlib import Path
from sgpu_decl.storing.sqlite import SqliteStore
with SqliteStore(Path(sys.argv[1])).lock("apply", lineage="lin") as writer:
    writer.plan_applied("first")
    print("held", flush=True)
    sys.stdin.read()
    writer.plan_applied("second")
"""
DIES_IN_A_TRANSACTION = """
import os, signal, sys
from pathlib import Path
from sgpu_decl.storing.sqlite import SqliteStore
with SqliteStore(Path(sys.argv[1])).lock("apply", lineage="lin") as writer:
    writer.plan_applied("first")
    with writer._writing():
        writer._connection.execute("INSERT INTO applied_plans VALUES ('half', 'now')")
        os.kill(os.getpid(), signal.SIGKILL)
"""
RACES = """
import sys
from pathlib import Path
from sgpu_decl.errors import Locked
from sgpu_decl.storing.sqlite import SqliteStore
store, done = SqliteStore(Path(sys.argv[1])), 0
while done < 10:
    try:
        with store.lock("apply", lineage=sys.argv[2]) as writer:
            writer.plan_applied(f"{sys.argv[2]}-{done}")
            done += 1
    except Locked:
        pass
"""


def _start(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_process_that_holds_the_lock_keeps_another_out_until_it_is_done(store):
    with _start(HOLDS, store.path) as other:
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(Locked, match=f"process {other.pid}"),
            store.lock("apply", lineage="lin"),
        ):
            pass
        assert store.read().serial == 1
        other.stdin.close()
    with store.lock("apply", lineage="lin") as writer:
        assert writer.applied("second")


def test_the_lock_of_a_killed_process_is_taken_over(store):
    with _start(HOLDS, store.path) as other:
        assert other.stdout.readline() == "held\n"
        other.kill()
    assert other.returncode == -signal.SIGKILL
    assert store.holder().pid == other.pid
    assert store.read().serial == 1
    with store.lock("destroy", lineage="lin") as writer:
        assert store.holder().operation == "destroy"
        assert writer.applied("first")


def test_a_write_cut_in_the_middle_never_happened(store):
    with _start(DIES_IN_A_TRANSACTION, store.path) as other:
        assert other.wait() == -signal.SIGKILL
    assert store.read().serial == 1
    with store.lock("apply", lineage="lin") as writer:
        assert writer.applied("first")
        assert not writer.applied("half")


def test_processes_that_race_from_nothing_lose_no_write(store):
    racers = [_start(RACES, store.path, name) for name in ("a", "b")]
    for racer in racers:
        with racer:
            assert racer.wait() == 0
    state = store.read()
    assert state.serial == 20
    assert state.lineage in {"a", "b"}


def _mark(**changed):
    mine = mark_of_this_process()
    fields = {"host": mine.host, "pid": mine.pid, "boot": mine.boot, "started": mine.started}
    return ProcessMark(**{**fields, **changed})


def test_only_what_is_certain_counts_as_dead():
    assert not provably_dead(_mark())
    assert not provably_dead(_mark(host="elsewhere", pid=2**22 + 1))
    assert not provably_dead(_mark(boot=None, started=None))
    assert provably_dead(_mark(pid=2**22 + 1))


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs Linux's /proc")
def test_a_pid_that_was_used_again_and_an_earlier_boot_count_as_dead():
    mine = mark_of_this_process()
    assert provably_dead(_mark(started="1"))
    assert provably_dead(_mark(boot="another/pid:[1]"))
    # The same boot seen from another pid namespace: its pids mean nothing here.
    assert not provably_dead(_mark(boot=mine.boot.partition("/")[0] + "/pid:[1]", pid=2**22 + 1))


def test_a_lock_says_since_when_it_is_held(store):
    with store.lock("apply", lineage="lin"):
        held = store.holder()
    assert abs((datetime.now(UTC) - held.since).total_seconds()) < 60
    assert held.pid == os.getpid()
