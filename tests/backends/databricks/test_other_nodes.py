"""Runs on nodes that are not as sgpu assumes: their kernel refuses system calls, and `python3` of a
base that promises torch is another one."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sgpu_decl.agent.system.kernel_features import COSTS
from sgpu_decl.api import Session
from sgpu_decl.model.assumptions import Profile
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.testing.workspace import ExecutionSettings, WorkspaceServer
from sgpu_decl.testing.workspace.executing.node import can_have_root
from sgpu_decl.views.status_json import status_objects
from tests.support import PATIENCE

PROFILE = Profile(
    {"node-system-calls": ("flock", "hard_link", "proc_children"), "ai-base-python": False}
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkspaceServer]:
    settings = ExecutionSettings(grace=1.0)
    root = tmp_path_factory.mktemp("other")
    with WorkspaceServer(root, execution=settings, profile=PROFILE) as running:
        yield running


def _run(session: Session) -> tuple[AttemptRef, list[str]]:
    (ref,) = session.apply(session.plan()).launched
    session.runs.wait([ref], timeout=PATIENCE)
    lines = session.runs.logs(ref, ranks=None, follow=False)
    return ref, [line.text for line in lines if line is not None]


@pytest.mark.expensive
def test_a_failure_has_its_culprit_where_nodes_refuse_system_calls(
    project: Path, session: Callable[[], Session]
) -> None:
    (project / "train.py").write_text(
        "import os, signal\n"
        "def main(n):\n"
        "    if os.environ['RANK'] == '1':\n        raise ValueError('no such thing')\n"
        "    signal.pause()\n"
    )
    opened = session()
    ref, lines = _run(opened)
    (told,) = status_objects(opened.runs.describe([ref]))
    cause = told["first_cause"]
    assert (told["state"], cause["rank"]) == ("failed", 1)
    assert cause["summary"] == "ValueError: no such thing"
    refused = [name for name in COSTS if name != "proc_children"]
    (said, *_) = [line for line in lines if "this machine lacks" in line]
    assert all(f"{name} (EPERM)" in said for name in refused)


@pytest.mark.expensive
def test_ranks_have_the_torch_of_the_managed_environment(
    project: Path, session: Callable[[], Session], tmp_path: Path
) -> None:
    if not can_have_root(tmp_path / "trial"):
        pytest.skip("this machine lets nodes have no root of their own")
    run = project / "run.yaml"
    run.write_text(run.read_text().replace("gpu-6", "ai-5"))
    (project / "train.py").write_text(
        "import sys\nfrom importlib.util import find_spec\n"
        "def main(n): return [find_spec('torch') is not None, sys.prefix]\n"
    )
    opened = session()
    ref, lines = _run(opened)
    home = "/opt/databricks-environments/databricks-ai"
    assert [found["value"] for found in opened.runs.results(ref)] == [[True, home]] * 2
    assert [line for line in lines if f"has no torch: this node uses `{home}" in line]
