import subprocess
import sys
from pathlib import Path

import pytest


def plan(folder: Path, file: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "sgpu_decl", "plan", file],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("def main():\n    return 1\n")
    (tmp_path / "run.yaml").write_text("name: a\ngpus: 1\ntype: CPU\nentrypoint: train.py:main\n")
    return tmp_path


def test_an_entrypoint_that_an_ignore_rule_leaves_out_is_refused_at_plan(folder: Path) -> None:
    (folder / ".gitignore").write_text("train.py\n")
    refused = plan(folder, "run.yaml")
    assert refused.returncode == 1
    assert "left out of the code by an ignore rule" in refused.stdout + refused.stderr


def test_blocks_of_a_project_whose_engine_is_not_here_yet_are_refused(folder: Path) -> None:
    (folder / "sgpu.yml").write_text(
        "project: {name: p}\n"
        "runs:\n  a:\n    gpus: 1\n    type: CPU\n    entrypoint: train.py:main\n"
        "include: [more.yml]\n"
    )
    refused = plan(folder, "sgpu.yml")
    assert refused.returncode == 1
    assert "`include` is valid, and this version cannot act on it yet" in (
        refused.stdout + refused.stderr
    )


def test_secrets_in_the_tree_are_left_out_and_listed(folder: Path) -> None:
    (folder / ".env").write_text("PASSWORD=1\n")
    planned = plan(folder, "run.yaml")
    assert planned.returncode == 0
    assert ".env" in planned.stdout
