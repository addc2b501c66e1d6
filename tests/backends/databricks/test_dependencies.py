"""Dependencies that a run declares, installed for its nodes from wheels that the test owns."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.model.attempt import AttemptState, FailureClass
from sgpu_decl.testing.workspace import ExecutionSettings, WorkspaceServer
from tests.backends.databricks.bench import DatabricksBench, Launched
from tests.content.conftest import pack_wheel

CODE = """\
import greeting
def main(n):
    return greeting.TEXT
"""


@pytest.fixture
def wheels(tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of wheels of a workspace that installs from it."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    settings = ExecutionSettings(grace=1.0, wheels=folder)
    with WorkspaceServer(tmp_path / "installing", execution=settings) as server:
        monkeypatch.setenv("DATABRICKS_HOST", server.url)
        server.admit(token)
        yield folder


def run(bench: DatabricksBench, wheels: Path, version: str) -> Launched:
    """A run to its end that needs version 1.0 of the package; the one that there is."""
    pack_wheel(wheels, "greeting", version, {"greeting.py": "TEXT = 'hello'\n"})
    bench.declare("gpus: 2", "gpus: 1")
    bench.declare("{base: gpu-6}", "{base: gpu-6, dependencies: [greeting==1.0]}")
    bench.code(CODE)
    return bench.run()


@pytest.mark.expensive
def test_ranks_import_what_the_run_declares(bench: DatabricksBench, wheels: Path) -> None:
    ended = run(bench, wheels, "1.0")
    assert ended.status.state is AttemptState.SUCCEEDED
    assert [result["value"] for result in ended.results] == ["hello"]


@pytest.mark.expensive
def test_a_dependency_that_is_nowhere_is_the_users_failure(
    bench: DatabricksBench, wheels: Path
) -> None:
    ended = run(bench, wheels, "0.9")
    assert ended.status.state is AttemptState.FAILED
    assert ended.status.failure is FailureClass.LAUNCH_FAILED_USER
    assert "greeting==1.0" in ended.cause["summary"]
