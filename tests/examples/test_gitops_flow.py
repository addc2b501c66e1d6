"""The scripts of the example `gitops`, from the first push to a drift at night: pull requests are
planned in one clone and applied in another, with a state in PostgreSQL and a workspace that runs
here."""

import os
import re
import shlex
import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.testing.contracts.killed_commands import dying
from tests.examples.gitops_team import PRINCIPALS, Clone, Team
from tests.support import PATIENCE, shell_program, until


@pytest.mark.expensive
@pytest.mark.usefixtures("place")
def test_a_team_plans_in_pull_requests_and_applies_after_the_merge(team: Team) -> None:
    first = team.apply()  # the first push
    assert first.returncode == 0, first.stderr
    assert "this job waits for a pull request" in first.stdout

    team.branch("steps", "variables.yml", "default: 20", "default: 40")
    comment = team.plan("steps", 1)
    assert all(f"`{address}`" in comment for address in ("run.train", "job.nightly"))
    team.merge("steps")
    applied = team.apply()
    assert applied.returncode == 0, applied.stderr
    team.wait()

    # The log says who applied it, and in which pull request it was reviewed.
    log = team.planner.sgpu("state", "log", "-t", "prod")
    launched = next(line for line in log.splitlines() if "launched train#1" in line)
    assert PRINCIPALS["applier"] in launched
    assert "https://github.com/team/vision/pull/1 (proposal " in launched

    # The next pull request changes a run whose end nobody has recorded.
    team.branch("rate", "runs/train.yml", "rate: 0.05", "rate: 0.01")
    assert "`run.train`" in team.plan("rate", 2)
    again = team.apply()
    assert again.returncode == 0, again.stderr
    assert "No changes" in again.stdout

    # Somebody edits the job in the workspace, and takes it back the next day.
    for hour, state in (5, "open"), (2, "closed"):
        _reschedule(f"0 0 {hour} * * ?")
        ((text, found),) = team.night()
        assert found == state
        assert "0 0 5 * * ?" in text

    # Somebody deletes the job. No merge brings it back, and a click on the issue does.
    (job,) = _jobs()
    _client().jobs.delete(job)
    refused = team.apply()
    assert refused.returncode == 3, refused.stderr
    assert "which is gone since" in refused.stderr
    *_, (text, state) = team.night()
    assert (state, "`sgpu-heal`" in text) == ("open", True)
    refused = team.apply()  # another merge, after that plan
    assert refused.returncode == 3, refused.stderr
    assert _jobs() == []
    healed = team.heal()
    assert healed.returncode == 0, healed.stderr
    assert len(_jobs()) == 1
    assert {one["state"] for one in team.host.issues()} == {"closed"}

    # Two pull requests, merged in the other order, of which one job applies both.
    team.branch("slope", "evaluation/run.yml", "slope: 2.9", "slope: 3.1")
    comment = team.plan("slope", 3)
    assert "`job.nightly`" in comment
    assert "`run.train`" not in comment.partition("**info**")[0]  # what is said of it stays
    team.merge("slope")
    team.merge("rate")
    applied = team.apply()
    assert applied.returncode == 0, applied.stderr
    team.wait()

    # Nothing starts that no plan has shown.
    team.change("runs/train.yml", "rate: 0.01", "rate: 0.02")
    team.author.git("push", "-q", "origin", "main")
    refused = team.apply()
    assert refused.returncode == 3, refused.stderr
    assert "not_reviewed" in refused.stderr
    assert "args.rate" in refused.stderr
    assert team.attempts() == {"train": 2}
    for clone in (team.planner, team.applier):
        assert clone.git("status", "--porcelain") == ""


LAUNCH = "sgpu_decl.backends.databricks.launching.databricks_launcher,DatabricksLauncher,launch"


def merged(team: Team) -> None:
    """One pull request that launches `train` and makes `nightly`, planned and merged."""
    team.branch("steps", "variables.yml", "default: 20", "default: 40")
    assert "`run.train`" in team.plan("steps", 1)
    team.merge("steps")
    team.applier.git("fetch", "-q", "origin")
    team.applier.git("checkout", "-q", "--detach", "origin/main")


def stepping(clone: Clone, folder: Path, step: str, by: signal.Signals) -> Clone:
    """The clone on a machine whose `sgpu` gets a signal at a step."""
    words = shlex.join(dying(f"{LAUNCH},{step}", by=by))
    program = shell_program(folder / by.name / "sgpu", f'exec {words} "$@"')
    path = f"{program.parent}:{clone.environ['PATH']}"
    return Clone(clone.folder, {**clone.environ, "PATH": path})


