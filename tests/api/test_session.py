"""One opened project: what the end of a session closes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.api import Location, Session
from sgpu_decl.errors import SgpuError

BACKEND = """
from sgpu_decl.backends.base import Backend
from sgpu_decl.model.backend_kinds import BackendKind, Capabilities


def open_closing(context):
    part = object()
    closed = context.project / "closed"
    return Backend(survey=part, launcher=part, attempts=part, storage=part, close=closed.touch)


KIND = BackendKind(
    name="closing", options=object, capabilities=Capabilities(remote=True), open=open_closing
)
"""


def test_the_end_of_a_session_closes_its_backends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    (site / "closing-1.0.dist-info").mkdir(parents=True)
    (site / "closing-1.0.dist-info" / "METADATA").write_text("Name: closing\nVersion: 1.0\n")
    (site / "closing-1.0.dist-info" / "entry_points.txt").write_text(
        "[sgpu.backends]\nclosing = closing_backend:KIND\n"
    )
    (site / "closing_backend.py").write_text(BACKEND)
    monkeypatch.syspath_prepend(site)
    with Session.open(Location(project=tmp_path)) as session:
        session._project.backend("closing")
        assert not (tmp_path / "closed").exists()
    assert (tmp_path / "closed").exists()
    session.close()  # closing twice is harmless


def test_apply_takes_what_plan_returned_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("name: a\ngpus: 1\ntype: CPU\ncommand: ['true']\n")
    with Session.open(Location(project=tmp_path)) as session:
        prepared = session.plan()
        plan: Any = prepared.plan
        with pytest.raises(TypeError, match="`prepared` must be a `Prepared`, not a `Plan`"):
            session.apply(plan)


def test_a_closed_session_refuses_every_call(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("name: a\ngpus: 1\ntype: CPU\ncommand: ['true']\n")
    with Session.open(Location(project=tmp_path)) as session:
        runs, jobs = session.runs, session.jobs
    calls: list[Callable[[], object]] = [
        session.plan, session.state.resources, jobs.find, lambda: runs.find("a"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(SgpuError, match="this session is closed") as refused:
            call()
        assert refused.value.code == "session_closed"
    session.close()
