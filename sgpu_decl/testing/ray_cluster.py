"""A real Ray cluster of some nodes on this machine, for tests.

    with ray_cluster(nodes=2, cpus=8) as cluster:
        ...  # cluster.url is the address of its dashboard

Each node is a process group of its own, with its own ports and its own folder of Ray (2.49 ignores
that of all nodes but the head). Nothing scales the cluster. Processes are found by a mark in their
environment and ended by their pids: `ray stop` would end every Ray of the machine.
"""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

from packaging.version import Version

from sgpu_decl.agent.host.ports import claim_port
from sgpu_decl.agent.system.host_locks import host_lock_folder
from sgpu_decl.agent.system.processes import command_line, descendants, related
from sgpu_decl.model.ray_size import FIRST_RAY_WITH_TOKENS
from sgpu_decl.rank.ray_node import OTHER_COMMANDS

__all__ = ["RayCluster", "ray_cluster"]

_PATIENCE = 100.0  # seconds until a node must have joined, on however busy a machine
_STARTS = 3  # of a node that stays silent
_LEAVING = 15.0  # seconds for processes to end whose parents have ended, on however busy a machine
_PAUSE = 0.1
_SHORT_PAUSE = 0.01
_MEMORY = 100_000_000  # bytes of the object store of each node
_PORTS = 5  # of each node
_STORAGES = ("memory", "rocksdb")
# `ray start`, without what its module imports for the other commands: see `rank/ray_node.py`.
_START = f"""\
import sys
sys.modules.update(dict.fromkeys({OTHER_COMMANDS}))
from ray.scripts.scripts import main
"""
# The dashboard starts a process for each of its parts; in Ray 2.49 each of them imports Ray.
_ONLY_USED = """\
from ray._private import node, services
node.Node.start_ray_client_server = lambda self: None
start_process = services.start_ray_process
def start(command, name, *args, **kwargs):
    if name == "dashboard":
        command = [*command, "--modules-to-load=JobHead,NodeHead,ReportHead,StateHead"]
    return start_process(command, name, *args, **kwargs)
services.start_ray_process = start
"""
# Ray starts workers before its first driver asks for any (`ray_config_def.h`). Each costs a second.
# With the other one, processes that change their title keep their environment, and so their mark.
_VARIABLES = {"RAY_prestart_worker_first_driver": "0", "SPT_NOENV": "1"}
_MARK = "TEST_RAY_CLUSTER_NODE"
_LOOPBACK = "127.0.0.1"
_ACTIVE_JOBS = ("PENDING", "RUNNING")


@dataclass(kw_only=True)
class RayCluster:
    """`url` is the address of the dashboard, `address` that of Ray itself. `nodes` has the process
    of each node, the head first; `folder` has its logs. `token` is None for a cluster that asks for
    none."""

    python: str
    url: str
    address: str
    folder: Path
    token: str | None = None
    nodes: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    _starts: "list[Callable[[], subprocess.Popen[bytes]]]" = field(default_factory=list)

    def get(self, path: str) -> Any:
        """What the dashboard answers."""
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(f"{self.url}{path}", headers=headers)  # noqa: S310  ours
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return json.load(answer)

    def kill_node(self, number: int) -> None:
        """End all processes of a node, as if its machine were gone."""
        _kill(self.nodes[number], lambda: self._processes(number))

    def restart_node(self, number: int) -> None:
        """Start a node again that was killed, at the same ports, and wait until it has joined."""
        alive = len(self._alive()) if number > 0 else 0
        # The other nodes run on this machine, and Ray takes them for the head that this file names.
        (self.folder / str(number) / "ray_current_cluster").unlink(missing_ok=True)
        self.nodes[number] = self._starts[number]()
        _await_nodes(self, number, alive + 1)

    def leftovers(self) -> list[str]:
        """What a test that shares the cluster leaves to the next one: a missing node, an active
        run, a placement group."""
        missing = len(self.nodes) - len(self._alive())
        left = [f"{missing} dead nodes"] if missing else []
        left += [
            f"{job['metadata']['sgpu.address']}, {job['status']}"
            for job in self.get("/api/jobs/")
            if "sgpu.address" in (job["metadata"] or {}) and job["status"] in _ACTIVE_JOBS
        ]
        return left + [
            f"placement group {group['name']}, {group['state']}"
            for group in self._rows("placement_groups")
            if group["state"] != "REMOVED"
        ]

    def _alive(self) -> list[Any]:
        """What the dashboard says of each node that is alive."""
        return [row for row in self._rows("nodes") if row["state"] == "ALIVE"]

    def _rows(self, table: str) -> list[Any]:
        answer = self.get(f"/api/v0/{table}?limit=10000")
        return list(answer["data"]["result"]["result"])

    def processes(self, number: int, name: str) -> list[int]:
        """The pids of the processes of a node whose command line has a word with that name at its
        end, such as `raylet`."""
        return [
            pid
            for pid in self._processes(number)
            if command_line(pid).partition(b"\0")[0].endswith(name.encode())
        ]

    def mark(self, number: int) -> dict[str, str]:
        """The environment variable by which the processes of a node are found. A test that starts
        a node by itself adds it to the environment."""
        return {_MARK: f"{self.folder}/{number}"}

    def _processes(self, number: int) -> list[int]:
        """The pids of all processes of a node, `ray start` among them."""
        marks = {f"{name}={value}".encode() for name, value in self.mark(number).items()}
        return related(-1, marks=[frozenset(marks)])

    def _strays(self) -> dict[int, bytes]:
        """The pids and command lines of processes that do not end, though what has started them
        has ended. Those of Ray itself do not count: a test may have killed some of them."""
        deadline = time.monotonic() + _LEAVING
        while True:
            strays: dict[int, bytes] = {}
            for number, node in enumerate(self.nodes):
                kept = {node.pid, *descendants(node.pid)} if node.poll() is None else set()
                others = (pid for pid in self._processes(number) if pid not in kept)
                lines = {pid: command_line(pid) for pid in others}
                strays |= {pid: line for pid, line in lines.items() if line and not _of_ray(line)}
            if not strays or time.monotonic() > deadline:
                return strays
            time.sleep(_PAUSE)


