"""Several nodes of one run on this machine: agents as a backend starts them."""

import json
import os
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sgpu_decl.agent
from sgpu_decl.agent.attempt.attempt_status import read_attempt
from sgpu_decl.agent.host.ports import claim_port
from sgpu_decl.agent.system.host_locks import host_lock_folder
from sgpu_decl.rendering.spec import Entry
from tests.agent.event_log import read_events
from tests.support import PATIENCE

__all__ = ["Nodes", "make_nodes"]

_MAIN = Entry(kind="file_function", path="main.py", function="main")


class Nodes:
    """The agents of one run, each a process of its own, as a backend starts them."""

    def __init__(self, attempt: Any, archive: Path, count: int) -> None:
        self.attempt = attempt
        self.archive = archive
        self.count = count
        # Locked with all that runs on this host: other tests pass over taken ports to this one.
        self.port, self.lock = claim_port(host_lock_folder("ports"), os.getpid())
        self.agents: dict[int, subprocess.Popen[bytes]] = {}
        self.python = sys.executable
        self.silence = 60.0  # an agent that a busy machine holds up is not lost

    def start(
        self, number: int, *before: str, spec: Path | None = None, address: str = "127.0.0.1",
        also: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        given = ["--spec", str(spec or self.attempt.folder / "spec.json")]
        given += ["--node-rank", str(number), "--nodes", str(self.count)]
        given += ["--master-addr", address, "--master-port", str(self.port)]
        given += ["--silence", str(self.silence)]
        with open(self.attempt.folder / f"node-{number}.log", "wb") as log:
            self.agents[number] = subprocess.Popen(
                [*before, self.python, str(self.archive), *given, *also], stderr=log
            )

    def all(self) -> "Nodes":
        for number in range(self.count):
            self.start(number)
        return self

    def listening(self) -> "Nodes":
        """Start agent 0, and wait until it takes connections."""
        self.start(0)
        self.attempt.until(lambda: _listens(self.port))
        return self

    def on_hosts(self, hosts: tuple[str, str, str]) -> "Nodes":
        """Start one agent on each of two hosts."""
        *names, address = hosts
        for number, name in enumerate(names):
            self.start(number, "ip", "netns", "exec", name, address=address)
        return self

    def values(self) -> list[Any]:
        """What each rank returned."""
        ranks = range(len(self.read()["ranks"]))
        return [json.loads(self.attempt.text(f"ranks/{rank}/output.json")) for rank in ranks]

    def folder(self, number: int) -> Path:
        folder: Path = self.attempt.folder
        return folder if number == 0 else folder / "nodes" / str(number)

    def read(self, number: int = 0) -> dict[str, Any]:
        return read_attempt(self.folder(number))

    def events(self, name: str, number: int = 0) -> list[dict[str, Any]]:
        return [event for event in read_events(self.folder(number)) if event["event"] == name]

    def up(self, *ranks: int) -> None:
        output = self.attempt.folder / "output"
        self.attempt.until(lambda: all((output / f"up{rank}").exists() for rank in ranks))

    def supervisor(self, number: int) -> int:
        return int(json.loads((self.folder(number) / "identity.json").read_text())["pid"])

    def wait(self) -> list[int]:
        """Wait for all agents; nothing of the run is left then. Returns their exit codes."""
        codes = [agent.wait(PATIENCE) for _, agent in sorted(self.agents.items())]
        assert self.attempt.left() == []
        return codes


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def make_nodes(make_attempt: Callable[..., Any], tmp_path: Path) -> Iterator[Callable[..., Nodes]]:
    made: list[Nodes] = []
    archive = tmp_path / "agent.zip"
    with zipfile.ZipFile(archive, "w") as file:
        root = Path(sgpu_decl.agent.__file__).parent
        for module in root.rglob("*.py"):
            file.write(module, module.relative_to(root))

    def make(source: str, *, nodes: int = 2, **fields: Any) -> Nodes:
        fields = {"world_size": 4, "entry": _MAIN, **fields}
        made.append(Nodes(make_attempt(source, **fields), archive, nodes))
        return made[-1]

    yield make
    for one in made:
        for agent in one.agents.values():
            agent.kill()
            agent.wait()
        os.close(one.lock)
