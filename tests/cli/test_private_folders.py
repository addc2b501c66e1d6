"""Nobody else may read what sgpu keeps, whatever the umask says."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.support import PATIENCE

RUN = """\
name: hello
gpus: 1
type: CPU
entrypoint: train.py:main
mlflow: {enabled: false}
code: {link: [data/large]}
"""
CODE = """\
import os


def main():
    print("hello")
"""


@pytest.mark.parametrize(
    "umask",
    [0o000, *(pytest.param(mask, marks=pytest.mark.expensive) for mask in (0o022, 0o077, 0o777))],
    ids=oct,
)
def test_folders_and_files_are_private_under_any_umask(sgpu: Shell, umask: int) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.write("train.py", CODE)
    sgpu.write("package/inner/module.py", "")
    sgpu.write("data/large/file", "")
    for words in (("apply", "-y"), ("status",), ("state", "mv", "run.hello", "run.other")):
        done = subprocess.run(
            [sys.executable, "-m", "sgpu_decl", *words],
            cwd=sgpu.folder,
            env=sgpu.environ,
            umask=umask,
            timeout=PATIENCE,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
    runs = sgpu.folder / ".sgpu/default/runs"
    assert stat.S_IMODE(runs.stat().st_mode) == 0o700
    store = Path(sgpu.environ["XDG_DATA_HOME"]) / "sgpu"
    assert [*_open(sgpu.folder / ".sgpu"), *_open(store)] == []


def _open(top: Path) -> Iterator[str]:
    """What is there with another mode than ours."""
    for path in (top, *top.rglob("*")):
        if path.is_symlink() or "__pycache__" in path.parts:  # that is made by Python, in ranks
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        right = (0o700,) if path.is_dir() else (0o600, 0o700)
        if mode not in right:
            yield f"{mode:o} {os.fspath(path.relative_to(top.parent))}"
