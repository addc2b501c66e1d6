"""What a job begins with, by a Python that may be too old, and where the agent may be damaged."""

import json
import os
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import sgpu_decl.backends.slurm.job
from sgpu_decl.backends.archives import agent_zip

JOB = resources.files(sgpu_decl.backends.slurm.job)
TEXT = JOB.joinpath("bootstrap.py").read_text("utf-8")
MODULES = sorted(
    f"sgpu_decl.backends.slurm.job.{item.name[:-3]}"
    for item in JOB.iterdir()
    if item.name.endswith(".py") and item.name != "__init__.py"
)


def started(
    folder: Path, python: str, role: str, *, text: str = TEXT, damaged: bool = False
) -> tuple[subprocess.CompletedProcess[str], Any]:
    """A program as Slurm starts it, and why its node refused."""
    digest, archive = agent_zip(sgpu_decl.backends.slurm.job)
    (folder / "objects/agent").mkdir(parents=True)
    (folder / f"objects/agent/{digest}.zip").write_bytes(archive[: -1 if damaged else None])
    (folder / "launch/logs").mkdir(parents=True)
    launch = {"folder": f"{folder}/launch", "objects": f"{folder}/objects", "agent": digest}
    (folder / "tmp").mkdir()
    done = subprocess.run(
        [python, "-I", "-S", "-c", text, role, json.dumps(launch), "127.0.0.1", "1"],
        env={"SLURM_NODEID": "1", "SLURMD_NODENAME": "n2", "TMPDIR": f"{folder}/tmp"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert list((folder / "tmp").iterdir()) == []
    refused = folder / "launch/logs/refused.json"
    return done, json.loads(refused.read_text())["why"] if refused.exists() else None


def interpreter(version: str) -> str:
    python = shutil.which(f"python{version}") or "none"
    asked = [python, "-c", "import sys; print(sys.executable)"]
    try:
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"this machine has no Python {version}")


@pytest.mark.parametrize("version", ["3.6", "3.9"])
def test_a_python_that_is_too_old_says_so_for_its_node(tmp_path: Path, version: str) -> None:
    python = interpreter(version)

    done, refused = started(tmp_path, python, "node")

    assert refused == f"node 1 (n2): its Python, {python}, is not 3.10 or newer"
    assert done.returncode == 1


@pytest.mark.parametrize("role", ["job", "node"])
def test_a_damaged_agent_is_told_and_nothing_of_it_is_run(tmp_path: Path, role: str) -> None:
    patient = TEXT.replace("PAUSES = (0.0, 0.2,", "PAUSES = (0.0,); _ = (")

    done, refused = started(tmp_path, sys.executable, role, text=patient, damaged=True)

    said = f"the node agent in `{tmp_path}/objects` is missing or damaged"
    assert done.stderr.endswith(f"OSError: {said}\n")
    assert refused == (f"node 1 (n2): {said}" if role == "node" else None)


@pytest.mark.parametrize("version", ["3.10", "3.13"])
def test_all_its_programs_are_in_the_archive_and_need_no_more(tmp_path: Path, version: str) -> None:
    imports = "; ".join(f"import {name}" for name in MODULES)
    text = TEXT.replace("if role ==", f"{imports}; return 7\n        if role ==", 2)
    text = text.replace(f"{imports}; return 7\n        if role ==", "if role ==", 1)

    done, _ = started(tmp_path, interpreter(version), "job", text=text)

    assert (done.returncode, done.stderr) == (7, "")


def test_a_job_whose_launch_folder_is_gone_ends_at_once(tmp_path: Path) -> None:
    launch = json.dumps({"folder": f"{tmp_path}/gone"})
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", TEXT, "job", launch],
        env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, list(tmp_path.iterdir())) == (0, [])
    assert done.stderr.startswith("sgpu: nothing to do: ")
