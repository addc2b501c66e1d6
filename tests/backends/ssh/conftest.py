import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.backends.box.box_place import BoxPlace
from sgpu_decl.backends.box.boxes import Box
from sgpu_decl.testing.contracts.backend_bench import BackendBench, BackendCase
from tests.ssh_server import SshServer


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshServer]:
    """An sshd of this test's own, which `ssh box` reaches."""
    server = SshServer(tmp_path / "ssh")
    monkeypatch.setenv("PATH", f"{server.path}{os.pathsep}{os.environ['PATH']}")
    yield server
    server.close()


@pytest.fixture
def box(server: SshServer) -> Iterator[Box]:
    """The machine behind it."""
    box = Box(BoxPlace("box", "~/sgpu"))
    yield box
    box.close()


@pytest.fixture
def bench(server: SshServer, tmp_path: Path) -> Iterator[BackendBench]:
    block = {"kind": "ssh", "host": "box", "storage": "~/sgpu"}
    one = {"type": "CPU", "gpus": 1, "backend": block, "mlflow": {"enabled": False}}
    case = BackendCase(
        fields=one, pair={**one, "gpus": 2}, many=one, secret=("", ""), missing="",
        environ={"PATH": os.environ["PATH"], "OF_THE_LAPTOP": "1"},
    )  # fmt: skip
    bench = BackendBench(case, tmp_path)
    yield bench
    bench.close()
