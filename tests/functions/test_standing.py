from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.functions.standing import standing_of


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


def test_a_function_of_a_project_stands_in_its_file(
    function_in: Callable[[str], Any], tmp_path: Path
) -> None:
    standing = standing_of(function_in("project/src"))
    assert standing.file == tmp_path / "project/src/training.py"
    assert (standing.name, standing.entrypoint) == ("train", "training:train")


@pytest.mark.parametrize("folder", ["lib/python3.11/site-packages", "lib/python3/dist-packages"])
def test_a_function_of_a_package_stands_in_the_working_folder(
    function_in: Callable[[str], Any], tmp_path: Path, folder: str
) -> None:
    assert standing_of(function_in(folder)).file.parent == tmp_path / "here"
