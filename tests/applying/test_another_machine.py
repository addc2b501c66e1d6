"""A saved plan, mailed to another machine: nothing but the plan and a checkout is there."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

RUN = """\
name: moved
gpus: 1
type: CPU
entrypoint: src/train.py:main
args: {n: "${var.n}"}
variables: {n: 1}
mlflow: {enabled: false}
"""
TRAIN = "from helper import FACTOR\n\ndef main(n):\n    return n * FACTOR\n"


def sgpu(folder: Path, home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    homes = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("DATA", "CACHE", "STATE")}
    return subprocess.run(
        [sys.executable, "-m", "sgpu_decl", *words],
        cwd=folder,
        env={**os.environ, **homes},
        capture_output=True,
        text=True,
        check=False,
    )


def git(*words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *who, *words], check=True, capture_output=True)


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A clone of a project that was planned, the plan in it, and nothing left of the first."""
    first = tmp_path / "first"
    (first / "src").mkdir(parents=True)
    (first / "run.yaml").write_text(RUN)
    (first / "src/train.py").write_text(TRAIN)
    (first / "helper.py").write_text("FACTOR = 2\n")
    (first / "notes.md").write_text("draft\n")
    git("init", "-q", str(first))
    git("-C", str(first), "add", ".")
    git("-C", str(first), "commit", "-qm", "planned")
    asked = ("--var", "n=21", "--set", "code.exclude=[notes.md]", "--out", "../saved.plan")
    planned = sgpu(first, tmp_path / "home1", "plan", *asked)
    assert planned.returncode == 0, planned.stderr
    clone = tmp_path / "clone"
    git("clone", "-q", str(first), str(clone))
    shutil.rmtree(first)
    shutil.rmtree(tmp_path / "home1")
    shutil.move(tmp_path / "saved.plan", clone)
    return clone


def test_its_code_is_built_again_from_the_plan_alone(there: Path) -> None:
    home = there.parent / "home2"
    (there / "notes.md").write_text("what the plan leaves out may differ\n")
    (there / "run.yaml").write_text(RUN.replace("n: 1}", "n: 5}"))  # nor is the file read again

    applied = sgpu(there, home, "apply", "saved.plan")

    assert applied.returncode == 0, applied.stderr
    answer = json.loads(sgpu(there, home, "results", "moved", "-o", "json").stdout)
    assert answer["data"]["results"] == [{"rank": 0, "value": 42}]
    assert sgpu(there, home, "apply", "saved.plan").returncode == 3


@pytest.mark.parametrize(
    "differ",
    [
        lambda item: (item / "helper.py").write_text("FACTOR = 3\n"),
        lambda item: (item / "extra.py").write_text(""),
        lambda item: (item / "helper.py").unlink(),
        lambda item: (item / "helper.py").chmod(0o755),
    ],
    ids=["edited", "added", "removed", "executable"],
)
def test_another_tree_is_refused_and_nothing_happens(
    there: Path, differ: Callable[[Path], object]
) -> None:
    differ(there)

    refused = sgpu(there, there.parent / "home2", "apply", "saved.plan", "-o", "json")

    assert refused.returncode == 3
    assert json.loads(refused.stdout)["error"]["code"] == "code_differs"
    assert not (there / ".sgpu").exists()
