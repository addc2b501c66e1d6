"""Runs on nodes of a platform, by the script that it starts there and in the environment that it
documents: real processes on this machine."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.host.ports import claim_port
from sgpu_decl.agent.node.node_report import read_report
from sgpu_decl.agent.system.host_locks import host_lock_folder
from sgpu_decl.agent.system.processes import carriers, descendants, send_signal
from sgpu_decl.backends.archives import agent_zip
from sgpu_decl.testing.workspace.executing.node_environment import Position, node_environment
from tests.backends.launches import code_of, launching_of, workspace_files_of
from tests.content.conftest import make_environment
from tests.support import PATIENCE, until

__all__ = ["make_environment"]


@dataclass
class Hosted:
    """A launch folder and the nodes that were started for it."""

    launch: Path
    home: Path
    token: str
    nodes: int
    gpus: int
    variables: dict[str, str]
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    logs: list[Path] = field(default_factory=list)

    def start(self, *, but: Mapping[int, Mapping[str, str]] = {}, **variables: str) -> "Hosted":
        """Start all nodes, as an attempt of the platform. `but` are variables of single nodes."""
        port, self._lock = claim_port(host_lock_folder("ports"), os.getpid())
        self.started, self.logs = [], []
        for number in range(self.nodes):
            position = Position(
                node=number, nodes=self.nodes, gpus_per_node=self.gpus // self.nodes,
                master_port=port,
            )  # fmt: skip
            log = self.home / f"node-{number}-{time.monotonic_ns()}.log"
            path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
            own = self.home / f"node-{number}"
            own.mkdir(exist_ok=True)
            environment = {
                "PATH": path, "HOME": str(own), "TMPDIR": str(own), **node_environment(position),
                **self.variables, **variables, **but.get(number, {}),
            }  # fmt: skip
            with log.open("wb") as file:
                node = subprocess.Popen(
                    ["bash", "-euo", "pipefail", str(self.launch / "command.sh")],
                    env=environment, cwd=own, stdout=file, stderr=subprocess.STDOUT,
                    start_new_session=True,
                )  # fmt: skip
            self.started.append(node)
            self.logs.append(log)
        return self

    def wait(self) -> list[int]:
        """Wait for all nodes; nothing of the run is left then. Returns their exit codes."""
        codes = [node.wait(PATIENCE) for node in self.started]
        os.close(self._lock)
        assert carriers(self.token) == []
        left = [path for own in self.home.glob("node-?") for path in own.iterdir()]
        assert left == []
        return codes

    def lose(self, node: int) -> None:
        """Let a node vanish with all that runs on it."""
        top = self.started[node].pid
        os.kill(top, signal.SIGSTOP)
        whole = descendants(top)
        for pid in whole:
            os.kill(pid, signal.SIGSTOP)
        for pid in (*whole, top):
            os.kill(pid, signal.SIGKILL)
        self.started[node].wait()
        shutil.rmtree(self.home / f"node-{node}")

    def run(self, **variables: str) -> list[int]:
        return self.start(but={}, **variables).wait()

    def log(self, node: int = 0) -> str:
        return self.logs[node].read_text(errors="replace")

    def lines(self, rank: int, node: int = 0) -> list[str]:
        """What a rank wrote to stdout, as the log of its node shows it."""
        mark = f"[rank {rank}] "
        return [
            line.removeprefix(mark) for line in self.log(node).splitlines() if line.startswith(mark)
        ]

    def until(self, condition: Callable[[], object]) -> None:
        until(condition, lambda: [self.log(node) for node in range(self.nodes)])

    def back(self, name: str, *, node: int = 0, attempt: int = 0) -> Path:
        return self.launch / "back" / str(attempt) / f"node_{node}" / name

    def read(self, name: str, *, node: int = 0, attempt: int = 0) -> Any:
        return json.loads(self.back(name, node=node, attempt=attempt).read_bytes())

    def report(self, *, node: int = 0, attempt: int = 0) -> Any:
        """What a node said last."""
        return read_report(str(self.back("", node=node, attempt=attempt)))

    def outcome(self, *, node: int = 0, attempt: int = 0) -> Any:
        return self.report(node=node, attempt=attempt)["outcome"]


@pytest.fixture
def make_hosted(tmp_path: Path) -> Iterator[Callable[..., Hosted]]:
    """Make a launch folder for the source of `main.py`, with the objects that it needs."""
    made: list[Hosted] = []

    def make(
        source: str = "", *, nodes: int = 1, code: bool = True, config: Mapping[str, Any] = {},
        call: Any = None, environment: str | None = None,
    ) -> Hosted:  # fmt: skip
        home = tmp_path / f"run-{len(made) + 1}"
        token = f"test-{os.getpid()}-{time.monotonic_ns()}"
        root = home / "code_source" / "code"
        root.mkdir(parents=True)
        (root / "main.py").write_text(source)
        staging = tmp_path / "staging"
        launch = staging / "runs" / "lineage" / f"run-{len(made) + 1}" / f"1-{token[-8:]}"
        launch.mkdir(parents=True)
        given: dict[str, Any] = {
            "name": "test", "gpus": 2, "type": "A10", "grace": "400ms",
            "entrypoint": "main.py:main", **config,
        }  # fmt: skip
        request = launching_of(
            token=token, spec=json.dumps(given), code_digest=code_of(source) if code else None,
            call=call,
        )  # fmt: skip
        (home / "scratch").mkdir()
        files = workspace_files_of(
            request, root=root, nodes=nodes, scratch=home / "scratch", folder=str(launch),
            code=root, environment=environment,
        )  # fmt: skip
        for name, content in files.items():
            if isinstance(content, bytes):
                (launch / name).write_bytes(content)
            else:
                shutil.copyfile(content, launch / name)
        digest, archive = agent_zip()
        (staging / "objects" / "agent").mkdir(parents=True, exist_ok=True)
        (staging / "objects" / "agent" / f"{digest}.zip").write_bytes(archive)
        variables = {"CODE_SOURCE_PATH": str(root)} if code else {}
        made.append(Hosted(launch, home, token, nodes, given["gpus"], variables))
        return made[-1]

    yield make
    for hosted in made:
        for pid, started in carriers(hosted.token):
            send_signal(pid, started, signal.SIGKILL)
        for node in hosted.started:
            node.kill()
            node.wait()
