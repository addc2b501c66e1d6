"""The scripts of the example `gitops`, from the first push to a drift at night: pull requests are
planned in one clone and applied in another, with a state in PostgreSQL and a workspace that runs
here."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.storing.stores import POSTGRES
from sgpu_decl.testing.contracts.killed_commands import dying
from sgpu_decl.testing.workspace import FederationPolicy
from tests.examples.comment_host import ISSUER, REPOSITORY, CommentHost, comment_host
from tests.shared_places import new_place
from tests.support import PATIENCE, shell_program, until

MARKER = "<!-- sgpu:plan project=vision target=prod -->"
PRINCIPALS = {
    "planner": "0a1b2c3d-1111-4222-8333-000000000001",
    "applier": "0a1b2c3d-1111-4222-8333-000000000002",
}
STATE = "url: 'postgresql://db.example.com/sgpu'"


@dataclass(frozen=True)
class Clone:
    """A clone on a machine of its own, and the variables of the jobs there."""

    folder: Path
    environ: dict[str, str]

    def run(self, *words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            words,
            cwd=self.folder,
            env={**self.environ, **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def start(self) -> "subprocess.Popen[str]":
        """The job that applies, in a process group of its own."""
        return subprocess.Popen(
            ["bash", "ci/apply.sh"],
            cwd=self.folder,
            env={**self.environ, "BRANCH": "main"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    def git(self, *words: str) -> str:
        done = self.run("git", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def sgpu(self, *words: str) -> str:
        done = self.run("sgpu", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout


@dataclass(frozen=True)
class Team:
    """`author` writes branches and merges them; `planner` and `applier` are CI."""

    author: Clone
    planner: Clone
    applier: Clone
    host: CommentHost

    def branch(self, name: str, file: str, before: str, after: str) -> None:
        """A branch of main with one change."""
        self.author.git("switch", "-q", "-c", name, "main")
        self.change(file, before, after)
        self.author.git("push", "-q", "origin", name)
        self.author.git("switch", "-q", "main")

    def change(self, file: str, before: str, after: str) -> None:
        path = self.author.folder / file
        assert before in path.read_text()
        path.write_text(path.read_text().replace(before, after))
        self.author.git("commit", "-q", "-a", "-m", f"{before} becomes {after}")

    def plan(self, name: str, number: int) -> str:
        """What the comment of a pull request says after its job."""
        self.planner.git("fetch", "-q", "origin")
        self.planner.git("checkout", "-q", "--detach", f"origin/{name}")
        link = f"https://github.com/team/vision/pull/{number}"
        variables = {**self.host.github(number), "BASE": "main", "LINK": link}
        done = self.planner.run("bash", "ci/plan.sh", **variables)
        assert done.returncode == 0, done.stderr
        (comment,) = self.host.comments(number)
        assert comment["body"].startswith(MARKER)
        return str(comment["body"])

    def merge(self, name: str) -> None:
        """Squashed: the commit of the branch is not in main."""
        self.author.git("merge", "-q", "--squash", name)
        self.author.git("commit", "-q", "-m", f"{name}, squashed")
        self.author.git("push", "-q", "origin", "main")

    def apply(self) -> "subprocess.CompletedProcess[str]":
        self.applier.git("fetch", "-q", "origin")
        self.applier.git("checkout", "-q", "--detach", "origin/main")
        return self.applier.run("bash", "ci/apply.sh", BRANCH="main")

    def night(self) -> list[tuple[str, str]]:
        """The issues after the job that looks for drift: their texts and states."""
        self.planner.git("fetch", "-q", "origin")
        self.planner.git("checkout", "-q", "--detach", "origin/main")
        done = self.planner.run("bash", "ci/drift.sh", **self.host.github())
        assert done.returncode == 0, done.stderr
        return [(one["body"], one["state"]) for one in self.host.issues()]

    def wait(self) -> None:
        """Until the runs of `prod` have succeeded, as the planner sees it."""
        self.planner.sgpu("wait", "-t", "prod", "run.*")

    def attempts(self) -> dict[str, int]:
        """The number of the newest attempt of each run."""
        answer = json.loads(self.applier.sgpu("status", "-t", "prod", "-o", "json"))
        return {run["name"]: run["attempt"] for run in answer["data"]["runs"]}


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    """A repository with the files of the template, and three clones of it."""
    origin = tmp_path / "origin.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", origin], check=True)
    people = ("author", "planner", "applier")
    clones = {name: Clone(tmp_path / name / "vision", _environ(tmp_path / name)) for name in people}
    author = clones["author"]
    author.folder.mkdir(parents=True)
    author.sgpu("init", "--template", "gitops", "--name", "vision")
    author.git("init", "-q", "-b", "main")
    author.git("add", ".")
    author.git("commit", "-q", "-m", "Begin")
    author.git("remote", "add", "origin", str(origin))
    author.git("push", "-q", "-u", "origin", "main")
    for name in people[1:]:
        subprocess.run(["git", "clone", "-q", origin, clones[name].folder], check=True)
    with comment_host() as host:
        yield Team(host=host, **clones)


@pytest.fixture
def place(
    request: pytest.FixtureRequest,
    workspace: Any,
    team: Team,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A database and a workspace for `prod`, where the planner and the applier are two service
    principals with the logins and the rights that the README gives to them."""
    import psycopg

    place = new_place(request, POSTGRES, tmp_path)
    url = place.address.replace("owner@", "")  # who connects is a variable of the job
    team.change("targets/staging.yml", "gpus: 8", "gpus: 1")  # this machine runs them
    team.change("sgpu.yml", STATE, f'url: "{url}", schema: {place.schema}')
    account, login = "account-7", {}
    for name, environment in (("planner", "plan"), ("applier", "prod")):
        workspace.federation[PRINCIPALS[name]] = FederationPolicy(
            issuer=ISSUER,
            subject=f"repo:{REPOSITORY}:environment:{environment}",
            audiences=(account,),
            workspace="prod",
        )
        login[name] = {
            "DATABRICKS_AUTH_TYPE": "github-oidc",
            "DATABRICKS_HOST": workspace.url,
            "DATABRICKS_TOKEN_AUDIENCE": account,
            "DATABRICKS_CLIENT_ID": PRINCIPALS[name],
            **team.host.identity(environment),
        }
    monkeypatch.delenv("DATABRICKS_TOKEN")
    for variable, value in login["applier"].items():
        monkeypatch.setenv(variable, value)
    team.change("variables.yml", "00000000-0000-0000-0000-000000000000", PRINCIPALS["planner"])
    team.author.git("push", "-q", "origin", "main")
    roles = {name: f"{place.schema}_{name}" for name in ("plan", "apply")}
    grants = (team.author.folder / "grants.sql").read_text().replace("sgpu", str(place.schema))
    with psycopg.connect(place.address, autocommit=True) as owner:
        for role in roles.values():
            owner.execute(f"CREATE ROLE {role} LOGIN".encode())
        owner.execute(grants.encode())
    team.planner.environ.update({**login["planner"], "PGUSER": roles["plan"]})
    team.applier.environ.update({**login["applier"], "PGUSER": roles["apply"]})


def _environ(home: Path) -> dict[str, str]:
    home.mkdir()
    config = home / ".gitconfig"
    config.write_text("[user]\nname = a\nemail = a@example.com\n[commit]\ngpgsign = false\n")
    homes = {f"XDG_{name}_HOME": str(home / name) for name in ("DATA", "CACHE", "STATE", "CONFIG")}
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "NO_COLOR": "1",
        **homes,
    }


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


def _reschedule(cron: str) -> None:
    from databricks.sdk import WorkspaceClient
    from databricks.sdk.service.jobs import CronSchedule, JobSettings

    client = WorkspaceClient()
    (job,) = client.jobs.list()
    assert job.job_id is not None
    schedule = CronSchedule(quartz_cron_expression=cron, timezone_id="Etc/UTC")
    client.jobs.update(job.job_id, new_settings=JobSettings(schedule=schedule))


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
