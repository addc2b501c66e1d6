"""MLflow servers of several workspaces: forks of one process, which imports MLflow once."""

import os
import signal
from contextlib import closing
from pathlib import Path

import pytest

from sgpu_decl.testing.workspace.mlflow_server import MlflowServer
from sgpu_decl.testing.workspace.routes import ApiError
from tests.support import require, until

require("mlflow")
pytestmark = [pytest.mark.mlflow, pytest.mark.expensive]


def process_in(folder: Path) -> int:
    """The one process that works in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                inside = Path(os.readlink(entry / "cwd")) == folder.resolve()
            except OSError:
                continue
            found += [int(entry.name)] if inside else []
    (pid,) = found
    return pid


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def experiments(server: MlflowServer) -> set[str]:
    found = server.ask("POST", "experiments/search", {"max_results": 100})["experiments"]
    return {one["name"] for one in found}


def test_servers_have_one_parent_and_nothing_else_in_common(tmp_path: Path) -> None:
    with closing(MlflowServer(tmp_path / "one")) as one:
        with closing(MlflowServer(tmp_path / "other")) as other:
            one.ask("POST", "experiments/create", {"name": "of one"})
            other.ask("POST", "experiments/create", {"name": "of the other"})
            assert experiments(one) == {"Default", "of one"}
            assert experiments(other) == {"Default", "of the other"}
            gone = process_in(tmp_path / "other")
            assert parent(process_in(tmp_path / "one")) == parent(gone)
        until(lambda: not Path(f"/proc/{gone}").exists())
        assert experiments(one) == {"Default", "of one"}


def test_a_server_or_the_parent_that_was_killed_is_started_again(tmp_path: Path) -> None:
    with closing(MlflowServer(tmp_path / "one")) as server:
        server.ask("POST", "experiments/create", {"name": "kept"})
        first = process_in(tmp_path / "one")
        os.kill(first, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{first}").exists())
        assert experiments(server) == {"Default", "kept"}
        second = process_in(tmp_path / "one")
        ancestor = parent(second)
        os.kill(ancestor, signal.SIGKILL)
        os.waitid(os.P_PID, ancestor, os.WEXITED | os.WNOWAIT)
        os.kill(second, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{second}").exists())
        assert experiments(server) == {"Default", "kept"}


def test_a_server_that_cannot_start_is_an_error_of_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one/mlflow.db").write_text("no database")
    with (
        closing(MlflowServer(tmp_path / "one")) as server,
        pytest.raises(ApiError, match="did not start"),
    ):
        experiments(server)
