"""`sgpu mlflow ui`: which command is started, where it listens, and what a user by ssh is told."""

import socket
from pathlib import Path

import pytest

from sgpu_decl.api import Location, Session
from sgpu_decl.api.tracking_pages import tracking_pages
from sgpu_decl.errors import Usage
from tests.cli.conftest import Shell
from tests.support import require

require("mlflow")


@pytest.fixture
def session(tmp_path: Path) -> Session:
    (tmp_path / ".sgpu").mkdir()
    (tmp_path / ".sgpu/mlflow.db").write_bytes(b"")
    return Session.open(Location(project=tmp_path))


def test_the_pages_are_those_of_the_projects_store(session: Session) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Usage, match=f"port {port} is taken"):
            tracking_pages(session, port, {})
    pages = tracking_pages(session, port, {})
    assert pages.url == f"http://127.0.0.1:{port}"
    assert pages.tunnel is None
    argv = " ".join(pages.argv)
    assert f"--backend-store-uri sqlite:///{session.root}/.sgpu/mlflow.db" in argv
    assert f"--default-artifact-root {session.root}/.sgpu/mlartifacts" in argv
    assert argv.endswith(f"--host 127.0.0.1 --port {port}")


@pytest.mark.parametrize(
    ("connection", "tunnel"),
    [
        ("10.0.0.1 50000 10.0.0.2 22", "ssh -N -L {0}:127.0.0.1:{0} me@10.0.0.2"),
        ("10.0.0.1 50000 10.0.0.2 2222", "ssh -N -L {0}:127.0.0.1:{0} -p 2222 me@10.0.0.2"),
        ("odd", None),
    ],
)
def test_a_user_by_ssh_gets_the_command_of_a_tunnel(
    session: Session, connection: str, tunnel: str | None
) -> None:
    pages = tracking_pages(session, None, {"SSH_CONNECTION": connection, "USER": "me"})
    assert pages.tunnel == (tunnel.format(pages.url.rpartition(":")[2]) if tunnel else None)


def test_nothing_was_tracked_yet(sgpu: Shell) -> None:
    answer = sgpu.exits(1, "mlflow", "ui")
    assert "no run of this project was tracked in its own store yet" in answer.err