@contextmanager
def ray_cluster(
    *,
    nodes: int = 2,
    cpus: int = 8,
    gpus: int = 0,
    gpu_type: str | None = None,
    token: bool = False,
    storage: str = "memory",
    whole: bool = False,
    python: str = sys.executable,
    environ: Mapping[str, str] | None = None,
    system_config: Mapping[str, Any] | None = None,
) -> Iterator[RayCluster]:
    """A cluster that ends with the block, with all processes that carry its environment.

    Args:
        cpus, gpus: what each node declares; Ray believes it.
        gpu_type: what the label of each node says of its GPUs.
        token: whether the cluster asks for one. Ray before 2.52 knows none.
        storage: where the head keeps what it knows: `memory`, or `rocksdb`, which a head that is
            started again reads. Ray 2.49 has only the first.
        whole: also start what sgpu does not use: the pages of the dashboard, the server for Ray
            Client, and what brings the lines that tasks print to their driver. The start takes
            about half as long again.
        python: the interpreter that has Ray.
        environ: variables of Ray's processes.
        system_config: internal settings of Ray (`ray_config_def.h`), for all its processes.

    Raises:
        ValueError: `environ` sets a variable `RAY_AUTH_…`, which `token` decides about; `storage`
            is unknown; or `token` is set, and Ray is older than 2.52.
        RuntimeError: a node did not start, or this machine has no network address. At the end of
            the block: processes were left that are not Ray's own and whose parents had ended.
            They are ended before.
    """
    if refused := [name for name in environ or {} if name.startswith("RAY_AUTH_")]:
        raise ValueError(f"`token` decides about {', '.join(refused)}")
    if storage not in _STORAGES:
        raise ValueError(f"`storage` must be one of {', '.join(_STORAGES)}, not {storage!r}")
    here = _own_address()
    secret = secrets.token_hex(16) if token else None
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
        **_VARIABLES,
        **(environ or {}),
        "RAY_AUTH_MODE": "disabled" if secret is None else "token",
        **({} if secret is None else {"RAY_AUTH_TOKEN": secret}),
    }
    labels = [] if gpu_type is None else ["--labels", f"ray.io/accelerator-type={gpu_type}"]
    common = ["--num-cpus", str(cpus), "--num-gpus", str(gpus), *labels]
    with ExitStack() as ends:
        # Ray's sockets have long names, and the system allows 107 bytes for them.
        scratch = ends.enter_context(
            tempfile.TemporaryDirectory(prefix="sgpu-ray-", ignore_cleanup_errors=True)
        )
        ports = []
        for number in range(2 + nodes * _PORTS):
            port, lock = claim_port(host_lock_folder("ports"), os.getpid() * 16 + number)
            ends.callback(os.close, lock)
            ports.append(port)
        cluster = RayCluster(
            python=python,
            url=f"http://127.0.0.1:{ports[1]}",
            address=f"{here}:{ports[0]}",
            folder=Path(scratch),
            token=secret,
        )
        if storage == "rocksdb":
            variables["RAY_gcs_storage"] = storage
            variables["RAY_gcs_storage_path"] = f"{scratch}/gcs"
        ends.callback(_end_nodes, cluster)
        for number in range(nodes):
            own = ports[2 + number * _PORTS :]
            words = ["--head", "--port", str(ports[0]), "--dashboard-port", str(ports[1])]
            words += ["--ray-client-server-port", str(own[4])]
            if system_config is not None:  # the other nodes and drivers ask the head for it
                words += ["--system-config", json.dumps(dict(system_config))]
            # No `--no-monitor`: the monitor tells the dashboard, and so plans, what is in use.
            if number > 0:
                words = ["--address", cluster.address]
            words += ["--dashboard-agent-listen-port", str(own[0])]
            words += ["--metrics-export-port", str(own[1])]
            words += ["--dashboard-agent-grpc-port", str(own[2])]
            words += ["--runtime-env-agent-port", str(own[3])]
            program = _START if whole else _START + _ONLY_USED
            words += [] if whole else ["--include-log-monitor", ""]  # the empty word is false
            start = partial(_started, cluster, number, program, [*words, *common], here, variables)
            cluster._starts.append(start)
            cluster.nodes.append(start())
            _await_nodes(cluster, number, number + 1)
        version = cluster.get("/api/version")["ray_version"]
        if token and Version(version) < Version(FIRST_RAY_WITH_TOKENS):
            raise ValueError(
                f"`token` needs Ray {FIRST_RAY_WITH_TOKENS} or newer: Ray {version} asks nobody "
                "for a token"
            )
        yield cluster
        strays = cluster._strays()
    if strays:
        names = (f"`{_words(line)}` ({pid})" for pid, line in strays.items())
        raise RuntimeError(f"processes outlived what had started them: {', '.join(names)}")


