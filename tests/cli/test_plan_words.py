"""What the plan of a real project says in its first line, and of what it stops."""

import re
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import Shell
from tests.support import until

RUN = "name: hello\ngpus: 1\ntype: CPU\nmlflow: {enabled: false}\ngrace: 500ms\n"
SLEEPS = "command: [python3, -c, 'import time; time.sleep(300)']\n"


def test_the_count_line_counts_environments(sgpu: Shell, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    sgpu.write("train.py", "def main():\n    pass\n")
    environment = f"env: {{snapshot: true, python: {venv}/bin/python}}\n"
    sgpu.write("run.yaml", f"{RUN}entrypoint: train.py:main\n{environment}")
    first = sgpu.here("plan").out.splitlines()
    assert first[-1].endswith(", 0 unchanged; environments: 1 to create.")
    sgpu.done("apply", "-y")
    again = sgpu.here("plan").out.splitlines()
    assert again[0] == "No changes. 1 unchanged; environments: 1 unchanged."
    destroyed = sgpu.here("destroy", "-y").out
    assert ", 1 to destroy, 0 unchanged; environments: 1 to destroy.\n" in destroyed


def test_without_environments_the_count_line_names_none(sgpu: Shell) -> None:
    sgpu.write("run.yaml", f"{RUN}command: ['true']\n")
    assert "environment" not in sgpu.here("plan").out


def test_what_a_replacement_loses_is_told_in_readable_times(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN + SLEEPS)
    sgpu.done("apply", "-y", "--detach")
    until(lambda: sgpu.data("status")["runs"][0]["state"] == "running")
    planned = sgpu.here("plan", "--set", "gpus=2", "--on-active", "replace").out
    lost = r"lost: `hello#1` has been running for [0-9.]+ s without a GPU\n"
    assert re.search(lost, planned), planned
