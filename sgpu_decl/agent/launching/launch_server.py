"""Serves many launches from one process: see `agent_launch.LaunchServer`, the other side.

Its stdin is a socket. Each message is the folder of an attempt, and brings the stdin, stdout and
stderr of its agent.
"""

from __future__ import annotations

import os
import select
import socket

from sgpu_decl.agent.supervision.guardian import fork_guardian, run
from sgpu_decl.agent.system import processes
from sgpu_decl.agent.system.kernel_features import shortcomings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_IDLE = 1.0  # seconds without a launch
_LONGEST = 4096  # bytes of a path


def main(arguments: Sequence[str]) -> int:  # noqa: ARG001 - as all programs of the agent
    """Fork an agent for each message, until there are no more. It returns in each agent too."""
    if os.fork():
        os._exit(0)  # the client waits for this process only
    shortcomings()  # tried out once, for all that are forked
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
