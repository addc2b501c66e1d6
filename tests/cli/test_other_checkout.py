"""Two checkouts of one user on one machine that share a state: each reads and stops what the other
one has launched, and deletes none of its files."""

import json
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sgpu_decl.agent.system.processes import carriers
from sgpu_decl.storing.stores import FOLDER
from tests.cli.conftest import Shell
from tests.cli.test_shared_state import actions, where
from tests.shared_places import new_place
from tests.support import PATIENCE, until

PROJECT = """project: {{name: p}}
state: {{kind: folder, {where}}}
defaults:
  run: {{gpus: 1, type: CPU, grace: 500ms, mlflow: {{enabled: false}}}}
runs:
  hello:
    entrypoint: say.py:main
    env: {{secrets: {{TOKEN: "file:token"}}}}
    code: {{exclude: [token]}}
"""
SAY = """import os, time

def main():
    print("the token is", os.environ["TOKEN"], flush=True)
    with open(os.environ["SGPU_OUTPUT_DIR"] + "/left.txt", "w") as file:
        file.write("left")
    with open("{folder}/launches", "a") as file:
        file.write("launched\\n")
    while not os.path.exists("{folder}/go"):
        time.sleep(0.02)
    print("ended")
    return 42
"""
AGAIN = ("plan", "--rerun", "run.hello", "--on-active")
ALL = ("gc", "-y", "--all", "--keep-last", "0", "-o", "json")


@dataclass(frozen=True)
class Checkouts:
    """Two checkouts in `folder`, whose run ends once it has a file `go`."""

    one: Shell
    two: Shell
    folder: Path

    @property
    def state_dir(self) -> Path:
        """The folder of the first checkout for its state."""
        return self.one.folder / ".sgpu" / "default"

    @property
    def attempt(self) -> Path:
        """The folder of what the first checkout launches."""
        return self.state_dir / "runs" / "hello" / "1"

    @property
    def launches(self) -> int:
        file = self.folder / "launches"
        return file.read_text().count("launched\n") if file.exists() else 0

    def begin(self, *options: str) -> None:
        """Launch the run from the first checkout."""
        self.one.done("apply", "-y", "--detach", *options)
        until(lambda: self.launches)

    def end(self) -> None:
        """Let every run come to its end."""
        (self.folder / "go").touch()


@pytest.fixture
def checkouts(request: pytest.FixtureRequest, sgpu: Shell, tmp_path: Path) -> Iterator[Checkouts]:
    place = new_place(request, FOLDER, tmp_path)
    made = []
    for name in ("one", "two"):
        clone = replace(sgpu, folder=tmp_path / name)
        clone.write("sgpu.yml", PROJECT.format(where=where(place)))
        clone.write("say.py", SAY.format(folder=tmp_path))
        clone.write("token", f"the-word-of-{name}")
        made.append(clone)
    found = Checkouts(made[0], made[1], tmp_path)
    try:
        yield found
    finally:
        found.end()
        for clone in made:
            clone.here("wait", "*")


def test_a_run_of_the_other_checkout_is_followed_to_its_end(checkouts: Checkouts) -> None:
    one, two = checkouts.one, checkouts.two
    checkouts.begin()
    assert actions(two) == {"run.hello": "adopt"}
    (status,) = two.data("status")["runs"]
    assert (status["state"], status.get("unavailable")) == ("running", None)
    assert "say.py" in two.here("stacks", "hello").out
    with two.start("logs", "-f", "hello") as follower:
        assert follower.stdout is not None
        first = follower.stdout.readline()
        (watched,) = two.data("top", "hello")["runs"]
        checkouts.end()
        rest, err = follower.communicate(timeout=PATIENCE)
    assert (follower.returncode, rest) == (0, "ended\n"), err
    assert first.startswith("the token is ")
    assert watched["activity"]["ranks"][0]["last_line"] + "\n" == first
    assert "the-word-of-one" not in first + two.here("show", "hello").out
    assert two.data("results", "hello")["results"] == [{"rank": 0, "value": 42}]
    assert two.here("fetch", "hello").out == f"{checkouts.attempt}/output\n"
    assert actions(one) == actions(two) == {"run.hello": "no_op"}
    assert checkouts.launches == 1


