"""The Ray node of this machine: a process that starts Ray's own, and is their parent.

    absent ─▶ importing ─▶ starting ─▶ up ─▶ ending ─▶ absent       `retry` starts another one
                  └───────────┴─────────┴──▶ (lost) ─┘

`rank/ray_node.py` is the program; it runs in the interpreter of the run. `ray_bootstrap.py`
decides, on agent 0, what the nodes do when. What a node reports to it is a message, because it may
come over the control wire:

    imported {ray, python} · ready {metrics} · complete · failed {failure, summary, traceback}
    · lost {summary, traceback, time_ns} · lines TEXT
"""

from __future__ import annotations

import errno
import math
import os
from _socket import AF_UNIX, SOCK_SEQPACKET, socketpair
from binascii import crc32
from contextlib import suppress
from hashlib import sha256
from hmac import new as hmac

from sgpu_decl.agent.attempt.attempt_files import encode, parse_object
from sgpu_decl.agent.host.ports import claim_port, port_failure
from sgpu_decl.agent.ranks.rank_start import (
    LaunchError,
    exec_error,
    rank_environment,
    spawn,
    write_parameters,
)
from sgpu_decl.agent.ranks.ray_environment import python_path, without_outer_ray, without_rank
from sgpu_decl.agent.ray.ray_logs import fatal_message, keep_logs, last_lines
from sgpu_decl.agent.ray.ray_object_store import default_store, refuses_store, shared_memory
from sgpu_decl.agent.system import processes
from sgpu_decl.agent.system.byte_size import size
from sgpu_decl.agent.system.cgroup import usable_processors
from sgpu_decl.agent.system.fast_stdlib import dumps, signal, signal_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from sgpu_decl.agent.attempt.attempt_record import AttemptRecord
    from sgpu_decl.agent.several_nodes.node_group import Node
    from sgpu_decl.agent.system.loop import Loop
    from sgpu_decl.agent.system.secrets import Redactor

_LOOPBACK = "127.0.0.1"
_TEMPORARY = "/tmp"  # noqa: S108  a new folder in it is private
_PARENT = "ray_node"
# A machine may have these errors with a folder that is well chosen.
_OF_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_LEAVING = 5.0  # seconds from `end` to the end of the process, on however busy a machine
_LOGS = "ray_logs"


