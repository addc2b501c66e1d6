"""Laws of whole commands, in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RUN = """\
name: cells
gpus: 1
type: CPU
entrypoint: train.py:main
args: {b: 2, a: {y: 1, x: [1, 2]}}
matrix: {lr: [0.1, 0.01], seed: [1, 2]}
tags: {team: a, kind: b}
env: {variables: {B: "1", A: "2"}}
mlflow: {enabled: false}
"""


def sgpu(folder: Path, *words: str, hash_seed: str = "0") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "sgpu_decl", *words],
        cwd=folder,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def written(folder: Path) -> Path:
    (folder / "run.yaml").write_text(RUN)
    (folder / "train.py").write_text("def main(**given):\n    return given\n")
    for name in ("z.py", "a.py", "m/b.py", "m/a.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")
    return folder


def test_the_same_input_gives_the_same_bytes_in_any_process(written: Path) -> None:
    seen = set()
    for seed in ("1", "2", "3"):
        done = sgpu(written, "plan", "-o", "json", hash_seed=seed)
        assert done.returncode == 0, done.stderr
        plan = json.loads(done.stdout)["data"]
        made, lineage = plan["created_at"], plan["lineage"]
        seen.add(done.stdout.replace(made, "").replace(lineage, ""))
    assert len(seen) == 1


def launched(folder: Path) -> dict[str, Any]:
    """What every attempt was started with, but for where and under which lineage."""
    specs = {}
    for path in sorted((folder / ".sgpu/default/runs").glob("*/1/spec.json")):
        text = path.read_text().replace(str(folder), "")
        spec = json.loads(text)
        assert spec.pop("token")
        assert spec.pop("lineage")
        specs[spec["address"]] = spec
    return specs


def test_a_saved_plan_launches_what_a_direct_one_does(written: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run(["cp", "-r", str(written), str(other)], check=True)

    assert sgpu(written, "apply", "-y").returncode == 0
    assert sgpu(other, "plan", "--out", "saved.plan").returncode == 0
    saved = sgpu(other, "apply", "saved.plan")

    assert saved.returncode == 0, saved.stderr
    assert len(launched(written)) == 4
    assert launched(written) == launched(other)
    for folder in (written, other):
        assert sgpu(folder, "plan", "--detailed-exitcode").returncode == 0