@pytest.mark.parametrize(
    "words",
    [("cancel", "hello"), pytest.param(("destroy", "-y", "hello"), marks=pytest.mark.expensive)],
)
def test_a_run_of_the_other_checkout_is_stopped(
    checkouts: Checkouts, words: tuple[str, ...]
) -> None:
    checkouts.begin()
    checkouts.two.done(*words)
    outcome = checkouts.attempt / "outcome.json"
    until(outcome.exists)
    assert json.loads(outcome.read_text())["state"] == "cancelled"
    checkouts.two.done("gc", "-y")  # it records the end
    assert (checkouts.attempt / "code" / "say.py").exists()


@pytest.mark.expensive
@pytest.mark.parametrize("how", ["replace", "queue"])
def test_a_launch_waits_for_a_run_of_the_other_checkout(checkouts: Checkouts, how: str) -> None:
    one, two = checkouts.one, checkouts.two
    checkouts.begin()
    two.done(*AGAIN, how, "--out", "saved")
    two.done("apply", "saved", "--detach")
    spec = json.loads((two.folder / ".sgpu/default/runs/hello/2/spec.json").read_text())
    assert spec["wait_for"] == [str(checkouts.attempt)]
    if how == "replace":
        until(lambda: checkouts.launches == 2)
        assert "cancelled" in (checkouts.attempt / "outcome.json").read_text()
    checkouts.end()
    one.done("wait", "hello")
    assert checkouts.launches == 2
    assert actions(one) == actions(two) == {"run.hello": "no_op"}


def test_no_checkout_deletes_files_of_the_other_one(checkouts: Checkouts) -> None:
    one, two = checkouts.one, checkouts.two
    checkouts.end()
    one.done("apply", "-y")
    before = {path for path in checkouts.attempt.rglob("*") if path.is_file()}
    assert two.here(*ALL).json["data"]["attempts"] == []
    two.done("destroy", "-y", "hello")
    assert {path for path in checkouts.attempt.rglob("*") if path.is_file()} == before
    assert one.here(*ALL).json["data"]["attempts"] == ["hello#1"]


