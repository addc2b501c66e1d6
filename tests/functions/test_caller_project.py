"""Programs and the projects that their calls belong to."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sgpu_decl import distributed
from sgpu_decl.errors import NotFound
from tests.functions.conftest import SETTINGS

MODULE = """
from sgpu_decl import distributed

@distributed(gpus=1, gpu_type="CPU", run_async=True)
def train():
    return 5
"""

SCRIPT = """
from package.training import train
from sgpu_decl.functions.running_call import DistributedFunctionCall

run_id = train.distributed().run_id
print(DistributedFunctionCall.from_run_id(run_id).result(timeout=60))
"""


@pytest.fixture
def program(project: Path) -> Path:
    """A script that calls a function of a package beside it."""
    (project / "package").mkdir()
    (project / "package" / "training.py").write_text(MODULE)
    script = project / "main.py"
    script.write_text(SCRIPT)
    return script


def run(script: Path, folder: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: text for name, text in os.environ.items() if name != "SGPU_PROJECT"}
    paths = os.pathsep.join(sys.path)
    return subprocess.run(
        [sys.executable, script], cwd=folder, env={**kept, "PYTHONPATH": paths, **environ},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.expensive
def test_calls_belong_to_the_project_of_the_script(program: Path, tmp_path: Path) -> None:
    (program.parent / "sgpu.yml").unlink()  # the folder of the script is enough
    done = run(program, program.parent)
    assert done.stdout == "[5]\n", done.stderr
    assert "`sgpu logs -f 'train#1'`" in done.stderr
    assert (program.parent / ".sgpu").is_dir()
    done = run(program, tmp_path)
    assert done.stdout == "[5]\n", done.stderr
    assert f"`sgpu logs -f 'train#2' --project {program.parent}`" in done.stderr


def test_calls_belong_to_the_project_and_target_that_the_environment_names(
    program: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "sgpu.yml").write_text("project: {name: shop}\ntargets: {prod: {}}\n" + SETTINGS)
    done = run(program, program.parent, SGPU_PROJECT=str(other), SGPU_TARGET="prod")
    assert done.stdout == "[5]\n", done.stderr
    assert f"`sgpu logs -f 'train#1' -t prod --project {other}`" in done.stderr
    assert (other / ".sgpu" / "prod").is_dir()


def test_a_project_of_the_environment_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SGPU_PROJECT", "/nowhere")
    with pytest.raises(NotFound, match="`SGPU_PROJECT` names the folder `/nowhere`"):
        distributed(gpus=1, gpu_type="CPU")(lambda: 1).plan()


def test_a_current_folder_that_is_gone_is_said(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SGPU_PROJECT")
    shutil.rmtree(project)
    with pytest.raises(NotFound, match="the current folder does not exist any more"):
        distributed(gpus=1, gpu_type="CPU")(lambda: 1).plan()


def test_state_of_a_project_on_a_network_file_system_lies_elsewhere_and_that_is_said(
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"none / ext4 rw 0 0\nwsfs {project} fuse.wsfs rw 0 0\n")
    monkeypatch.setattr("sgpu_decl.storing.state_folder._MOUNTS", mounts)
    assert distributed(gpus=1, gpu_type="CPU")(lambda: 1).distributed() == [1]
    assert "sgpu: the project lies on a `fuse.wsfs` file system" in capfd.readouterr().err
    assert not (project / ".sgpu").exists()
