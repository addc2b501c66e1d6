"""Many launches by one server: each is as one that an interpreter was started for."""

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.launching.agent_launch import LaunchServer, launch
from sgpu_decl.agent.system.processes import start_time, variables
from tests.support import until

Make = Callable[..., Any]
WAITS = 'await_file(out + "/go")'


def _started(attempt: Any, server: LaunchServer) -> int:
    """Launch an attempt; return the process that forked its guardian."""
    launch(attempt.folder, secrets={"PASSWORD": "hunter2"}, server=server)
    stat = Path(f"/proc/{attempt.guardian}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def _let_go(attempt: Any) -> None:
    (attempt.folder / "output" / "go").touch()
    assert attempt.wait()["state"] == "succeeded"


def test_one_process_forks_the_agents_of_all_launches(make_faulty: Make) -> None:
    server = LaunchServer()
    attempts = [make_faulty(f'leave("secret", os.environ["PASSWORD"])\n{WAITS}') for _ in range(3)]
    parents = {_started(attempt, server) for attempt in attempts}
    assert len(parents) == 1
    assert not {"PASSWORD", "PATH"} & variables(parents.pop()).keys()
    sessions = {os.getsid(attempt.guardian) for attempt in attempts}
    assert sessions == {attempt.guardian for attempt in attempts}
    for attempt in attempts:
        _let_go(attempt)
        assert attempt.text("output/secret") == "hunter2"


def test_a_server_that_has_ended_is_replaced(make_faulty: Make) -> None:
    server = LaunchServer()
    first, second = make_faulty(WAITS), make_faulty(WAITS)
    parent = _started(first, server)
    os.kill(parent, signal.SIGKILL)
    until(lambda: start_time(parent) is None)
    assert _started(second, server) != parent
    _let_go(first)
    _let_go(second)


def test_a_server_without_launches_ends(make_faulty: Make) -> None:
    attempt = make_faulty(WAITS)
    server = LaunchServer()
    parent = _started(attempt, server)
    until(lambda: start_time(parent) is None)
    assert start_time(attempt.guardian) is not None
    _let_go(attempt)


def test_a_launch_that_is_refused_says_why(make_faulty: Make) -> None:
    server = LaunchServer()
    attempt = make_faulty(WAITS)
    _started(attempt, server)
    with pytest.raises(OSError, match="launched before"):
        launch(attempt.folder, secrets={}, server=server)
    missing = make_faulty(WAITS)
    (missing.folder / "spec.json").unlink()
    with pytest.raises(OSError, match=r"spec\.json` is missing or damaged"):
        launch(missing.folder, secrets={}, server=server)
    _let_go(attempt)


WITHOUT_PROCESSES = """
import errno, os
from sgpu_decl.agent.launching import launch_servers
fork = os.fork
def no_more():
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
def once():
    os.fork = no_more
    return fork()
os.fork = once
launch_servers.main([])
"""


def test_a_launch_for_which_no_process_is_left_says_why() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, open(os.devnull, "r+b") as null:
        subprocess.run([sys.executable, "-c", WITHOUT_PROCESSES], stdin=theirs, check=True)
        answer, answers = os.pipe()
        socket.send_fds(ours, [b"/nowhere"], [null.fileno(), answers, null.fileno()])
        os.close(answers)
        with open(answer, "rb") as words:
            assert words.read() == os.strerror(errno.EAGAIN).encode()
