import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from venv import create

import pytest

from sgpu_decl.environments.interpreters import LocalPython, NoPython, Pythons, has_package
from sgpu_decl.environments.interpreters import interpreter_of as find_interpreter
from sgpu_decl.model.desired import Interpreter
from tests.support import shell_program

Find = Callable[..., Any]

OWN = platform.python_version()
MINOR = OWN.rpartition(".")[0]


@pytest.fixture
def find(tmp_path: Path) -> Find:
    def call(wanted: str | None, **environ: str) -> LocalPython | NoPython:
        environ = {"PYENV_ROOT": str(tmp_path / "none"), **environ}
        return Pythons(environ, tmp_path / "pythons.json").find(wanted, tmp_path)

    return call


@pytest.fixture
def elder(tmp_path: Path) -> Path:
    """A program that says it is Python 3.10."""
    text = (
        '{"python": ["cpython", "3.10.5", "cpython-310", "linux-x86_64", ""], "executable": "%s", '
    )
    text += '"base": "", "cache_tag": "", "magic": "", "sites": []}'
    path = tmp_path / "bin" / "python3.10"
    return shell_program(path, f"echo called >> {tmp_path}/calls; echo \"$6\"'{text % path}'")


def test_that_of_sgpu_itself_unless_another_is_asked_for(find: Find) -> None:
    own = find(None)
    version = ".".join(map(str, sys.version_info[:3]))
    assert (own.executable, own.python.version) == (sys.executable, version)
    assert find(own.python.minor) == find(version) == own


def test_one_on_the_path_is_asked_once(find: Find, elder: Path, tmp_path: Path) -> None:
    for _ in range(2):
        found = find("3.10", PATH=str(elder.parent))
        assert (found.executable, found.python.version) == (str(elder), "3.10.5")
    assert (tmp_path / "calls").read_text() == "called\n"


def test_a_shim_that_leads_nowhere_is_passed_by(find: Find, elder: Path, tmp_path: Path) -> None:
    shim = shell_program(tmp_path / "shims/python3.10", "exit 127")
    assert find("3.10", PATH=f"{shim.parent}:{elder.parent}").executable == str(elder)


def test_a_folder_that_may_not_be_looked_into_has_no_interpreter(find: Find) -> None:
    """As that of another user, which `su` leaves in the environment. A name that is too long is
    refused to root as well."""
    closed = f"/{'a' * 300}"
    assert isinstance(find("3.99", PYENV_ROOT=closed, UV_PYTHON_INSTALL_DIR=closed), NoPython)


def test_a_shim_is_asked_each_time_for_what_it_leads_to(
    find: Find, elder: Path, tmp_path: Path
) -> None:
    shim = shell_program(tmp_path / "shims/python3.10", f'exec {elder} "$@"')
    for _ in range(2):
        assert find("3.10", PATH=str(shim.parent)).executable == str(elder)
    assert (tmp_path / "calls").read_text() == "called\ncalled\n"


def test_another_patch_version_is_not_taken(find: Find, elder: Path) -> None:
    assert find("3.10.5", PATH=str(elder.parent)).executable == str(elder)
    assert isinstance(find("3.10.6", PATH=str(elder.parent)), NoPython)


def test_one_that_uv_installed_is_found(find: Find, elder: Path, tmp_path: Path) -> None:
    home = tmp_path / "uv"
    inside = home / "cpython-3.10.5-linux-x86_64-gnu" / "bin" / "python3.10"
    inside.parent.mkdir(parents=True)
    elder.rename(inside)
    assert find("3.10", PATH="", UV_PYTHON_INSTALL_DIR=str(home)).python.version == "3.10.5"


def test_a_path_starts_from_the_project(find: Find, elder: Path) -> None:
    assert find("bin/python3.10").python.minor == "3.10"
    assert isinstance(find("bin/none"), NoPython)


def test_what_this_machine_lacks_is_none(find: Find) -> None:
    assert isinstance(find("3.10", PATH=""), NoPython)
    assert isinstance(find("python of my choice", PATH=""), NoPython)


def interpreter_of(python: str | None, folder: Path) -> Interpreter | NoPython:
    return find_interpreter(python, folder, lambda: Pythons({}, folder / "memory"))


@pytest.mark.parametrize("python", [None, OWN, MINOR, MINOR.partition(".")[0]])
def test_the_python_of_sgpu_itself_serves_where_it_fits(python: str | None) -> None:
    found = interpreter_of(python, Path("/"))
    assert isinstance(found, Interpreter)
    assert (found.executable, found.version) == (sys.executable, OWN)
    assert found.packages is not None
    assert "pytest" in {package.name for package in found.packages.packages}


def test_a_path_counts_from_the_file_that_names_it(tmp_path: Path) -> None:
    create(tmp_path / "venv", symlinks=True, with_pip=False)
    found = interpreter_of("venv/bin/python", tmp_path)
    assert isinstance(found, Interpreter)
    assert (found.executable, found.version) == (str(tmp_path / "venv/bin/python"), OWN)
    (tmp_path / "no").mkdir()
    assert isinstance(interpreter_of("no/bin/python", tmp_path), NoPython)


def test_the_packages_of_another_interpreter_are_read_from_its_files(tmp_path: Path) -> None:
    create(tmp_path / "venv", symlinks=True, with_pip=False)
    (site,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    beside = tmp_path / "beside"
    for folder in (site / "ray-2.40.0.dist-info", beside / "linked-1.0.dist-info"):
        folder.mkdir(parents=True)
    (site / "raises.pth").write_text(f"import never_there\n{beside}\n")
    found = interpreter_of("venv/bin/python", tmp_path)
    assert isinstance(found, Interpreter)
    assert found.packages is not None
    assert dict(found.packages.packages) == {"linked": "1.0", "ray": "2.40.0"}


def test_the_packages_of_an_unusual_installation_are_not_known(elder: Path) -> None:
    found = interpreter_of(str(elder), elder.parent)
    assert isinstance(found, Interpreter)
    assert found.packages is None


def test_only_what_our_own_interpreter_lacks_is_known_to_be_missing() -> None:
    own = Interpreter(executable=sys.executable, version=OWN)
    assert has_package(own, "json")
    assert not has_package(own, "no_such_package")
    assert has_package(Interpreter(executable="/other/python", version=None), "no_such_package")


def test_looking_for_a_package_imports_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "never_imported.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert has_package(Interpreter(executable=sys.executable, version=OWN), "never_imported")
    assert "never_imported" not in sys.modules
