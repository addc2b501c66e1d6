"""Which Python files a command starts for certain."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from sgpu_decl.code.command_programs import ExecutedCode, scripts_of


@pytest.mark.parametrize(
    ("command", "scripts"),
    [
        (["python", "train.py", "--data", "other.py"], ("train.py",)),
        (["/opt/bin/python3.12", "-u", "-X", "dev", "src/train.py"], ("src/train.py",)),
        (["python", "-m", "package.train", "x.py"], ("package.train", "package.train.__main__")),
        (["./train.py"], ("./train.py",)),
        (["env", "A=b", "uv", "run", "python", "train.py"], ("train.py",)),
        ("export A=b\npython train.py; python3 -m after", ("train.py", "after", "after.__main__")),
        ("python train.py && python test.py > log", ("train.py", "test.py")),
        (["python", "-c", "import x", "train.py"], ()),
        (["bash", "train.sh", "train.py"], ()),
        ("if true; then python train.py; fi", ()),
        ("test -f a || python train.py", ()),
        ("python 'train.py", ()),
        (None, ()),
    ],
)
def test_what_a_command_hands_to_python(
    command: Sequence[str] | str | None, scripts: tuple[str, ...]
) -> None:
    assert scripts_of(command) == scripts


def test_a_module_that_is_started_is_its_package_and_its_main(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    for name in ("__init__.py", "__main__.py", "other.py"):
        (package / name).touch()
    found = ExecutedCode(tmp_path).of(scripts_of(["python", "-m", "package"]))
    assert [source.shown for source in found] == ["package/__init__.py", "package/__main__.py"]
