"""Ray nodes on this machine, started and stopped by Ray's own commands, for comparison.

    python ray_by_hand.py quickly FOLDER     `ray start` of each node, one right after the other
    python ray_by_hand.py waiting FOLDER     the steps of `ray_launch` in Databricks' package
                                             serverless_gpu, with the sleeps between them

Both print JSON: `started`, the seconds until all nodes are up, and `stopped`, those of `ray stop`
while nothing runs. `ray stop` ends all Ray processes that it sees, by their names. So it is called
only in a PID namespace, where this program is process 1; `stopped` is null elsewhere. Process 1
reaps what others leave: `ray stop` waits for processes that have ended and were not reaped.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

from sgpu_decl.agent.host.ports import claim_port
from sgpu_decl.agent.system.host_locks import host_lock_folder
from sgpu_decl.agent.system.processes import become_subreaper, descendants

NODES = 2
MEMORY = 80 << 20  # bytes of each object store
PORTS = 4  # of each node
RAY = (sys.executable, "-m", "ray.scripts.scripts")
# The sleeps of `ray_launch` in serverless_gpu 0.5, in seconds.
AFTER_STOP = 5.0
AFTER_PORT = 3.0
CONNECT = "import ray; ray.init({address!r}, log_to_driver=False)"


def main(how: str, folder: str) -> None:
    alone = os.getpid() == 1
    if alone and (child := os.fork()):
        _be_first(child)
    measure(how, folder, stop=alone)


def _be_first(child: int) -> NoReturn:
    """Reap all that ends until this child does. The kernel kills the others then."""
    while True:
        pid, status = os.wait()
        if pid == child:
            sys.exit(os.waitstatus_to_exitcode(status))


def measure(how: str, folder: str, *, stop: bool) -> None:
    """Start the nodes, stop them by `ray stop` if that is allowed, and kill what is left."""
    if not stop:  # else process 1 adopts and reaps what the commands leave
        become_subreaper()
    address = socket.gethostbyname(socket.gethostname())
    claims = [
        claim_port(host_lock_folder("ports"), os.getpid() + one) for one in range(PORTS * NODES)
    ]
    starts = list(_starts(folder, address, [port for port, _ in claims]))
    head = f"{address}:{claims[0][0]}"
    try:
        started = time.monotonic()
        if how == "waiting":
            _start_waiting(starts, head, stop=stop)
        else:
            for start in starts:
                _run(start)
        times = {"started": time.monotonic() - started, "stopped": _stop() if stop else None}
    finally:
        _kill_all()
    print(json.dumps(times))


def _starts(folder: str, address: str, ports: Sequence[int]) -> "list[list[str]]":
    """The arguments of `ray start` of each node, with the options that a run's cluster has."""
    starts = []
    for number in range(NODES):
        port, agent, metrics, client = ports[PORTS * number : PORTS * (number + 1)]
        role = (
            ["--head", f"--port={port}", f"--ray-client-server-port={client}",
             "--no-monitor", "--include-dashboard=False"]
            if number == 0
            else [f"--address={address}:{ports[0]}"]
        )  # fmt: skip
        starts.append(
            ["start", *role, f"--node-ip-address={address}", f"--temp-dir={folder}/{number}",
             "--disable-usage-stats", "--min-worker-port=0", "--max-worker-port=0",
             f"--dashboard-agent-listen-port={agent}", f"--metrics-export-port={metrics}",
             "--num-cpus=1", "--num-gpus=0", f"--object-store-memory={MEMORY}"]
        )  # fmt: skip
    return starts


def _start_waiting(starts: Sequence[Sequence[str]], head: str, *, stop: bool) -> None:
    """All nodes stop what runs of Ray, at the same time, and sleep; then the head starts, and then
    the others. Each node waits for the port of the head, sleeps, and connects."""
    if stop:
        _run(["stop", "--force"])
    time.sleep(AFTER_STOP)
    for start in starts:
        _run(start)
        host, _, port = head.rpartition(":")
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
                break
            except OSError:
                time.sleep(1)
        time.sleep(AFTER_PORT)
        subprocess.run([sys.executable, "-c", CONNECT.format(address=head)], check=True)


def _stop() -> float:
    started = time.monotonic()
    _run(["stop"])
    return time.monotonic() - started


def _run(words: Sequence[str]) -> None:
    subprocess.run([*RAY, *words], check=True, stdout=subprocess.DEVNULL)


def _kill_all() -> None:
    while left := descendants(os.getpid()):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