def _started(
    cluster: RayCluster,
    number: int,
    program: str,
    words: Sequence[str],
    here: str,
    variables: Mapping[str, str],
) -> "subprocess.Popen[bytes]":
    folder = cluster.folder / str(number)
    with open(cluster.folder / f"{number}.log", "wb") as log:
        return subprocess.Popen(
            [cluster.python, "-c", f"{program}main()", "start", *words, "--block",
             "--node-ip-address", here, "--object-store-memory", str(_MEMORY),
             "--temp-dir", str(folder), "--disable-usage-stats",
             "--min-worker-port=0", "--max-worker-port=0"],
            env={**variables, **cluster.mark(number)},
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def _await_nodes(cluster: RayCluster, started: int, count: int) -> None:
    """Wait until `count` nodes are there; one was just `started`.

    A node that stays silent is started again: on a busy machine the dashboard of Ray 2.49 gives up,
    and the other processes of the head go on without it.
    """
    for _ in range(_STARTS - 1):
        if _joins(cluster, started, count):
            return
        cluster.kill_node(started)
        cluster.nodes[started] = cluster._starts[started]()
    if not _joins(cluster, started, count):
        log = (cluster.folder / f"{started}.log").read_text()
        raise RuntimeError(f"a node of Ray did not start:\n{log[-4000:]}")


def _joins(cluster: RayCluster, started: int, count: int) -> bool:
    deadline = time.monotonic() + _PATIENCE
    while cluster.nodes[started].poll() is None and time.monotonic() < deadline:
        with suppress(OSError, HTTPException, ValueError, KeyError, TypeError):
            if len(cluster._alive()) >= count:
                return True
        time.sleep(_PAUSE)
    return False


def _end_nodes(cluster: RayCluster) -> None:
    """End all nodes, the last first, also if one of them does not end. Raises RuntimeError then."""
    with ExitStack() as ends:
        for number in range(len(cluster.nodes)):
            ends.callback(cluster.kill_node, number)


def _kill(node: "subprocess.Popen[bytes]", find: Callable[[], Sequence[int]]) -> None:
    """Kill a node with all processes that `find` returns, until there are none.

    Raises:
        RuntimeError: some do not end.
    """
    deadline = time.monotonic() + _LEAVING
    while pids := find():
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes of Ray do not end: {', '.join(map(str, pids))}")
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_SHORT_PAUSE)
    try:
        node.wait(_LEAVING)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"a node of Ray was started without its mark: {node.args!r}") from None


def _of_ray(line: bytes) -> bool:
    """Whether that is the command line of one of Ray's own programs, or its title."""
    return line.startswith((b"ray::", b"ray-")) or b"-packages/ray/" in line


def _words(line: bytes) -> str:
    return line.replace(b"\0", b" ").decode("utf-8", "replace").strip()[:100]


def _own_address() -> str:
    """The address of this machine: Ray replaces that of the loopback interface. Without a network,
    there is only that one.

    Raises:
        RuntimeError: there is not even that one.
    """
    # For datagrams, this only looks up the route.
    for other in ("192.0.2.1", _LOOPBACK):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
            probe.connect((other, 9))
            return str(probe.getsockname()[0])
    raise RuntimeError(
        "this machine has no network address, not even that of the loopback interface, which "
        "`ip link set lo up` brings up"
    )