@pytest.mark.expensive
@pytest.mark.usefixtures("place")
def test_of_two_applies_at_once_one_wins_and_the_other_names_it(team: Team, tmp_path: Path) -> None:
    merged(team)
    second = Clone(team.author.folder, team.applier.environ)
    with (
        stepping(team.applier, tmp_path, "before,1", signal.SIGSTOP).start() as winner,
        ExitStack() as left,
    ):
        left.callback(os.killpg, winner.pid, signal.SIGCONT)
        until(lambda: _is_stopped(winner.pid))
        with second.start() as other:
            assert other.stderr is not None
            line = next(one for one in other.stderr if "is locked by" in one)
            named = re.search(r"`apply` of \S+ on \S+ \(process (\d+),", line)
            assert named is not None, line
            assert os.getpgid(int(named[1])) == winner.pid
            left.close()
            _, told = other.communicate(timeout=PATIENCE)
            assert other.returncode == 0, told
        _, told = winner.communicate(timeout=PATIENCE)
        assert winner.returncode == 0, told
    assert team.attempts() == {"train": 1}
    team.wait()


@pytest.mark.expensive
@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("step", ["before,1", "after,1"])
def test_after_the_applier_is_killed_the_next_one_converges(
    team: Team, tmp_path: Path, step: str
) -> None:
    merged(team)
    with stepping(team.applier, tmp_path, step, signal.SIGKILL).start() as killed:
        killed.communicate(timeout=PATIENCE)
        assert killed.returncode == 128 + signal.SIGKILL
    again = team.apply()
    assert again.returncode == 0, again.stderr
    team.wait()
    assert team.attempts() == {"train": 1}
    calm = team.apply()
    assert calm.returncode == 0, calm.stderr
    assert "No changes" in calm.stdout


def _is_stopped(group: int) -> bool:
    """Whether a process of a group waits for SIGCONT."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, found, *_ = stat.read_text().rpartition(")")[2].split()
            if int(found) == group and state == "T":
                return True
    return False


def _client() -> Any:
    from databricks.sdk import WorkspaceClient

    return WorkspaceClient()


def _jobs() -> list[int]:
    return [job.job_id for job in _client().jobs.list()]


def _reschedule(cron: str) -> None:
    from databricks.sdk.service.jobs import CronSchedule, JobSettings

    (job,) = _jobs()
    schedule = CronSchedule(quartz_cron_expression=cron, timezone_id="Etc/UTC")
    _client().jobs.update(job, new_settings=JobSettings(schedule=schedule))


def test_a_branch_that_lacks_commits_of_main_is_not_planned(team: Team) -> None:
    team.branch("steps", "variables.yml", "default: 20", "default: 40")
    team.change("runs/train.yml", "rate: 0.05", "rate: 0.01")
    team.author.git("push", "-q", "origin", "main")
    team.planner.git("fetch", "-q", "origin")
    team.planner.git("checkout", "-q", "--detach", "origin/steps")
    done = team.planner.run("bash", "ci/plan.sh", BASE="main", LINK="https://example.com")
    assert done.returncode == 1
    assert "merge `main` into it" in done.stderr
    on_github = {"GITHUB_ACTIONS": "true", "FORK": "true", "BASE": "main"}
    fork = team.planner.run("bash", "ci/plan.sh", **on_github)
    assert fork.returncode == 0, fork.stderr
    assert "nothing is planned" in fork.stdout


def test_a_job_with_an_older_commit_applies_nothing(team: Team) -> None:
    team.applier.git("checkout", "-q", "--detach", "origin/main")
    team.change("runs/train.yml", "rate: 0.05", "rate: 0.01")
    team.author.git("push", "-q", "origin", "main")
    done = team.applier.run("bash", "ci/apply.sh", BRANCH="main")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "there is a newer commit on `main`: its job applies both\n"


def test_a_run_that_each_apply_launches_is_no_drift(team: Team) -> None:
    def night() -> list[str]:
        done = team.author.run("bash", "ci/drift.sh", TARGET="dev", **team.host.github())
        assert done.returncode == 0, done.stderr
        return [one["state"] for one in team.host.issues()]

    folder = team.author.folder
    root = "project: {name: vision}\ninclude: [runs/*.yml]\ntargets: {dev: {}}\n"
    (folder / "sgpu.yml").write_text(root)
    run = "{gpus: 1, type: CPU, command: 'true', until: %s}\n"
    (folder / "runs/train.yml").write_text("runs:\n  train: " + run % "always")
    assert night() == []
    (folder / "runs/more.yml").write_text("runs:\n  more: " + run % "success")
    assert night() == ["open"]
    (folder / "runs/more.yml").unlink()
    assert night() == ["closed"]
