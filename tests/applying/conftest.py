"""A project of its own, and the engine in this process."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu_decl.api import Location, PlanOptions, Session
from sgpu_decl.model.plan import Plan
from tests.cli.conftest import Answer, Shell
from tests.support import PATIENCE

Open = Callable[..., Session]


def sgpu(project: Path, *words: str) -> Answer:
    """Run a command in this process."""
    return Shell(project, dict(os.environ)).here(*words)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project; caches, the code store and moved states lie beside it."""
    for name in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    made = tmp_path / "project"
    made.mkdir()
    return made


@pytest.fixture
def open_file(folder: Path) -> Open:
    """Open a file of the project, with what the command line would say of it."""

    def opened(name: str = "run.yaml", **said: object) -> Session:
        return Session.open(Location(file=folder / name, project=folder, **said))  # type: ignore[arg-type]

    return opened


@pytest.fixture
def apply(open_file: Open) -> Callable[..., Plan]:
    """Plan a file, carry the plan out, wait for what it launched, and record it."""

    def applied(name: str = "run.yaml", **said: object) -> Plan:
        session = open_file(name, **said)
        plan = session.plan(PlanOptions())
        session.runs.wait(session.apply(plan).launched, timeout=PATIENCE)
        session.record_ended()
        return plan.plan

    return applied
