"""What starts the node program of one node, and stops it: an actor there, or the driver itself.

Ray sends the class of the actor by value: a node has no copy of this package.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from secrets import randbelow

import ray

from sgpu_decl.backends.ray.cluster.node_files import OWN_FILES, NodeFiles
from sgpu_decl.backends.ray.cluster.node_folder import LOCKS, private_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


# Variables of Ray's workers that mean something else to the ranks; beside them all of `RAY_`.
_LEAKED = ("OMP_NUM_THREADS", "PYTHONBREAKPOINT", "SPT_NOENV")
# Variables of a worker, and of a job, that would make another driver a part of it.
_OF_WORKER = ("RAY_JOB_ID", "RAY_RAYLET_PID", "RAY_OVERRIDE_NODE_ID_FOR_TESTING",
              "RAY_JOB_CONFIG_JSON_ENV_VAR", "RAY_worker_niceness")  # fmt: skip
_LIFELINE, _LOCK, _VARIABLES, _INPUTS = 3, 4, 5, 6  # descriptors of the node program
_ARCHIVE = "agent.zip"


class NodeStarter(NodeFiles):
    """Starts and stops the node program of node `number` of an attempt. `agent` is the archive of
    the node agent. The node program ends with this process."""

    def __init__(self, number: int, agent: bytes) -> None:
        self._run = _run_folder(agent)
        super().__init__(self._run, number)
        self._pid: int | None = None
        self._stopped = False
        self._idle = threading.Event()  # no node program runs
        self._idle.set()
        self._lock = _held_lock(self._run)
        self._records = self._run if number == 0 else os.path.join(self._run, "nodes", str(number))

    def join(self) -> dict[str, Any]:
        """Where this node is; the first one has a port for the agents of the others."""
        from sgpu_decl.agent.host.ports import claim_port
        from sgpu_decl.agent.system.host_locks import host_lock_folder

        port = 0
        if self._number == 0:
            port, self._port = claim_port(host_lock_folder("ports"), randbelow(1 << 30))
        context = ray.get_runtime_context()
        address = ray.util.get_node_ip_address()
        return {"node": context.get_node_id(), "address": address, "port": port}

    def run(
        self, start: Mapping[str, Any], variables: Mapping[str, str], secrets: Mapping[str, str]
    ) -> dict[str, Any]:
        """Run the node program to its end; return `code`, its exit code, or `refused`: the class
        and the reason of a failure that it has no exit code for.

        Args:
            start: `launch`, the launch folder; `arguments` of the node program, in which `RUN`
                stands for its folder; `log`, the file for its output, if there is a storage;
                `python`, the interpreter, if it is not the one of Ray; whether the rank `joins`
                this cluster, as its driver.
            variables: of the node program.
            secrets: variables of its ranks, which `/proc` shows of no other process.
        """
        here = ray.util.get_node_ip_address()
        python = shutil.which(start["python"]) if start["python"] else sys.executable
        if python is None:
            reason = f"`{start['python']}`, the `python` of the backend, is not on node {here}"
            return {"refused": ["launch_failed_user", reason]}
        path = start["log"] or self.log
        try:
            log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            what = "the storage is not" if start["log"] else "the log cannot be written"
            reason = f"{what} on node {here}: `{path}`: {error.strerror}"
            return {"refused": ["staging_failed", reason]}
        try:
            with self._guard:
                if not self._stopped:
                    leading = _leading_here(start["python"]) if start["joins"] else {}
                    self._pid = self._spawn(
                        python, start["arguments"], {**leading, **variables}, secrets, log
                    )
                    self._idle.clear()
        except OSError as error:
            from sgpu_decl.agent.ranks.rank_start import start_error

            refused = start_error(error.errno or 0, f"`{python}` on node {here}")
            return {"refused": [refused.failure, str(refused)]}
        finally:
            os.close(log)
        if self._pid is None:
            return {"code": 128 + signal.SIGTERM}
        code = self._wait(self._pid)
        self._idle.set()
        self._forget_lock()
        if code is None and os.path.exists(self._run):  # at its own end it deletes that
            return {"refused": ["killed", f"the node program on node {here} was killed or crashed"]}
        return {"code": code}

    def discard(self) -> None:
        super().discard()
        self._forget_lock()

    def agent_status(self) -> dict[str, Any] | None:
        """What the agent of this node says of the run."""
        from sgpu_decl.agent.attempt.attempt_status import read_attempt

        status = read_attempt(self._records)
        return status if status["state"] in ("starting", "running", "stopping") else None

    def stop(self) -> None:
        """Ask the node program to stop its ranks."""
        with self._guard:
            self._stopped = True
            if self._pid is not None:
                with contextlib.suppress(ProcessLookupError):  # it has just ended: see `_wait`
                    os.kill(self._pid, signal.SIGTERM)

    def _forget_lock(self) -> None:
        """Delete the lock once nothing is left that it protects. A later actor deletes the rest."""
        if not os.path.exists(self._run) and not os.path.exists(f"{self._run}{OWN_FILES}"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self._run}{LOCKS}")

    def _spawn(
        self,
        python: str,
        arguments: Sequence[str],
        variables: Mapping[str, str],
        secrets: Mapping[str, str],
        log: int,
    ) -> int:
        """Start the node program in a session of its own, with the signals of a new process: Ray's
        workers block and ignore some. Ray's threads allow nothing between fork and exec."""
        from sgpu_decl.agent.system.secrets import DESCRIPTOR, split_secrets

        own = {**_environment(python, self._run), **secrets, **variables}
        environment, memory = split_secrets(own, secrets)
        pipe, self._lifeline = os.pipe()
        null = os.open(os.devnull, os.O_RDONLY)
        given = {
            0: null, 1: log, 2: log, _LIFELINE: pipe, _LOCK: self._lock, _VARIABLES: memory,
        }  # fmt: skip
        if self._inputs is not None and self._inputs.lock is not None:
            given[_INPUTS] = self._inputs.lock  # ranks may read a while longer than this process
        # Above the numbers that they are to get, so that none takes the place of another.
        high = [fcntl.fcntl(item, fcntl.F_DUPFD_CLOEXEC, len(given)) for item in given.values()]
        folders = {"RUN": self._run, **self.folders}
        words = [folders.get(word, word) for word in arguments]
        archive = os.path.join(self._run, _ARCHIVE)
        try:
            return os.posix_spawn(
                python,
                [python, "-I", "-S", archive, *words, "--lifeline", str(_LIFELINE)],
                {**environment, DESCRIPTOR: str(_VARIABLES)},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, source, target)
                    for source, target in zip(high, given, strict=True)
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD),
            )
        finally:
            for descriptor in (pipe, null, memory, *high):
                os.close(descriptor)

    def _wait(self, pid: int) -> int | None:
        """Wait for the node program; None where Ray's workers let the kernel reap children."""
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with self._guard:  # from now on the number may be that of another process
            self._pid = None
            try:
                _, status = os.waitpid(pid, 0)
            except ChildProcessError:
                return None
        return os.waitstatus_to_exitcode(status)


