"""A project for the functions that tests call, and the caches beside it."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, and the project, is empty; stores lie beside it."""
    for name in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    for name in list(os.environ):
        if name.startswith(("MLFLOW_", "SGPU_")):
            monkeypatch.delenv(name)
    made = tmp_path / "project"
    made.mkdir()
    monkeypatch.setenv("SGPU_PROJECT", str(made))
    monkeypatch.chdir(made)
    return made
