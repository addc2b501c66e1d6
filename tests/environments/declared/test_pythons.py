import sys

import pytest

from sgpu_decl.environments.declared.pythons import find_python


def _script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def find(tmp_path):
    def call(wanted, **environ):
        return find_python(
            wanted, folder=tmp_path, environ=environ, memory=tmp_path / "pythons.json"
        )

    return call


@pytest.fixture
def elder(tmp_path):
    """A program that says it is Python 3.9."""
    text = '{"python": ["cpython", "3.9.5", "cpython-39", "linux-x86_64", ""], "executable": "%s", '
    text += '"base": "", "cache_tag": "", "magic": "", "sites": []}'
    path = tmp_path / "bin" / "python3.9"
    return _script(path, f"echo called >> {tmp_path}/calls; echo '{text % path}'")


def test_that_of_sgpu_itself_unless_another_is_asked_for(find):
    own = find(None)
    version = ".".join(map(str, sys.version_info[:3]))
    assert (own.executable, own.python.version) == (sys.executable, version)
    assert find(own.python.minor) == find(version) == own


def test_one_on_the_path_is_asked_once(find, elder, tmp_path):
    for _ in range(2):
        found = find("3.9", PATH=str(elder.parent))
        assert (found.executable, found.python.version) == (str(elder), "3.9.5")
    assert (tmp_path / "calls").read_text() == "called\n"


def test_a_shim_that_leads_nowhere_is_passed_by(find, elder, tmp_path):
    shim = _script(tmp_path / "shims/python3.9", "exit 127")
    assert find("3.9", PATH=f"{shim.parent}:{elder.parent}").executable == str(elder)


def test_a_shim_is_asked_each_time_for_what_it_leads_to(find, elder, tmp_path):
    shim = _script(tmp_path / "shims/python3.9", f'exec {elder} "$@"')
    for _ in range(2):
        assert find("3.9", PATH=str(shim.parent)).executable == str(elder)
    assert (tmp_path / "calls").read_text() == "called\ncalled\n"


def test_another_patch_version_is_not_taken(find, elder):
    assert find("3.9.5", PATH=str(elder.parent)) is not None
    assert find("3.9.6", PATH=str(elder.parent)) is None


def test_one_that_uv_installed_is_found(find, elder, tmp_path):
    home = tmp_path / "uv"
    inside = home / "cpython-3.9.5-linux-x86_64-gnu" / "bin" / "python3.9"
    inside.parent.mkdir(parents=True)
    elder.rename(inside)
    assert find("3.9", PATH="", UV_PYTHON_INSTALL_DIR=str(home)) is not None


def test_a_path_starts_from_the_project(find, elder):
    assert find("bin/python3.9").python.minor == "3.9"
    assert find("bin/none") is None


def test_what_this_machine_lacks_is_none(find):
    assert find("3.9", PATH="") is None
    assert find("python of my choice", PATH="") is None
