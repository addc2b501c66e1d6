"""What a command asks a dashboard about attempts that are active, and how long it waits for it."""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from sgpu_decl.api import Location, Session
from sgpu_decl.backends.ray.clusters import Clusters
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.attempt_view import status_fields, time_text
from sgpu_decl.model.plan import Plan
from sgpu_decl.views.status_text import ending
from tests.backends.ray.answers import Answers, answering, recorded
from tests.cli.conftest import Shell
from tests.support import PATIENCE

JOBS = "/api/jobs/"
TICK = timedelta(seconds=0.1)  # of the clock of a file system
LATE = 30.0  # seconds: longer than a test takes
RUNS = """\
project: {name: shop}
runs:
"""
RUN = """\
  NAME:
    gpus: 1
    type: CPU
    command: ["true"]
    mlflow: {enabled: false}
    backend: {kind: ray, address: URL, storage: ROOT, resources_per_rank: {CPU: 2}}
"""
NAMES = ("one", "two", "three")


@pytest.fixture
def cluster() -> Iterator[Answers]:
    """A cluster that has each job that is submitted, and runs it for ever."""
    with answering({**recorded("2.60.0"), "/api/packages/gcs/*": {}}) as answers:
        node = answers.by_path["/api/v0/nodes"]["data"]["result"]["result"][0]["node_id"]

        def jobs() -> list[dict[str, Any]]:
            bodies = [json.loads(body) for path, body in answers.bodies if path == f"POST {JOBS}"]
            row = {"status": "RUNNING", "type": "SUBMISSION", "driver_node_id": node}
            return [
                {**row, "submission_id": body["submission_id"], "metadata": body["metadata"]}
                for body in bodies
            ]

        answers.by_path[JOBS] = jobs
        yield answers


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Answers) -> Path:
    """Three runs, each with an attempt that is active."""
    for name in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "project"
    storage = tmp_path / "storage"
    folder.mkdir()
    storage.mkdir()
    run = RUN.replace("URL", f'"{cluster.url}"').replace("ROOT", str(storage))
    text = RUNS + "".join(run.replace("NAME", name) for name in NAMES)
    (folder / "sgpu.yml").write_text(text)
    with Session.open(Location(project=folder)) as session:
        prepared = session.plan()
        assert len(session.apply(prepared).launched) == len(NAMES)
    cluster.requests.clear()
    cluster.connections = 0
    return folder


def planned(project: Path) -> Plan:
    with Session.open(Location(project=project)) as session:
        return session.plan().plan


def test_a_plan_asks_once_about_all_active_attempts(project: Path, cluster: Answers) -> None:
    plan = planned(project)

    assert {change.action for change in plan.changes} == {"adopt"}
    asked = Counter(request for request, _ in cluster.requests)
    assert asked[f"GET {JOBS}"] == 1
    assert sum(asked.values()) <= 5, asked
    assert cluster.connections == 1


def test_who_holds_the_room_is_asked_together_with_the_attempts(
    project: Path, cluster: Answers
) -> None:
    file = project / "sgpu.yml"
    fourth = file.read_text().split("  two:")[0].split("runs:\n")[1].replace("one", "four")
    file.write_text(file.read_text() + fourth.replace("CPU: 2", "CPU: 3"))

    plan = planned(project)

    held = [check.summary for check in plan.checks if check.code == "not_now"]
    assert held, plan.checks
    assert "`run.one#1`, `run.three#1`, `run.two#1`" in held[0]
    assert len(cluster.requests) <= 5, cluster.requests


@pytest.mark.parametrize("what", ["plan", "status"])
def test_a_silent_dashboard_is_waited_for_once(
    project: Path, cluster: Answers, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(Clusters, "budget", 0.5)
    cluster.delay = LATE
    begun = time.monotonic()
    with Session.open(Location(project=project)) as session:
        if what == "plan":
            states = [change.action for change in session.plan().plan.changes]
            assert states == ["adopt"] * 3
        else:
            views = session.runs.describe(session.runs.current())
            assert [view.state for view in views] == [AttemptState.STARTING] * 3
            assert all("no answer came in 0.5 s" in str(view.unavailable) for view in views)
    assert time.monotonic() - begun < LATE / 3
    assert len(cluster.requests) == 1


def test_what_is_not_known_now_says_since_when(project: Path, cluster: Answers) -> None:
    begun = datetime.now(UTC)
    with Session.open(Location(project=project)) as session:
        known = session.runs.describe(session.runs.current())
    answered = datetime.now(UTC)
    assert [view.unknown_since for view in known] == [None] * 3

    cluster.by_path |= {JOBS: (503, "soon"), f"{JOBS}*": (503, "soon")}
    with Session.open(Location(project=project)) as session:  # of another process
        views = session.runs.describe(session.runs.current())

    for view in views:
        since = view.unknown_since
        assert since is not None
        assert begun - TICK < since < answered + TICK
        words = ending(view, now=since + timedelta(hours=3), colour=False)
        assert "as last recorded 3 h ago: " in words
        assert status_fields(view)["unknown_since"] == time_text(since)


def test_queued_runs_are_stopped_at_the_same_time(project: Path, cluster: Answers) -> None:
    """Ray gives each driver three seconds. Each request waits until there is one for every run."""
    together = Barrier(len(NAMES), timeout=PATIENCE)
    rows = [{**row, "status": "PENDING"} for row in cluster.by_path[JOBS]()]
    cluster.by_path[JOBS] = rows

    def stop() -> dict[str, bool]:
        together.wait()
        return {"stopped": True}

    for row in rows:
        cluster.by_path[f"{JOBS}{row['submission_id']}"] = row
        cluster.by_path[f"{JOBS}{row['submission_id']}/stop"] = stop
    shell = Shell(project, dict(os.environ))
    answer = shell.here("cancel", *NAMES, "--no-wait")
    assert answer.code == 0, answer.err
    assert answer.err.count("asked to stop") == len(NAMES)