@pytest.mark.expensive
def test_what_a_lost_run_of_the_other_checkout_left_is_stopped(checkouts: Checkouts) -> None:
    begins = "def main():\n"
    child = (
        "    import subprocess\n    subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    )
    for clone in (checkouts.one, checkouts.two):
        code = (clone.folder / "say.py").read_text()
        clone.write("say.py", code.replace(begins, begins + child))
    checkouts.begin()
    identity = json.loads((checkouts.attempt / "identity.json").read_text())
    for process in ("guardian", "pid"):
        os.kill(identity[process], signal.SIGKILL)
    assert carriers(identity["token"])
    checkouts.two.done("apply", "-y", "--detach")
    assert not carriers(identity["token"])
    until(lambda: checkouts.launches == 2)


@pytest.mark.expensive
@pytest.mark.parametrize("moment", ["launched", "staged"])
def test_a_launch_that_the_other_checkout_began_is_settled_once_it_runs(
    checkouts: Checkouts, moment: str
) -> None:
    one, two = checkouts.one, checkouts.two
    launch = "sgpu_decl.backends.local.local_launcher,LocalLauncher,launch,before,1"
    recorded = "sgpu_decl.storing.journal.writer,JournalWriter,end,before,1"
    one.kill_at(recorded if moment == "launched" else launch, "apply", "-y", "--detach")
    if moment == "launched":
        until(lambda: checkouts.launches)
    assert actions(two) == {"run.hello": "adopt"}
    applied = two.here("apply", "-y", "--detach")
    assert ("it is not known whether that runs" in applied.err) == (moment == "staged"), applied.err
    one.done("apply", "-y", "--detach")
    until(lambda: checkouts.launches)
    assert actions(one) == actions(two) == {"run.hello": "adopt"}
    checkouts.end()
    two.done("wait", "hello")
    assert checkouts.launches == 1


@pytest.mark.expensive
def test_a_launch_reads_what_a_run_of_the_other_checkout_leaves(checkouts: Checkouts) -> None:
    one, two = checkouts.one, checkouts.two
    reads = "  reads: {after: [hello], command: 'cat ${run.hello.output}/left.txt'}\n"
    for clone in (one, two):
        clone.write("sgpu.yml", (clone.folder / "sgpu.yml").read_text() + reads)
    checkouts.begin("--select", "run.hello")
    two.done("apply", "-y", "--detach")
    spec = json.loads((two.folder / ".sgpu/default/runs/reads/1/spec.json").read_text())
    assert spec["after"] == {"hello#1": str(checkouts.attempt)}
    checkouts.end()
    one.done("wait", "reads")
    assert one.here("logs", "reads").out == "left\n"
    again = one.here("apply", "-y", "--rerun", "run.reads")  # now its upstream has ended
    assert again.code == 0, again.err


@contextmanager
def open_to(path: Path, mode: int) -> Iterator[None]:
    before = path.stat().st_mode & 0o7777
    path.chmod(mode)
    yield
    path.chmod(before)


@contextmanager
def of_another_user(path: Path) -> Iterator[None]:
    os.chown(path, 12345, -1)
    yield
    os.chown(path, os.geteuid(), -1)


@contextmanager
def linked(path: Path) -> Iterator[None]:
    aside = path.rename(path.with_name("aside"))
    path.symlink_to(aside)
    yield
    path.unlink()
    aside.rename(path)


@contextmanager
def copied(path: Path) -> Iterator[None]:
    aside = path.rename(path.with_name("aside"))
    shutil.copytree(aside, path)
    yield
    shutil.rmtree(path)
    aside.rename(path)


@contextmanager
def changed(path: Path, before: str, after: str) -> Iterator[None]:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    yield
    path.write_text(text)


def doubtful(checkouts: Checkouts) -> Mapping[str, AbstractContextManager[None]]:
    """What keeps a checkout from being believed to be the one that a state names."""
    state_dir, attempt = checkouts.state_dir, checkouts.attempt
    site = (state_dir / "site").read_text().split()[0]
    token = json.loads((attempt / "spec.json").read_text())["token"]
    found = {
        "all may write into the state": open_to(state_dir, 0o777),
        "a group may write above it": open_to(state_dir.parent, 0o770),
        "all may replace the checkout": open_to(checkouts.folder, 0o777),
        "a link": linked(state_dir),
        "a link above": linked(state_dir.parent),
        "a copy": copied(state_dir),
        "another site": changed(state_dir / "site", site, "0" * 32),
        "another launch": changed(attempt / "spec.json", token, "another"),
    }
    if os.geteuid() == 0:
        found["of another user"] = of_another_user(state_dir)
    return found


def test_a_checkout_that_others_may_have_made_or_changed_is_not_read(checkouts: Checkouts) -> None:
    checkouts.end()
    checkouts.one.done("apply", "-y")
    for case, made in doubtful(checkouts).items():
        with made:
            refused = checkouts.two.here("logs", "hello", "-o", "json")
            assert refused.code == 1, case
            assert f"in {checkouts.one.folder}" in refused.out, case
        assert checkouts.two.here("logs", "hello").code == 0, case


def test_any_text_may_stand_where_a_state_names_a_checkout(checkouts: Checkouts) -> None:
    one, two = checkouts.one, checkouts.two
    checkouts.end()
    one.done("apply", "-y")
    for project in ("", "no such\0path", "x" * 5000, "/dev/null", "."):
        with two.edited_state() as printed:
            (attempt,) = printed["resources"][0]["attempts"]
            site = json.loads(attempt["reference"])
            attempt["reference"] = json.dumps(site | {"project": project})
        refused = two.here("logs", "hello", "-o", "json")
        assert refused.json["error"]["code"] == "launched_elsewhere"
