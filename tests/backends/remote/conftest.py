"""Launches over a plain shared folder: real uploads, real nodes, no platform."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.node.platform import PlatformTable
from sgpu_decl.backends.backend_context import BackendContext
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.remote.launching.launch_folder import NodeProgram, NodeStart
from sgpu_decl.backends.remote.launching.uploader import Uploader
from sgpu_decl.backends.remote.staging.remote_layout import (
    MARKER,
    RemoteLayout,
    Uses,
    render_marker,
)
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from sgpu_decl.code.code_store import CodeStore
from sgpu_decl.code.snapshot import snapshot
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.places.folder import FolderPlace
from tests.backends.launches import launching_of

__all__ = ["PLATFORM", "Shared", "shared"]

PLATFORM = PlatformTable(
    node_rank="MY_RANK", node_count="MY_COUNT", master_address="MY_FIRST", master_port="MY_PORT",
    stdout_mark="{}> ", stderr_mark="{}! ",
)  # fmt: skip
"""A platform with words of its own, which extracts no code."""


@dataclass
class Program(NodeProgram):
    """Notes what nodes are to be started with."""

    count: int = 1
    starts: dict[AttemptRef, NodeStart] = field(default_factory=dict)

    def nodes(self, request: LaunchRequest) -> int:
        return self.count

    def files(self, request: LaunchRequest, start: NodeStart) -> Mapping[str, bytes]:
        self.starts[request.ref] = start
        return {"command.json": json.dumps(start.arguments("RUN", PLATFORM)).encode()}

    def lease_file(self, request: LaunchRequest) -> None:
        return None


@dataclass
class Shared:
    """One machine that launches over the shared folder `root`."""

    home: Path
    root: Path
    program: Program = field(default_factory=Program)

    def __post_init__(self) -> None:
        self.files = FolderPlace(self.root)
        self.area = StagingArea(
            RemoteLayout(str(self.root)), self.files, key={"root": str(self.root)}
        )
        self.store = CodeStore(self.home / "store")
        self.uploader = Uploader(self.context(), lambda _: self.area, self.program)

    def context(self) -> BackendContext:
        def nothing(*_: object) -> Any:
            raise AssertionError("no test has environments or a state")

        return BackendContext(
            project=self.home, state_dir=self.home / "state", store=lambda: self.store,
            environments=nothing, pythons=nothing,
        )  # fmt: skip

    def request(self, source: str, number: int = 1, **config: Any) -> LaunchRequest:
        """A launch of that source of `main.py`, which is pinned."""
        code = self.home / f"code-{number}"
        code.mkdir(parents=True)
        (code / "main.py").write_text(source)
        taken, _ = snapshot(code)
        assert taken is not None
        self.store.put(taken)
        given = {"gpus": 1, "type": "CPU", "entrypoint": "main.py:main", "grace": "400ms", **config}
        return launching_of(
            ref=AttemptRef(Address.run("test"), number),
            token=f"{number:08d}-{os.getpid()}-{os.urandom(4).hex()}",
            spec=json.dumps({**given, "code": {"root": code.name}}),
            code_digest=taken.digest,
        )

    def folder(self, request: LaunchRequest) -> str:
        return self.area.layout.launch(request.record)

    def stage(self, *requests: LaunchRequest) -> list[Uses]:
        self.uploader.share(requests, Quiet())
        return [self.uploader.fill(request) for request in requests]

    def mark(self, request: LaunchRequest, uses: Uses) -> None:
        """Note that it was started."""
        self.files.put(f"{self.folder(request)}/{MARKER}", render_marker(uses))
        self.uploader.release(request.ref)

    def launched(self, source: str, number: int = 1, **config: Any) -> LaunchRequest:
        """A launch that is staged and noted as started."""
        request = self.request(source, number, **config)
        (uses,) = self.stage(request)
        self.mark(request, uses)
        return request

    def start(
        self, request: LaunchRequest, *, lifeline: int | None = None, **variables: str
    ) -> list["subprocess.Popen[str]"]:
        """Start all nodes, as the backend of the platform does; they end with a pipe, if given."""
        kept = () if lifeline is None else (lifeline,)
        options = [word for pipe in kept for word in ("--lifeline", str(pipe))]
        start = self.program.starts[request.ref]
        started = []
        for number in range(self.program.count):
            own = self.home / f"node-{number}"
            run = own / "run"
            run.mkdir(parents=True)
            agent = run / "agent.zip"
            agent.write_bytes(Path(self.area.layout.agent(start.agent)).read_bytes())
            named = {"MY_RANK": str(number), "MY_COUNT": str(self.program.count)}
            path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
            started.append(
                subprocess.Popen(
                    [sys.executable, "-I", "-S", str(agent),
                     *start.arguments(str(run), PLATFORM), *options],
                    pass_fds=kept,
                    env={"PATH": path, "HOME": str(own), **named, **variables},
                    cwd=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                )
            )  # fmt: skip
        return started


@pytest.fixture
def shared(tmp_path: Path) -> Callable[..., Shared]:
    """Makes a machine; all see the same folder."""
    root = tmp_path / "shared"
    root.mkdir()

    def make(name: str = "here", *, nodes: int = 1) -> Shared:
        return Shared(tmp_path / name, root, Program(nodes))

    return make
