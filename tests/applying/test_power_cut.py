"""A power cut may take back what the disk had not yet: the state says that an attempt was launched,
and its folder has nothing but what was staged."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu_decl.agent.system.processes import carriers
from sgpu_decl.api import PlanOptions, Session
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.plan import Action, Plan, Reason
from sgpu_decl.views.status_json import run_object, status_objects
from tests.support import PATIENCE, until

STAGED = {"spec.json", "_air.py", "code", "output"}
Open = Callable[..., Session]


@pytest.fixture
def cut(folder: Path, open_file: Open) -> AttemptRef:
    """An attempt that is recorded as launched, in a folder as it was before the launch."""
    (folder / "run.yaml").write_text(
        "name: cut\ngpus: 1\ntype: CPU\ncommand: ['true']\nmlflow: {enabled: false}\n"
    )
    session = open_file()
    applied = session.apply(session.plan(PlanOptions()))
    session.runs.wait(applied.launched, timeout=PATIENCE)
    attempt = session.state_dir / "runs/cut/1"
    assert {path.name for path in attempt.iterdir()} > STAGED
    token = json.loads((attempt / "spec.json").read_text())["token"]
    until(lambda: not carriers(token))  # a power cut ends the supervisor, too
    for path in attempt.iterdir():
        if path.name not in STAGED and path.is_file():
            path.unlink()
    return applied.launched[0]


def test_it_is_lost_and_nobody_waits_for_it(cut: AttemptRef, open_file: Open) -> None:
    runs = open_file().runs
    (ended,) = runs.wait([cut], timeout=PATIENCE)
    assert ended.state is AttemptState.LOST
    (described,) = status_objects(runs.describe([cut]))
    assert described["state"] == "lost"
    assert run_object(runs.show(cut))["history"][0]["state"] == "lost"


def test_the_next_apply_records_it_and_launches_anew(
    cut: AttemptRef, open_file: Open, apply: Callable[..., Plan]
) -> None:
    (change,) = apply().changes
    assert (change.action, change.reason) == (Action.CREATE, Reason.PREVIOUS_LOST)
    assert change.attempt == 2

    (pulled,) = json.loads(json.dumps(open_file().state.pull()))["resources"]
    assert [item["state"] for item in pulled["attempts"]] == ["lost", "succeeded"]
    freed = open_file().gc(keep_last=0, older_than=None, dry_run=False)
    assert str(cut) in freed["attempts"]
    assert not (open_file().state_dir / "runs/cut/1").exists()


def test_destroying_it_ends_it(cut: AttemptRef, open_file: Open) -> None:
    session = open_file()
    session.apply(session.plan(PlanOptions(destroy=True)))
    assert session.runs.status(cut).state is AttemptState.LOST
    assert not (session.state_dir / "runs/cut/1/code").exists()


def test_one_that_is_being_launched_is_not_lost(
    folder: Path, open_file: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "run.yaml").write_text(
        "name: cut\ngpus: 1\ntype: CPU\ncommand: ['true']\nmlflow: {enabled: false}\n"
    )
    seen: list[tuple[AttemptState, Action]] = []

    def look(_: Path, **__: object) -> None:
        other = open_file()
        (change,) = other.plan(PlanOptions()).plan.changes
        seen.append((other.runs.status(AttemptRef(change.address, 1)).state, change.action))
        raise OSError("enough")

    monkeypatch.setattr("sgpu_decl.agent.launching.agent_launch.launch", look)
    session = open_file()
    session.apply(session.plan(PlanOptions()))
    assert seen == [(AttemptState.STAGING, Action.ADOPT)]
