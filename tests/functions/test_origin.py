import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.functions.origin import origin_of, program_file


@pytest.fixture
def function_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """A function of a module that lies in that folder; work goes on beside it."""

    def made(folder: str) -> Any:
        file = tmp_path / folder / "training.py"
        file.parent.mkdir(parents=True)
        file.write_text("def train():\n    pass\n")
        scope = {"__name__": "training"}
        exec(compile(file.read_text(), str(file), "exec"), scope)
        return scope["train"]

    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return made


@pytest.mark.parametrize("folder", ["project/src", "lib/python3.11/site-packages"])
def test_a_function_stands_in_its_file(function_in: Callable[[str], Any], folder: str) -> None:
    origin = origin_of(function_in(folder))
    assert origin.place.file == f"../{folder}/training.py"
    assert (origin.name, origin.entrypoint) == ("train", "training:train")


def program(file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    monkeypatch.setattr(sys.modules["__main__"], "__file__", os.fspath(file), raising=False)
    return program_file()


def test_a_program_is_its_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "project" / "main.py"
    assert program(script, monkeypatch) == script


@pytest.mark.parametrize("folder", ["lib/python3.11/site-packages", "lib/python3/dist-packages"])
def test_a_program_that_is_installed_runs_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    assert program(tmp_path / folder / "runner.py", monkeypatch).parent == Path.cwd()
