import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.backends.box.boxes import Box
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
    box = Box("box", None, "~/sgpu")
    yield box
    box.close()
