"""A team that uses the example `gitops`: clones of one repository, the jobs of CI, a database and a
workspace where the planner and the applier are two service principals."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.storing.stores import POSTGRES
from sgpu_decl.testing.workspace import FederationPolicy
from tests.examples.comment_host import ISSUER, REPOSITORY, CommentHost, comment_host
from tests.shared_places import new_place

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

    def heal(self) -> "subprocess.CompletedProcess[str]":
        """The job that the label `sgpu-heal` starts: it applies, and looks for drift again."""
        self.applier.git("fetch", "-q", "origin")
        self.applier.git("checkout", "-q", "--detach", "origin/main")
        done = self.applier.run("bash", "ci/apply.sh", BRANCH="main", HEAL="true")
        if done.returncode == 0:
            self.looked(self.applier)
        return done

    def night(self) -> list[tuple[str, str]]:
        """The issues after the job that looks for drift: their texts and states."""
        self.planner.git("fetch", "-q", "origin")
        self.planner.git("checkout", "-q", "--detach", "origin/main")
        return self.looked(self.planner)

    def looked(self, clone: Clone) -> list[tuple[str, str]]:
        """The issues after a clone looked for drift."""
        done = clone.run("bash", "ci/drift.sh", **self.host.github())
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
