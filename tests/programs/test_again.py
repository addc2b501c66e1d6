"""A script that executes itself finds what torchrun would have given it."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

LAUNCHED = Path(__file__).parent / "launched"
ARGS = ("--lr", "0.5")


def printed_by(launcher: Sequence[str], folder: Path) -> str:
    return subprocess.run(
        [*launcher, "again.py", *ARGS],
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout


@pytest.mark.expensive
def test_a_script_that_executes_itself_again_sees_what_python_gives_it(
    project: Callable[..., Any],
) -> None:
    there = project("again.py")
    # torch/distributed/run.py, `config_from_args`: `python -u SCRIPT ARGS` is what torchrun starts.
    expected = printed_by([sys.executable, "-u"], there.folder)
    there.launch("entrypoint: again.py", f"args: [{', '.join(ARGS)}]")
    assert expected.count("\n") == 3
    assert there.printed(0) == there.printed(1) == expected


@pytest.mark.torch
@pytest.mark.expensive
def test_a_script_that_executes_itself_again_sees_what_torchrun_gives_it(
    project: Callable[..., Any],
) -> None:
    there = project("again.py")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
    assert printed_by(torchrun, there.folder) == printed_by([sys.executable, "-u"], there.folder)
