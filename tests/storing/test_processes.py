"""Two real processes at one state."""

import os
import signal
from typing import Any

import pytest

from sgpu_decl.storing.sqlite.liveness import (
    ProcessMark,
    mark_of_this_process,
    provably_dead,
    provably_dead_here,
)
from sgpu_decl.storing.sqlite.store import SqliteStore
from tests.side_programs import start_program

DIES_IN_A_TRANSACTION = """
import os, signal, sys
from pathlib import Path
from sgpu_decl.storing.sqlite.store import SqliteStore
with SqliteStore(Path(sys.argv[1])).lock("apply", lineage="lin") as writer:
    writer.plan_applied("first")
    with writer._writing():
        writer._connection.execute("INSERT INTO applied_plans VALUES ('half', 'now')")
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_write_cut_in_the_middle_never_happened(store: SqliteStore) -> None:
    with start_program(DIES_IN_A_TRANSACTION, store.path) as other:
        assert other.wait() == -signal.SIGKILL
    assert store.read().serial == 1
    with store.lock("apply", lineage="lin") as writer:
        assert writer.applied("first")
        assert not writer.applied("half")


def _mark(**changed: Any) -> ProcessMark:
    mine = mark_of_this_process()
    fields: dict[str, Any] = {
        "host": mine.host,
        "pid": mine.pid,
        "boot": mine.boot,
        "started": mine.started,
    }
    return ProcessMark(**{**fields, **changed})


def test_only_what_is_certain_counts_as_dead() -> None:
    assert not provably_dead(_mark())
    assert not provably_dead(_mark(host="elsewhere", pid=2**22 + 1))
    assert not provably_dead(_mark(boot=None, started=None))
    assert provably_dead(_mark(pid=2**22 + 1))


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs Linux's /proc")
def test_a_pid_that_was_used_again_and_an_earlier_boot_count_as_dead() -> None:
    mine = mark_of_this_process()
    assert provably_dead(_mark(started="1"))
    assert provably_dead(_mark(boot="another/pid:[1]"))
    assert not provably_dead_here(_mark(boot="another/pid:[1]"))  # another machine of this name
    assert provably_dead_here(_mark(started="1"))
    assert not provably_dead_here(mine)
    # The same boot seen from another pid namespace: its pids mean nothing here.
    assert not provably_dead(_mark(boot=mine.boot.partition("/")[0] + "/pid:[1]", pid=2**22 + 1))
