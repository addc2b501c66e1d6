"""The same team with 40 runs and 6 jobs, of which an apply launches 37 and makes 6: what comments
weigh, what plans ask a workspace, and what a click undoes."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.examples.gitops_team import PRINCIPALS, Clone, Team
from tests.examples.many_runs import JOBS, LAUNCHED, MANAGED, write_many_runs


def asked(workspace: Any) -> int:
    """How much the workspace was asked since the last time, but for logins."""
    login = ("/oidc/", "/.well-known/")
    paths = [one.path for one in workspace.recording.all() if not one.path.startswith(login)]
    workspace.recording.clear()
    return len(paths)


def new_machine(clone: Clone) -> None:
    """As each job of CI has one: nothing is cached."""
    for name in ("CACHE", "DATA", "STATE"):
        shutil.rmtree(Path(clone.environ[f"XDG_{name}_HOME"]), ignore_errors=True)
    shutil.rmtree(clone.folder / ".sgpu", ignore_errors=True)


@pytest.mark.expensive
@pytest.mark.usefixtures("place")
def test_a_team_of_forty_runs_and_six_jobs(team: Team, workspace: Any) -> None:
    from databricks.sdk import WorkspaceClient

    write_many_runs(team.author.folder)
    team.author.git("add", ".")
    team.author.git("commit", "-q", "-m", "The runs of the team")
    team.author.git("push", "-q", "origin", "main")
    workspace.recording.clear()

    # The first plan has 43 creations. A pull request shows them with its own one in full.
    team.branch("first", "variables.yml", "default: 20", "default: 40")
    comment = team.plan("first", 1)
    assert asked(workspace) <= 15
    assert f"**Plan: {MANAGED} to create" in comment
    assert f"{MANAGED - 1} changes pending" in comment
    new_machine(team.planner)
    whole = team.planner.sgpu("plan", "-t", "prod", "-o", "markdown")
    assert asked(workspace) <= 15
    assert "(none)" not in whole
    assert len(whole.encode()) < 10_000

    team.merge("first")
    applied = team.apply()
    assert applied.returncode == 0, applied.stderr
    assert len(team.attempts()) == LAUNCHED
    client = WorkspaceClient()
    jobs = {str(job.settings and job.settings.name): job.job_id for job in client.jobs.list()}
    assert len(jobs) == JOBS
    team.wait()

    # Nothing is applied in between, and one line of `defaults` changes.
    new_machine(team.planner)
    workspace.recording.clear()
    team.branch("timeout", "sgpu.yml", "timeout: 2h", "timeout: 3h")
    comment = team.plan("timeout", 2)
    assert asked(workspace) <= 60
    assert f"{MANAGED} to update" in comment
    assert len(comment.encode()) < 2_000

    # In an emergency somebody deletes a job. The merge brings no job back; a click does.
    client.jobs.delete(jobs["watch-3"] or 0)
    team.merge("timeout")
    refused = team.apply()
    assert refused.returncode == 3, refused.stderr
    assert "`job.watch-3` (create)" in refused.stderr
    assert len(list(client.jobs.list())) == JOBS - 1
    ((text, state),) = team.night()
    assert (state, "`job.watch-3`" in text) == ("open", True)
    healed = team.heal()
    assert healed.returncode == 0, healed.stderr
    assert len(list(client.jobs.list())) == JOBS
    assert [one["state"] for one in team.host.issues()] == ["closed"]

    # The log says who did it, and where it was reviewed.
    answer = json.loads(
        team.planner.sgpu("state", "log", "-t", "prod", "--tail", "500", "-o", "json")
    )
    launches = [
        entry
        for entry in answer["data"]["entries"]
        if any(change["op"] == "launched" for change in entry["changes"])
    ]
    assert launches
    for entry in launches:
        assert entry["principal"] == PRINCIPALS["applier"]
        assert entry["links"] == ["https://github.com/team/vision/pull/1"]
        assert entry["proposals"]
