"""Nodes of an emulator that itself runs on a kernel which refuses system calls."""

import subprocess
import sys
from pathlib import Path

import pytest

from sgpu_decl.testing.refused_calls import REFUSABLE
from tests.support import PATIENCE

# The command fails after it has left a process without variables, and one in another session.
NODE = """
import json, os, sys
from pathlib import Path
from sgpu_decl.agent.system.processes import start_time
from sgpu_decl.testing.workspace.executing.node import NodeProcess, NodeSpec
folder = sys.argv[1]
command = f"env -i sleep 600 & echo $! >{folder}/a; setsid sleep 600 & echo $! >{folder}/b; exit 3"
node = NodeProcess(NodeSpec(argv=("bash", "-c", command), environment=dict(os.environ), cwd=folder))
with open(node.report, closefd=False) as report:
    assert json.load(report) == {"status": 3}
node.close()
left = [int(Path(folder, name).read_text()) for name in "ab"]
assert not any(map(start_time, left)), left
"""


@pytest.mark.parametrize("word", ["ENOSYS", "EPERM"])
def test_a_node_ends_with_its_command_and_leaves_nothing(word: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "sgpu_decl.testing.refused_calls", word, ",".join(REFUSABLE)]
    done = subprocess.run(
        [*argv, "--", sys.executable, "-c", NODE, str(tmp_path)],
        check=False, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
