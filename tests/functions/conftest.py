"""A project for the functions that tests call, and the caches beside it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.agent.attempt.attempt_status import request_cancel

# Tracking takes seconds of processor time for each call, and is the point of `test_tracked_calls`.
SETTINGS = "functions: {mlflow: {enabled: false}}\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, and the project, has settings alone; stores lie beside it."""
    for name in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    for name in list(os.environ):
        if name.startswith(("MLFLOW_", "SGPU_")):
            monkeypatch.delenv(name)
    made = tmp_path / "project"
    made.mkdir()
    (made / "sgpu.yml").write_text(SETTINGS)
    monkeypatch.setenv("SGPU_PROJECT", str(made))
    monkeypatch.chdir(made)
    yield made
    for spec in made.glob(".sgpu/*/runs/*/*/spec.json"):  # of a test that failed half-way
        request_cancel(spec.parent)