class NodeActor(NodeStarter):
    """The actor. It and its node program also end when the driver is gone, which listens at
    `driver` and expects `greeting`."""

    def __init__(self, number: int, agent: bytes, driver: tuple[str, int], greeting: bytes) -> None:
        super().__init__(number, agent)
        connection = socket.create_connection(driver, timeout=30)
        connection.sendall(greeting)
        connection.settimeout(None)
        _watch_peer(connection)
        threading.Thread(target=self._stop_with, args=(connection,), daemon=True).start()

    def _stop_with(self, connection: socket.socket) -> None:
        """Stop when the connection to the driver ends, and end this process, too: without its head,
        Ray keeps it for a minute or more."""
        try:
            while connection.recv(1):
                pass
        except OSError:
            pass  # the machine of the driver is gone
        self.stop()
        self._idle.wait()
        os._exit(0)


def _environment(python: str, run: str) -> dict[str, str]:
    """The variables of this process without those of Ray, and with the GPUs of this actor: Ray may
    have left them out (RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES)."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("RAY_") and name not in _LEAKED
    }
    from sgpu_decl.agent.node.python_folder import python_folder

    folders = [python_folder(python, run), kept.get("PATH", os.defpath)]
    devices = ",".join(str(device) for device in ray.get_gpu_ids())
    return {
        **kept,
        "PATH": os.pathsep.join(folders),
        "CUDA_VISIBLE_DEVICES": devices,
    }


def _leading_here(python: str | None) -> dict[str, str]:
    """The variables by which a driver joins this cluster: what Ray leaves of its own in the
    entrypoint of a job (`remove_ray_internal_flags_from_env` in `ray/_private/utils.py`), such as
    the token and TLS, the address, and the Python of tasks if it is not the one of Ray."""
    tasks = {} if python is None else {"py_executable": python}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("RAY_") and name not in _OF_WORKER
    }
    return {
        **kept,
        "RAY_ADDRESS": ray.get_runtime_context().gcs_address,
        "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps({"runtime_env": tasks}),
    }


def _run_folder(agent: bytes) -> str:
    """Return a new folder for the node program, with the agent in it. What node programs that were
    killed have left is deleted."""
    above = private_folder()
    run = tempfile.mkdtemp(dir=above)
    archive = os.path.join(run, _ARCHIVE)
    with open(archive, "wb") as file:
        file.write(agent)
    _add_packages(archive)
    _sweep(above)
    return run


def _add_packages(archive: str) -> None:
    """Let this process import the agent from its archive, and what a driver has imported of it
    before, from another one that is gone."""
    for name in ("sgpu_decl", "sgpu_decl.agent"):
        package = sys.modules.setdefault(name, type(sys)(name))
        package.__path__ = [archive]
    for name, module in list(sys.modules.items()):
        _, root, below = name.partition("sgpu_decl.")
        if root and below.startswith(("agent.", "content")) and hasattr(module, "__path__"):
            folders = below.removeprefix("agent.").split(".")
            module.__path__ = [os.path.join(archive, *folders)]


def _sweep(above: str) -> None:
    """Delete the folders that no process uses: those below `above`, and those of outputs."""
    from sgpu_decl.agent.attempt.attempt_files import SUPERVISOR_LOCK
    from sgpu_decl.agent.node.input_folder import delete_unused
    from sgpu_decl.agent.system.locks import held, try_lock

    delete_unused()
    for name in os.listdir(above):
        if not name.endswith(LOCKS):
            continue
        path = os.path.join(above, name)
        run = path[: -len(LOCKS)]
        records = [run, *(entry.path for entry in _entries(os.path.join(run, "nodes")))]
        try:
            lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # another actor deletes it
        free = try_lock(lock) and not any(
            held(os.path.join(item, SUPERVISOR_LOCK)) for item in records
        )
        if free:
            shutil.rmtree(run, ignore_errors=True)
            shutil.rmtree(f"{run}{OWN_FILES}", ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):  # another actor deletes the same
                os.unlink(path)
        os.close(lock)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except OSError:
        return []


def _held_lock(run: str) -> int:
    """Hold the lock of a folder; the node program inherits it."""
    from sgpu_decl.agent.system.locks import create_held

    return create_held(run + LOCKS)


def _watch_peer(connection: socket.socket) -> None:
    """Have the connection end some 15 s after the machine at its other end is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 5)):
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
