"""An environment that is active, or lies beside the code, while sgpu runs in another one."""

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.support import FUNCTION_RUN

RUN = "name: a\ngpus: 1\ntype: CPU\nmlflow: {enabled: false}\n"


def environment(home: Path, *files: str) -> Path:
    site = home / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    for file in files:
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).touch()
    (home / "bin").mkdir()
    (home / "bin/python").symlink_to(sys.executable)
    return home


@pytest.mark.parametrize(
    ("how", "file"),
    [
        ("VIRTUAL_ENV", "torchy/__init__.py"),
        ("CONDA_PREFIX", "torchy.abi3.so"),
        ("inside", "torchy.py"),
        ("beside the file", "torchy/__init__.py"),
    ],
)
def test_an_import_that_the_users_environment_has(
    sgpu: Shell, tmp_path: Path, how: str, file: str
) -> None:
    named = tmp_path / "mine"
    home = environment(named if how.isupper() else sgpu.folder / ".venv", file)
    if how != "beside the file":
        sgpu.environ["VIRTUAL_ENV" if how == "inside" else how] = str(home)
    sgpu.write("train.py", "import torchy\ndef main(): pass\n")
    sgpu.write("run.yaml", FUNCTION_RUN)
    (found,) = sgpu.checks(severity="warning")
    python = home / "bin/python" if how.isupper() else ".venv/bin/python"
    assert found["id"] == "package_missing"
    assert found["hint"] == f"your environment has it: `env: {{python: {python}}}`"
    sgpu.write("run.yaml", f"{FUNCTION_RUN}env: {{python: {python}}}\n")
    assert sgpu.checks(severity="warning") == []


def test_one_that_lacks_it_too_is_not_named(sgpu: Shell) -> None:
    sgpu.environ["VIRTUAL_ENV"] = str(environment(sgpu.folder / ".venv", "other.py"))
    sgpu.environ["CONDA_PREFIX"] = str(sgpu.folder / "none")
    sgpu.write("train.py", "import torchy\ndef main(): pass\n")
    sgpu.write("run.yaml", FUNCTION_RUN)
    (found,) = sgpu.checks(severity="warning")
    assert found["hint"].startswith("install what provides `torchy`")


def test_a_program_beside_sgpu_is_named(sgpu: Shell) -> None:
    sgpu.environ["PATH"] = "/usr/bin:/bin"
    beside = Path(sys.executable).with_name("uv")
    sgpu.write("run.yaml", f"{RUN}command: [uv, --version]\n")
    found = sgpu.checks(severity="warning")
    assert [item["id"] for item in found] == ["program_missing"]
    assert found[0]["hint"].startswith(f"`{beside}` lies beside sgpu: write that path")
