"""Runs on nodes that are not as sgpu assumes: their kernel refuses system calls, and `python3` of a
base that promises torch is another one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.agent.system.kernel_features import COSTS
from sgpu_decl.model.assumptions import Profile
from sgpu_decl.testing.workspace import ExecutionSettings, WorkspaceServer
from sgpu_decl.testing.workspace.executing.node import can_have_root
from tests.backends.databricks.bench import DatabricksBench

PROFILE = Profile(
    {"node-system-calls": ("flock", "hard_link", "proc_children"), "ai-base-python": False}
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkspaceServer]:
    settings = ExecutionSettings(grace=1.0)
    root = tmp_path_factory.mktemp("other")
    with WorkspaceServer(root, execution=settings, profile=PROFILE) as running:
        yield running


@pytest.mark.expensive
def test_a_failure_has_its_culprit_where_nodes_refuse_system_calls(bench: DatabricksBench) -> None:
    bench.code(
        "import os, signal\n"
        "def main(n):\n"
        "    if os.environ['RANK'] == '1':\n        raise ValueError('no such thing')\n"
        "    signal.pause()\n"
    )
    run = bench.run()
    assert (run.told["state"], run.cause["rank"]) == ("failed", 1)
    assert run.cause["summary"] == "ValueError: no such thing"
    refused = [name for name in COSTS if name != "proc_children"]
    (said, *_) = [line for line in run.texts() if "this machine lacks" in line]
    assert all(f"{name} (EPERM)" in said for name in refused)


@pytest.mark.expensive
def test_ranks_have_the_torch_of_the_managed_environment(
    bench: DatabricksBench, tmp_path: Path
) -> None:
    if not can_have_root(tmp_path / "trial"):
        pytest.skip("this machine lets nodes have no root of their own")
    bench.declare("gpu-6", "ai-5")
    bench.code(
        "import sys\nfrom importlib.util import find_spec\n"
        "def main(n): return [find_spec('torch') is not None, sys.prefix]\n"
    )
    run = bench.run()
    home = "/opt/databricks-environments/databricks-ai"
    assert [found["value"] for found in run.results] == [[True, home]] * 2
    assert [line for line in run.texts() if f"has no torch: this node uses `{home}" in line]