class RayProcess:
    """Calls `tell(message)` with what the node reports."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        secrets: Mapping[str, str],
        node: Node,
        loop: Loop,
        record: AttemptRecord,
        redact: Redactor,
        tell: Callable[[dict[str, Any]], None],
    ) -> None:
        self._spec = spec
        self._options: Mapping[str, Any] = spec["ray"]
        self._secrets = secrets
        self._node = node
        self._loop = loop
        self._record = record
        self._redact = redact
        self._tell = tell
        self._log = os.path.join(node.records(spec["run_dir"]), "ray.log")
        self._pid = -1
        self._channel: Any = None
        self._folder = ""
        self._shared = ""  # the folder of the first node, if this node made it on its machine
        self._is_up = False
        self._locks: list[int] = []
        self._then: Callable[[], None] | None = None
        self._keep = False
        self._address = ""
        self._head = ""  # ADDRESS:PORT
        self._folder_of_head = ""
        self.dashboard: str | None = None

    def start(
        self, restart: int, devices: Sequence[str], inherited: Mapping[str, str], address: str
    ) -> None:
        """Start the process, which begins to import Ray. `address` is that of this node.

        Raises:
            LaunchError: it cannot be started.
        """
        self._restart, self._then = restart, None
        self._inherited, self._devices, self._address = inherited, devices, address
        self._head, self._folder_of_head, self.dashboard = "", "", None
        self._is_up = False
        self._has_imported = False
        write_parameters(self._spec)
        try:
            self._folder = _private_folder(self._options["temp_dir"])
            with open(self.token_path, "x") as file:
                file.write(self._token())
        except OSError as error:
            raise self._no_folder(error) from error
        try:
            self._channel, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET)
            self._channel.setblocking(False)  # noqa: FBT003
        except OSError as error:
            why = f"the Ray node of node {self._node.number} cannot be started: {error}"
            raise LaunchError("launch_failed", why) from error
        try:
            argv = [self._spec["python"], os.path.join(self._spec["run_dir"], "_air.py")]
            self._pid, failure_pipe = spawn(
                argv,
                {**self._environment(), "SGPU_RAY_FD": str(theirs.fileno())},
                cwd=self._spec["code_dir"],
                logs=(self._log, self._log),
                reset=self._loop.close,
                keep=theirs.fileno(),
                guarded=False,  # it has to end Ray's processes when this one dies
            )
        finally:
            theirs.close()
        self._record.event("ray_started", pid=self._pid, restart=restart)
        self._loop.watch(self._pid, self._ended)
        self._loop.read(self._channel.fileno(), self._hear)
        problem = exec_error(failure_pipe, argv[0], self._spec["code_dir"])
        if problem is not None:
            raise problem

    def begin_head(self, nodes: int) -> None:
        """Start the head of a cluster of so many nodes.

        Raises:
            LaunchError: a port is taken, or the object store is too large.
        """
        options = self._options
        port = self._claim("port", options["port"])
        self._head = f"{self._address}:{port}"
        arguments = [
            "--head", f"--port={port}", f"--ray-client-server-port={self._claim('client')}",
            "--no-monitor", f"--include-dashboard={options['dashboard']}",
        ]  # fmt: skip
        if options["dashboard"]:
            dashboard = self._claim("dashboard")
            arguments += [f"--dashboard-host={_LOOPBACK}", f"--dashboard-port={dashboard}"]
            self.dashboard = f"http://{_LOOPBACK}:{dashboard}"
        self._begin(arguments, address=None, nodes=nodes)

    def join(self, head: str, folder: str) -> None:
        """Join the cluster with that head, whose folder is that on its own machine.

        Raises:
            LaunchError: there is no free port, the folder cannot be made, or the object store is
                too large.
        """
        self._head, self._folder_of_head = head, folder
        try:
            os.mkdir(folder, 0o700)  # Ray 2.49 puts the files of all nodes below that path
            self._shared = folder
        except FileExistsError:
            pass  # this is the machine of the head
        except OSError as error:
            raise self._no_folder(error) from error
        self._record.event("ray_joining", head=head)
        self._begin([], address=head, nodes=0)

    def invitation(self) -> dict[str, str]:
        """Return what the other nodes need to join the head of this one: see `join`."""
        return {"head": self._head, "folder": self._folder}

    def driver_variables(self) -> dict[str, str]:
        """Return the variables that lead a driver to the cluster."""
        # Ray Train asks the State API each second whether its controller lives
        # (`ray/train/v2/_internal/execution/controller/placement_group_cleaner.py`), and warns each
        # time, as without a dashboard there is none. What Ray skips is what a driver prints of it.
        skip = "RAY_DEDUP_LOGS_SKIP_REGEX"
        quiet = not self._options["dashboard"] and skip not in self._plain_environment()
        skipped = {skip: "Failed to query Ray Train Controller actor state"} if quiet else {}
        return {**skipped, **self._access(), "RAY_ADDRESS": self._head}

    def end(self, then: Callable[[], None], *, keep: bool) -> None:
        """End all processes of the node, and call `then`. `keep` its logs if the run failed."""
        if self._then is not None:
            return
        self._then, self._keep = then, keep
        if self._pid < 0:
            self._over()
            return
        with suppress(OSError):  # it is ending already
            self._send({"end": True})
        self._loop.after("ray_end", _LEAVING, self._kill)

    def _kill(self) -> None:
        if self._pid > 0:
            os.kill(self._pid, signal.SIGKILL)

    def workers(self) -> list[int]:
        """Return the processes that run a task or an actor here, or are about to."""
        pids = processes.descendants(self._pid) if self._pid > 0 else []
        return [pid for pid in pids if _works(processes.command_line(pid))]

    def remove_folder(self) -> None:
        """Remove what Ray left on the disk, once none of its processes is left."""
        for folder in filter(None, (self._folder, self._shared)):
            from shutil import rmtree

            rmtree(folder, ignore_errors=True)
        self._folder = self._shared = ""

    def last_lines(self, *names: str) -> str | None:
        """Return the last lines that the processes of these names logged; those of the start if
        there are none."""
        logs = self._session_logs()
        ends = (".out", ".err") if logs else ()
        paths = [os.path.join(logs, name + end) for name in names for end in ends]
        text = last_lines(*paths) or last_lines(self._log)
        return self._redact(text) if text else None

    # ── inside ───────────────────────────────────────────────────────────────────────────────

    def _begin(self, arguments: list[str], *, address: str | None, nodes: int) -> None:
        options = self._options
        self._metrics_port = self._claim("metrics_export_port", options["metrics_export_port"])
        whole = [
            *arguments,
            f"--node-ip-address={self._address}",
            f"--temp-dir={self._folder}/r",
            "--disable-usage-stats",
            "--log-color=false",
            "--min-worker-port=0",
            "--max-worker-port=0",
            f"--dashboard-agent-listen-port={self._claim('agent')}",
            f"--metrics-export-port={self._metrics_port}",
            f"--num-cpus={options['num_cpus'] or usable_processors()}",
            f"--num-gpus={options['num_gpus']}",
            f"--resources={dumps(dict(options['resources']))}",
        ]
        whole.append(f"--object-store-memory={self._store()}")
        plan = {
            "arguments": whole,
            "address": address,
            "head": self._head,
            "nodes": nodes,
            "folders": [self._shared] if self._shared else [],
            "dashboard": address is None and options["dashboard"],
            "python_path": python_path(self._spec, self._plain_environment()),
        }
        try:
            self._send({"start": plan})
        except OSError as error:
            raise LaunchError("platform", f"the Ray node cannot be reached: {error}") from error

    def _store(self) -> int:
        """Return the bytes of the object store.

        Raises:
            LaunchError: Ray would not start with them.
        """
        store: int | None = self._options["object_store_memory"]
        if store is None:
            return default_store()
        free = shared_memory()
        if refuses_store(store, free, self._options["env"]):
            why = (
                f"the `ray.object_store_memory` of {size(store)} does not fit into the "
                f"{size(free)} that are free in /dev/shm, and Ray keeps at most 10 GB on a "
                f"disk, on node {self._node.number}"
            )
            raise LaunchError("launch_failed_user", why)
        return store

    def _send(self, message: Mapping[str, object]) -> None:
        """Send a message to the process.

        Raises:
            OSError: it has ended, or is ending.
        """
        if self._channel is None:  # it may be seen that it closed its end before it is seen to end
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        self._channel.send(encode(message))

    def _no_folder(self, error: OSError) -> LaunchError:
        chosen, why = self._options["temp_dir"], error.strerror or str(error)
        where = _TEMPORARY if chosen is None else f"the `ray.temp_dir` {chosen}"
        summary = f"cannot make a folder for Ray in {where} on node {self._node.number}: {why}"
        if chosen is None or error.errno in _OF_MACHINE:
            return LaunchError("launch_failed", summary)
        way_out = "choose a folder that this user may write on each node, or leave it out"
        return LaunchError("launch_failed_user", f"{summary}; {way_out}")

    def _claim(self, name: str, port: int | None = None) -> int:
        """Return a port that is ours until this cluster ends: `port`, if one is given. The port of
        the metrics is a preference; where it is taken, another one serves as well."""
        folder = self._spec["port_lock_dir"]
        seed = crc32(f"{self._spec['token']} {name} {self._node.number}".encode())
        try:
            try:
                port, lock = claim_port(folder, seed, port, field=f"ray.{name}")
            except OSError:
                if name != "metrics_export_port" or port is None:
                    raise
                port, lock = claim_port(folder, seed)
        except OSError as error:
            raise LaunchError(port_failure(error, port), error.strerror or str(error)) from error
        self._locks.append(lock)
        return port

    def _environment(self) -> dict[str, str]:
        options = self._options
        # Ray has limits of its own for the start (`src/ray/common/ray_config_def.h`), whatever the
        # options say: `ray start` waits 30 s for its raylet, and that 30 s for its agents.
        patience = math.ceil(max(options["head_startup_timeout"], options["worker_join_timeout"]))
        own = {
            "RAY_raylet_start_wait_time_s": patience,
            "RAY_agent_register_timeout_ms": 1000 * patience,
        }
        # Without a dashboard Ray has no State API, and Ray Train would log a traceback each time it
        # asks for its controllers there (`ray/train/v2/_internal/state/state_actor.py`).
        defaults = (
            {} if options["dashboard"] else {"RAY_TRAIN_ENABLE_STATE_ACTOR_RECONCILIATION": "0"}
        )
        plain = {**defaults, **self._plain_environment()}
        environment = {**plain, **self._access(), **own, **options["env"]}
        return {name: str(value) for name, value in environment.items()}

    def _plain_environment(self) -> dict[str, str]:
        return without_rank(
            rank_environment(
                self._spec,
                inherited=without_outer_ray(self._inherited),
                secrets=self._secrets,
                rank=self._node.number,
                restart=self._restart,
                node=self._node,
                port=0,
                devices=self._devices,
            )
        )

    def _access(self) -> dict[str, str]:
        """Return what all processes of the cluster need to talk to each other. Ray below 2.52 knows
        no tokens. With the last one, a node on its own listens on loopback alone."""
        alone = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"} if self._node.count == 1 else {}
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": self.token_path, **alone}

    @property
    def token_path(self) -> str:
        """The file with the token of the cluster, which its dashboard asks for, too."""
        return os.path.join(self._folder, "token")

    def _token(self) -> str:
        """Return the token of the cluster. All nodes derive it; it is never sent."""
        key = self._spec["control_key"] or os.urandom(32).hex()
        return hmac(key.encode(), f"ray {self._restart}".encode(), sha256).hexdigest()

    def _session_logs(self) -> str:
        """Return the folder of the logs of this node's processes. Ray 2.49 writes those of all
        nodes of a machine into the folder of the first one: one that is up has some there."""
        of_head = self._folder_of_head if self._is_up else ""
        for folder in (self._folder, self._shared, of_head):
            logs = os.path.join(folder, "r", "session_latest", "logs")
            if folder and os.path.isdir(logs):
                return logs
        return ""

    def _hear(self) -> None:
        """Take one message of the process, and pass it on with what this node knows."""
        try:
            data = self._channel.recv(1 << 20)
        except OSError:
            data = b""
        message = parse_object(data) if data else None
        if message is None:
            self._hang_up()
            return
        number = self._node.number
        if "imported" in message:
            self._has_imported = True
        elif "ready" in message:
            self._is_up = True
            message = {"ready": {"metrics": f"{self._address}:{self._metrics_port}"}}
        elif "failed" in message:
            failed = message["failed"]
            failure = "launch_failed_user" if failed["user"] else "platform"
            text = self._redact(failed["details"]) or None
            if text is None and not failed["user"]:
                text = self.last_lines()
            summary = f"{failed['summary']} on node {number}: {failed['reason']}"
            message = _failed(failure, self._redact(summary), text)
        elif "lost" in message:
            lost = message["lost"]
            message = self._lost(lost["process"], lost["how"], lost["time_ns"])
        self._tell(message)

    def _lost(self, process: str, how: str, time_ns: int) -> dict[str, Any]:
        self._record.event("ray_lost", process=process, how=how)
        name = f"`{process}` of Ray" if process != _PARENT else "the parent of Ray's processes"
        summary = f"{name} on node {self._node.number} {how}"
        lines = self.last_lines(process)
        message = fatal_message(lines or "")
        if message is not None:
            summary += f": {message}"
        return {"lost": {"summary": summary, "traceback": lines, "time_ns": time_ns}}

    def _ended(self, status: int, now: int) -> None:
        while self._channel is not None:
            self._hear()  # what it said last
        self._pid = -1
        self._loop.cancel("ray_end")
        code = os.waitstatus_to_exitcode(status)
        self._record.event("ray_ended", exit_code=code)
        if self._then is not None:
            self._over()
        elif self._folder:
            how = f"was killed with {signal_name(-code)}" if code < 0 else f"exited with {code}"
            by_others = -code in (signal.SIGKILL, signal.SIGTERM)
            if self._has_imported or by_others:
                self._tell(self._lost(_PARENT, how, now))
                return
            summary = (
                f"cannot import Ray on node {self._node.number}: its import {how}; look for a "
                "package that is broken there, or a variable in `ray.env` that Ray cannot read"
            )
            self._tell(_failed("launch_failed_user", summary, self.last_lines()))

    def _over(self) -> None:
        logs = self._session_logs()
        if self._keep and logs:
            name = f"node_{self._node.number}"
            kept = os.path.join(self._spec["output_dir"], _LOGS)
            target, *earlier = (
                os.path.join(kept, str(restart), name) for restart in range(self._restart, -1, -1)
            )
            try:
                files = keep_logs(logs, target, earlier, self._redact)
                self._record.event("ray_logs_kept", files=files)
            except OSError as error:
                self._record.event("ray_logs_not_kept", reason=str(error))
        for lock in self._locks:
            os.close(lock)
        self._locks = []
        if self._then is not None:
            self._then()

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._loop.forget(self._channel.detach())
            self._channel = None


def _failed(failure: str, summary: str, text: str | None = None) -> dict[str, Any]:
    return {"failed": {"failure": failure, "summary": summary, "traceback": text}}


def _works(command_line: bytes) -> bool:
    """Whether a process is a worker that does something. Ray writes the name of its task into the
    command line; that of a worker without one is `ray::IDLE` (ray/_private/ray_constants.py)."""
    if command_line.startswith(b"ray::"):
        return not command_line.startswith(b"ray::IDLE")
    return b"/default_worker.py" in command_line  # it is still importing Ray


def _private_folder(base: str | None) -> str:
    """Make a folder that only this user can enter, and return its path: Ray makes its own folders
    for everybody."""
    name = os.urandom(3).hex()
    folder = os.path.join(base, name) if base else os.path.join(_TEMPORARY, f"sgpu-{name}")
    os.makedirs(folder, mode=0o700)
    return folder
