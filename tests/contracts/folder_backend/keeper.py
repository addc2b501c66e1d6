"""The platform: one process for each launch, which starts its nodes and waits for them.

    python -m tests.contracts.folder_backend.keeper LAUNCH

It writes to `logs` in the launch folder, which stays after a destroy. `keeper.lock` is held while
it lives; the file is there from then on. `started` has the time at which nodes were started;
`ended` has the time of the end, and comes last. A file `cancel` asks it to stop.
"""

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sgpu_decl.agent.system.processes import die_with_parent
from sgpu_decl.atomic_files import write_atomic

_PAUSE = 0.02  # seconds between two looks into the folder


def alive(launch: Path) -> bool:
    """Whether the keeper of a launch lives."""
    try:
        with open(launch / "logs/keeper.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def main(launch: Path) -> None:
    logs = launch / "logs"
    logs.mkdir(exist_ok=True)
    mine = logs / f"keeper.{os.getpid()}"
    with open(mine, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            os.link(mine, logs / "keeper.lock")
        except FileExistsError:
            return
        finally:
            mine.unlink()
            os.write(1, b"kept\n")  # the launch waits for that
        if not (logs / "cancel").exists():
            _run(launch)
        write_atomic(logs / "ended", repr(time.time()).encode())


def _run(launch: Path) -> None:
    program = json.loads((launch / "node.json").read_bytes())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    write_atomic(launch / "logs/started", repr(time.time()).encode())
    nodes = [_node(launch, program, number, port) for number in range(program["nodes"])]
    while any(node.poll() is None for node in nodes):
        if (launch / "logs/cancel").exists():
            for node in nodes:
                node.terminate()
            break
        time.sleep(_PAUSE)
    for node in nodes:
        node.wait()


def _node(
    launch: Path, program: dict[str, Any], number: int, port: int
) -> "subprocess.Popen[bytes]":
    run = tempfile.mkdtemp(prefix="folder-node-")
    agent = shutil.copy(program["agent"], f"{run}/agent.zip")
    arguments = [run if item == "RUN" else item for item in program["arguments"]]
    keeper = os.getpid()
    log_file = launch / "logs/0" / f"{number}.log"
    log_file.parent.mkdir(exist_ok=True)
    with open(log_file, "wb") as log:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", agent, *arguments],
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "NODE_RANK": str(number),
                "NUM_NODES": str(program["nodes"]),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: die_with_parent(keeper, signal.SIGTERM),
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
