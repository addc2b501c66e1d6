"""What is installed, by the names of folders."""

import importlib.metadata
from pathlib import Path

from sgpu_decl.environments.package_lists.packages import (
    installed,
    normalise,
    this_interpreter,
    version_of,
)


def folder(parent: Path, *names: str) -> str:
    for name in names:
        (parent / name).mkdir(parents=True)
    return str(parent)


def test_names_and_versions_come_from_folder_names(tmp_path: Path) -> None:
    first = folder(
        tmp_path / "a",
        "torch-2.7.1+cu126.dist-info",
        "Flask_Cors-6.0.5.dist-info",
        "six-1.16.0-py3.11.egg-info",
        "local.egg-info",
        "torch",
        "-1.dist-info",
        ".dist-info",
    )
    second = folder(tmp_path / "b", "torch-1.0.dist-info", "peft-0.17.1.dist-info")
    found = installed([first, second, str(tmp_path / "gone")])
    assert [(item.name, item.version) for item in found] == [
        ("flask-cors", "6.0.5"),
        ("peft", "0.17.1"),
        ("six", "1.16.0"),
        ("torch", "2.7.1+cu126"),
    ]


def test_this_interpreter_has_what_its_metadata_says() -> None:
    known = {
        normalise(distribution.name): distribution.version
        for distribution in importlib.metadata.distributions()
    }
    found = this_interpreter()
    assert found.python is not None
    for name in ("click", "pytest", "hypothesis"):
        assert version_of(found.packages, name) == known[name]
