"""Which folders an interpreter finds packages in, from its files alone."""

import json
import os
import subprocess
import sys
from pathlib import Path
from venv import create

import pytest

from sgpu_decl.environments.package_lists.site_folders import site_folders
from tests.support import some

VERSION = ".".join(map(str, sys.version_info[:3]))
BASE = os.path.realpath(sys.executable)


def found_by(executable: Path | str, environ: dict[str, str]) -> tuple[str, ...]:
    folders = some(site_folders(str(executable), VERSION, environ))
    return tuple(folder for folder in folders if os.path.isdir(folder))


@pytest.mark.parametrize("kind", ["installation", "venv", "venv with those of the system"])
def test_they_are_those_of_the_interpreter_itself(tmp_path: Path, kind: str) -> None:
    executable, environ = BASE, {"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    if kind != "installation":
        subprocess.run(
            [BASE, "-m", "venv", "--without-pip", "--symlinks", str(tmp_path / "venv"),
             *(["--system-site-packages"] if "system" in kind else [])],
            check=True,
        )  # fmt: skip
        executable = str(tmp_path / "venv/bin/python")
        (site,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
        (tmp_path / "named").mkdir()
        (site / "named.pth").write_text(f"# words\n{tmp_path / 'named'}\n")
    asks = "import json, sys; print(json.dumps(sys.path))"
    answer = subprocess.check_output([executable, "-c", asks], env=environ, cwd="/")
    library = os.path.dirname(os.__file__)
    paths = [path for path in json.loads(answer)[1:] if os.path.isdir(path)]
    packages = [path for path in paths if path not in (library, f"{library}/lib-dynload")]
    environ["PYTHONUSERBASE"] = str(tmp_path / ".local")
    assert list(found_by(executable, environ)) == packages


def test_an_installation_of_another_form_is_not_known(tmp_path: Path) -> None:
    assert site_folders(str(tmp_path / "bin" / "python"), VERSION, {}) is None


def test_a_virtual_environment_of_copies_names_its_installation(tmp_path: Path) -> None:
    create(tmp_path, symlinks=False, with_pip=False)
    (tmp_path / "lib" / f"python{VERSION.rpartition('.')[0]}" / "site-packages").mkdir(
        parents=True, exist_ok=True
    )
    (folder,) = found_by(tmp_path / "bin" / "python", {"PYTHONNOUSERSITE": "1"})
    assert folder.startswith(str(tmp_path))
