"""The wheel, installed in a clean environment without the source tree, works."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.wheel import build_wheel, install

ROOT = Path(__file__).resolve().parents[2]


def run(*words: str, cwd: Path) -> str:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        words, cwd=cwd, env=environ, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


_state = shutil.ignore_patterns(".sgpu", "__pycache__")


@pytest.mark.expensive
@pytest.mark.packaging
def test_the_wheel_plans_and_applies_an_example_far_from_the_source(tmp_path: Path) -> None:
    programs = install(build_wheel(tmp_path), tmp_path / "clean")
    shutil.copytree(ROOT / "examples" / "hello", tmp_path / "hello", ignore=_state)

    sgpu, python = str(programs / "sgpu"), str(programs / "python")
    run(sgpu, "apply", "-y", "run.yaml", cwd=tmp_path / "hello")
    told = json.loads(run(sgpu, "results", "hello", "-o", "json", cwd=tmp_path / "hello"))
    assert [result["value"]["rank"] for result in told["data"]["results"]] == [0, 1, 2, 3]

    bases = json.loads(run(sgpu, "env", "bases", "-o", "json", cwd=tmp_path))["data"]["bases"]
    assert [base["packages"] for base in bases][:2] == [259, 388]

    assert "unknown_key" in run(sgpu, "explain", cwd=tmp_path)

    facts = "from sgpu_decl.model.assumptions import assumptions; print(len(assumptions()) > 40)"
    assert run(python, "-c", facts, cwd=tmp_path) == "True\n"

    (tmp_path / "fresh").mkdir()
    run(sgpu, "init", cwd=tmp_path / "fresh")
    modeline = (tmp_path / "fresh" / "run.yaml").read_text().partition("\n")[0]
    schema = tmp_path / "fresh" / modeline.partition("$schema=")[2]
    assert json.loads(schema.read_text())["type"] == "object"

    run(sgpu, "init", "--template", "gitops", "vision", cwd=tmp_path)
    validated = run(sgpu, "validate", "--strict", cwd=tmp_path / "vision")
    assert "2 runs and 1 job in 7 files" in validated
    assert (tmp_path / "vision/.github/workflows/sgpu.yml").is_file()
