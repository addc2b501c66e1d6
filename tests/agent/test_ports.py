"""Ports for the rendezvous: no two runs have one, and rank 0 can always bind it.

`SGPU_LAUNCHES` says how many runs are up side by side.
"""

import errno
import fcntl
import os
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from sgpu_decl.agent.host.ports import claim_port
from sgpu_decl.rendering.spec import Entry

LAUNCHES = int(os.environ.get("SGPU_LAUNCHES", "40"))
# A rank as light as Python can be: it holds its port until nobody holds the lock any more.
HOLDER = """
import fcntl, os
from _socket import socket
held = socket()
held.bind(("127.0.0.1", int(os.environ["MASTER_PORT"])))
held.listen()
print(os.environ["MASTER_PORT"], flush=True)
fcntl.flock(os.open(os.environ["SGPU_PROJECT_DIR"] + "/hold", os.O_RDONLY), fcntl.LOCK_SH)
"""


@pytest.mark.expensive
def test_launches_side_by_side_never_meet_at_a_port(
    make_attempt: Callable[..., Any], tmp_path: Path
) -> None:
    entry = Entry(kind="command", command=(sys.executable, "-I", "-S", "-c", HOLDER))
    attempts = [make_attempt(entry=entry, world_size=1) for _ in range(LAUNCHES)]
    with open(tmp_path / "hold", "w") as hold:
        fcntl.flock(hold, fcntl.LOCK_EX)
        with ThreadPoolExecutor(8) as launchers:
            list(launchers.map(lambda attempt: attempt.launch(), attempts))
        for attempt in attempts:
            attempt.until(attempt.log)  # all hold theirs at once
    assert {attempt.wait()["state"] for attempt in attempts} == {"succeeded"}
    assert len({attempt.log() for attempt in attempts}) == LAUNCHES


def test_runs_that_want_the_same_port_get_different_ones(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as runs:
        claims = list(runs.map(lambda _: claim_port(str(tmp_path), 7), range(64)))
    assert len({port for port, _ in claims}) == 64
    for _, lock in claims:
        os.close(lock)


@pytest.mark.parametrize("left", ["a listener", "a connection that was just closed"])
def test_a_port_that_cannot_be_bound_is_passed_over(tmp_path: Path, left: str) -> None:
    first, lock = claim_port(str(tmp_path), 7)
    os.close(lock)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as torch's store does
        listener.bind(("127.0.0.1", first))
        listener.listen()
        if left != "a listener":
            with socket.create_connection(("127.0.0.1", first)) as client:
                listener.accept()[0].close()  # the side that closes first keeps the port a while
                assert client.recv(1) == b""
            listener.close()
        port, lock = claim_port(str(tmp_path), 7)
        os.close(lock)
        assert port != first
        with socket.socket() as rank:
            rank.bind(("", port))


def test_a_port_that_was_asked_for_is_had_or_refused(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match=f"port {port} is taken") as caught:
            claim_port(str(tmp_path), 0, port)
        assert caught.value.errno == errno.EADDRINUSE
    _, lock = claim_port(str(tmp_path), 0, port)
    words = f"port {port} is taken by another run, process {os.getpid()}; leave `a.b` out"
    with pytest.raises(OSError, match=words):
        claim_port(str(tmp_path), 0, port, field="a.b")
    os.close(lock)


def test_a_chosen_port_that_is_taken_is_a_mistake_of_the_run(
    make_attempt: Callable[..., Any],
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        status = make_attempt("", world_size=1, master_port=port).launch().wait()
    assert status["class"] == "launch_failed_user"
    assert f"port {port} is taken by process {os.getpid()}" in status["first_cause"]["summary"]


def test_a_port_below_those_of_this_user_is_not_called_taken() -> None:
    with TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o777)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            with pytest.raises(OSError, match="this user may not listen on port 80") as caught:
                claim_port(folder, 0, 80, field="ray.port")
        finally:
            os.seteuid(user)
    assert caught.value.errno == errno.EACCES
    assert "choose a higher one, or leave `ray.port` out" in str(caught.value)
