import platform
import sys
from pathlib import Path

import pytest

from sgpu_decl.backends.interpreting import has_package, interpreter_of
from sgpu_decl.model.desired import Interpreter

OWN = platform.python_version()
MINOR = OWN.rpartition(".")[0]


@pytest.mark.parametrize("python", [None, OWN, MINOR, MINOR.partition(".")[0]])
def test_the_python_of_sgpu_itself_serves_where_it_fits(python: str | None) -> None:
    found = interpreter_of(python, Path("/"))
    assert found is not None
    assert (found.executable, found.version) == (sys.executable, OWN)
    assert found.packages is not None
    assert "pytest" in {it.name for it in found.packages.packages}


def test_a_path_counts_from_the_file_that_names_it(tmp_path: Path) -> None:
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.touch(mode=0o755)
    found = interpreter_of("venv/bin/python", tmp_path)
    assert found == Interpreter(executable=str(python), version=None)
    python.chmod(0o644)
    assert interpreter_of("venv/bin/python", tmp_path) is None


def test_another_version_is_looked_for_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert interpreter_of("3.99", tmp_path) is None
    (tmp_path / "python3.99").touch(mode=0o755)
    other = interpreter_of("3.99", tmp_path)
    assert other == Interpreter(executable=str(tmp_path / "python3.99"), version="3.99")
    assert interpreter_of("3.99.1", tmp_path) is None
    assert interpreter_of("3.9", tmp_path) is None


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
