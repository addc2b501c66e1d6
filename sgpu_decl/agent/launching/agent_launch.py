"""Launching an attempt: a detached process tree that outlives the process that asked for it."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress

from sgpu_decl.agent.system.secrets import startup_variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from sgpu_decl.agent.launching.warm_calls import WarmServer

_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
AGENT = _HOME if os.path.isfile(_HOME) else os.path.join(_HOME, "__main__.py")  # in an archive


def launch(
    folder: Path | str,
    *,
    secrets: Mapping[str, str],
    token: str | None = None,
    node: Mapping[str, Any] | None = None,
    server: LaunchServer | WarmServer | None = None,
) -> None:
    """Start the agent for a prepared attempt folder and return once its supervisor is up.

    The folder holds `spec.json`, `_air.py` and `code/`. Secret values travel by a socket, and so
    does our environment, which ranks inherit: it may hold secrets that nobody declared.

    Args:
        token: that of the launch. The agent refuses a folder that holds another one.
        node: which one this is of several hosts; see `supervision.host_node`.
        server: forks the agent. Without one, an interpreter is started for this launch alone.

    Raises:
        OSError: the attempt cannot be launched, or was launched before; says why.
    """
    path = os.path.abspath(folder)
    environ = dict(os.environ)
    claimed: dict[str, Any] = {} if token is None else {"token": token}
    if node is not None:
        claimed["node"] = dict(node)
    variables = json.dumps({"secrets": dict(secrets), "environ": environ, **claimed}).encode()
    log = os.open(
        os.path.join(path, "agent.log"),
        os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
        0o600,
    )
    try:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            (server.start if server else start_agent)(path, (theirs.fileno(), theirs.fileno(), log))
            theirs.close()
            answer = _answer(ours, variables)
    finally:
        os.close(log)
    if answer != b"ok":
        reason = answer.decode("utf-8", "replace") or f"the agent died; see `{path}/agent.log`"
        raise OSError(errno.ECHILD, reason)


def _answer(agent: socket.socket, variables: bytes) -> bytes:
    answer = b""
    with suppress(ConnectionError):  # it ended before it had read all: its words say why
        agent.sendall(variables)
        agent.shutdown(socket.SHUT_WR)
    with suppress(ConnectionError):
        while part := agent.recv(4096):
            answer += part
    return answer


def start_agent(argument: str, descriptors: tuple[int, int, int]) -> None:
    """Start an interpreter with the agent, with these as its stdin, stdout and stderr."""
    stdin, stdout, stderr = descriptors
    starter = subprocess.Popen(
        [sys.executable, "-I", "-S", AGENT, argument],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd="/",
        env=startup_variables(os.environ),
        start_new_session=True,
        umask=0o077,
    )
    starter.wait()  # it forks at once


class LaunchServer:
    """For many launches: a process that loads the agent once, and forks for each of them.

    It starts with the first launch, and ends with this process or after a second without a launch.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None

    def __del__(self) -> None:
        if self._channel is not None:
            self._channel.close()

    def start(self, folder: str, descriptors: tuple[int, int, int]) -> None:
        """Start the agent for a folder, with these as its stdin, stdout and stderr."""
        with self._lock:
            while True:
                channel = self._channel = self._channel or _serve()
                try:
                    socket.send_fds(channel, [os.fsencode(folder)], descriptors)
                except (BrokenPipeError, ConnectionResetError):
                    channel.close()
                    self._channel = None  # it has ended, and did not see this launch
                else:
                    return


def _serve() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        start_agent("serve", (theirs.fileno(), subprocess.DEVNULL, subprocess.DEVNULL))
    return ours
