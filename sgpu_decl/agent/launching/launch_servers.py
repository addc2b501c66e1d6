"""Servers that fork agents, each for a process that launches attempts.

`main` is the server of many launches (`agent_launch.LaunchServer` is its other side). Its stdin is
a socket. Each message is the folder of an attempt, and brings the stdin, stdout and stderr of its
agent.

`serve` is the warm server of a caller's next calls: it has imported what their ranks import.

    caller ─▶ warm server ─▶ guardian ─▶ supervisor ─▶ warm parent ─▶ ranks
              imported once     └──── forks, a new one of each for every call ────┘

`rank/kept_imports.py` is the program: it imports, then calls `serve` here. The warm parent of an
attempt is then a fork of its supervisor instead of a new interpreter, and all else of the attempt
is as usual. The server has no secrets: they come with each launch, after the fork. It ends with its
caller, after some time without a call, and if a file that it imported has changed. `warm_calls.py`
is the other side."""

from __future__ import annotations

import os
import select
import socket
import sys
import time

from sgpu_decl.agent.attempt.attempt_files import SUPERVISOR_LOCK
from sgpu_decl.agent.ranks import warm_parent
from sgpu_decl.agent.ranks.rank_group import load_command_error, load_failure_kinds
from sgpu_decl.agent.supervision.guardian import fork_guardian, run
from sgpu_decl.agent.system import processes
from sgpu_decl.agent.system.kernel_features import shortcomings
from sgpu_decl.agent.system.locks import held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

IMPORTED, ASK, READY = b"imported", b"?", b"ready"
_LOOK = 1.0  # seconds between two looks at the caller and at calls that have ended
_LONGEST = 4096  # bytes of a path
_IDLE = 1.0  # seconds without a launch


def main(arguments: Sequence[str]) -> int:  # noqa: ARG001 - as all programs of the agent
    """Fork an agent for each message, until there are no more. It returns in each agent too."""
    if os.fork():
        os._exit(0)  # the client waits for this process only
    shortcomings()  # tried out once, for all that are forked
    load_command_error()
    load_failure_kinds()
    channel = socket.socket(fileno=0)
    while True:
        if not select.select([channel], [], [], _IDLE)[0]:
            # What was sent before is still received; whoever sends from now on gets an error.
            channel.shutdown(socket.SHUT_RD)
        folder, descriptors, _, _ = socket.recv_fds(channel, _LONGEST, 3)
        if not folder:
            return 0
        processes.reap()
        if fork_guardian(descriptors):
            return run(os.fsdecode(folder))


def serve(
    channel: socket.socket, kept: Mapping[str, Any], changed: Callable[[], bool]
) -> warm_parent.BecomeParent | None:
    """Fork an agent for each launch that the caller sends. It returns in warm parents alone, and
    says for which attempt this process is one.

    Args:
        kept: the caller's `pid` and `start`, the `idle` seconds, and the `folder` of the call that
            runs already.
        changed: whether a file that was imported is another one by now.
    """
    shortcomings()  # tried out once, for all that are forked
    warm_parent.fork_parents()
    folder = kept["folder"]
    deadline = time.monotonic() + kept["idle"]
    channel.send(IMPORTED)
    while True:
        heard = select.select([channel], [], [], _LOOK)[0]
        processes.reap()
        if not processes.alive(kept["pid"], kept["start"]):
            os._exit(0)
        if not heard:
            if held(os.path.join(folder, SUPERVISOR_LOCK)):
                deadline = time.monotonic() + kept["idle"]
            elif time.monotonic() > deadline:
                os._exit(0)
            continue
        message, descriptors, _, _ = socket.recv_fds(channel, _LONGEST, 3, socket.MSG_CMSG_CLOEXEC)
        if not message or (message == ASK and changed()):
            os._exit(0)
        deadline = time.monotonic() + kept["idle"]
        if message == ASK:
            channel.send(READY)
        else:
            folder = os.fsdecode(message)
            become = _fork_agent(channel, folder, descriptors)
            if become is not None:
                return become


def _fork_agent(
    channel: socket.socket, folder: str, descriptors: list[int]
) -> warm_parent.BecomeParent | None:
    """Fork the guardian of an attempt. It returns in the server, and in the warm parent."""
    if not fork_guardian(descriptors):
        return None
    channel.close()
    os.environ.clear()  # that of the caller comes with the launch
    code = 1
    try:
        code = run(folder)
    except warm_parent.BecomeParent as become:
        return become.with_traceback(None)
    except BaseException:  # noqa: BLE001 - what the agent's interpreter would show
        sys.excepthook(*sys.exc_info())
    os._exit(code)
