"""Dependencies that a run declares, installed for its nodes from wheels that the test owns."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sgpu_decl.api import Session
from sgpu_decl.model.attempt import AttemptState, FailureClass
from sgpu_decl.testing.workspace import ExecutionSettings, WorkspaceServer
from sgpu_decl.views.status_json import status_objects
from tests.content.conftest import pack_wheel
from tests.support import PATIENCE

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


def declare(project: Path) -> None:
    text = (project / "run.yaml").read_text().replace("gpus: 2", "gpus: 1")
    added = text.replace("{base: gpu-6}", "{base: gpu-6, dependencies: [greeting==1.0]}")
    (project / "run.yaml").write_text(added)
    (project / "train.py").write_text(CODE)


@pytest.mark.expensive
def test_ranks_import_what_the_run_declares(
    session: Callable[[], Session], project: Path, wheels: Path
) -> None:
    pack_wheel(wheels, "greeting", "1.0", {"greeting.py": "TEXT = 'hello'\n"})
    declare(project)
    opened = session()
    (ref,) = opened.apply(opened.plan()).launched
    opened.runs.wait([ref], timeout=PATIENCE)
    assert opened.runs.status(ref).state is AttemptState.SUCCEEDED
    assert [result["value"] for result in opened.runs.results(ref)] == ["hello"]


@pytest.mark.expensive
def test_a_dependency_that_is_nowhere_is_the_users_failure(
    session: Callable[[], Session], project: Path, wheels: Path
) -> None:
    pack_wheel(wheels, "greeting", "0.9", {"greeting.py": "TEXT = 'hello'\n"})
    declare(project)
    opened = session()
    (ref,) = opened.apply(opened.plan()).launched
    opened.runs.wait([ref], timeout=PATIENCE)
    status = opened.runs.status(ref)
    assert status.state is AttemptState.FAILED
    assert status.failure is FailureClass.LAUNCH_FAILED_USER
    (told,) = status_objects(opened.runs.describe([ref]))
    assert "greeting==1.0" in told["first_cause"]["summary"]
