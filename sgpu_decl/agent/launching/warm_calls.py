"""Warm calls: what the ranks of the last calls of this process imported stays imported.

The first call starts a warm server (`launch_servers.serve`) beside itself. A later call is launched
by it if nothing that ranks notice is different: interpreter, imports, folder, variables and limits.
Else, and while it imports, the call is launched as usual. A server that cannot serve is not started
again: the imports are not safe to fork.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import threading
import weakref
from contextlib import suppress

from sgpu_decl.agent.launching.agent_launch import start_agent
from sgpu_decl.agent.launching.launch_servers import ASK, IMPORTED, READY
from sgpu_decl.agent.ranks.rank_start import argv_of, rank_environment, shared_environment
from sgpu_decl.agent.several_nodes.node_group import FIRST
from sgpu_decl.agent.system.processes import start_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_AGENT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_MOST = 2  # servers of one process; the memory of each is that of the imports
_PATIENCE = 5.0  # seconds for the answer of a server that is up
_OF_ONE_ATTEMPT = frozenset({"MASTER_PORT", "HYPERPARAMETERS_PATH"})
_DEVICES = frozenset({"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"})


class WarmServer:
    """A process that imports what the ranks of a call import, and then forks the agents of later
    calls. `start` makes it a `LaunchServer`.

    Args:
        spec: that of the call which runs already.
        environment: what the imports see.
        idle: the seconds that it waits for a next call.

    Raises:
        OSError: this machine cannot start it.
    """

    def __init__(
        self, spec: Mapping[str, Any], environment: Mapping[str, str], idle: float
    ) -> None:
        folder = spec["run_dir"]
        logs = os.path.join(folder, "kept")
        os.makedirs(logs, mode=0o700, exist_ok=True)
        pid = os.getpid()
        kept = {
            "agent": _AGENT, "folder": folder, "idle": idle, "pid": pid, "start": start_time(pid)
        }  # fmt: skip
        self._imported = False
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        weakref.finalize(self, self._channel.close)
        with (
            theirs,
            open(os.path.join(logs, "stdout.log"), "ab") as stdout,
            open(os.path.join(logs, "stderr.log"), "ab") as stderr,
        ):
            starter = subprocess.Popen(
                argv_of(spec),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=spec["code_dir"],
                env={
                    **environment,
                    "SGPU_COOKIE": "-" * len(spec["token"]),
                    "SGPU_WARM_FD": str(theirs.fileno()),
                    "SGPU_WARM_DIR": logs,
                    "SGPU_WARM_KEPT": json.dumps(kept),
                },
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                umask=0o077,
            )
        threading.Thread(target=starter.wait, daemon=True).start()  # it forks soon, and ends

    def imported(self) -> bool:
        """Whether its imports are done. If it ended before, they never will be."""
        if not self._imported:
            with suppress(OSError):
                self._imported = self._channel.recv(64, socket.MSG_DONTWAIT) == IMPORTED
        return self._imported

    def ready(self) -> bool:
        """Whether it serves the next launch: it lives, and no file that it imported has changed."""
        try:
            self._channel.settimeout(_PATIENCE)
            self._channel.send(ASK)
            return self._channel.recv(64) == READY
        except OSError:
            return False

    def start(self, folder: str, descriptors: tuple[int, int, int]) -> None:
        """Fork the agent for a folder, with these as its stdin, stdout and stderr."""
        try:
            socket.send_fds(self._channel, [os.fsencode(folder)], descriptors)
        except (BrokenPipeError, ConnectionResetError):
            start_agent(folder, descriptors)  # it has just ended, and did not see this launch


_servers: dict[str, WarmServer] = {}  # the one that was used last is the last
_lock = threading.Lock()
os.register_at_fork(after_in_child=_servers.clear)  # they are the parent's


def warm_server(
    spec: Mapping[str, Any], secrets: Mapping[str, str], idle: float
) -> WarmServer | None:
    """Return the server that can launch a call now. If there is none, one is started for the next
    call with the same imports, as far as this machine can.

    Args:
        idle: the seconds that a server waits for a next call.
    """
    warm = spec["warm"]
    if not warm or warm["refused"] is not None or "SGPU_SITE" in spec["env"]:
        return None  # the last: an interpreter with a folder of packages for each attempt
    environment = _environment(spec, secrets)
    key = json.dumps(
        [argv_of(spec)[0], warm["imports"], spec["code_dir"], environment, idle, _limits()]
    )
    with _lock:
        server = _servers.pop(key, None)
        if server is not None:
            if not server.imported():
                _servers[key] = server
                return None
            if server.ready():
                _servers[key] = server
                return server
        with suppress(OSError):
            _servers[key] = WarmServer(spec, environment, idle)
        while len(_servers) > _MOST:
            _servers.pop(next(iter(_servers)))
    return None


def _limits() -> list[object]:
    """What processes inherit besides: the limits of this one, its priority and its processors."""
    names = [name for name in sorted(vars(resource)) if name.startswith("RLIMIT_")]
    limits = [resource.getrlimit(getattr(resource, name)) for name in names]
    return [limits, os.getpriority(os.PRIO_PROCESS, 0), sorted(os.sched_getaffinity(0))]


def _environment(spec: Mapping[str, Any], secrets: Mapping[str, str]) -> dict[str, str]:
    """The variables that imports see: what the ranks of all calls with this spec share."""
    environment = rank_environment(
        spec, inherited=os.environ, secrets=secrets, rank=0, restart=0, node=FIRST, port=0,
        devices=(),
    )  # fmt: skip
    left_out = _OF_ONE_ATTEMPT | (_DEVICES if spec["gpus"]["need"] else frozenset())
    return {
        name: value
        for name, value in sorted(shared_environment(environment, secrets).items())
        if name not in left_out and not name.startswith(("SGPU_", "TORCHELASTIC_"))
    }
