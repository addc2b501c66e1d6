"""A shared store that goes down in the middle of an apply, and comes back."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sgpu_decl.storing.stores import FOLDER, POSTGRES
from tests.cli.conftest import Shell
from tests.mounts import bound, fill, mount, small_disk
from tests.postgres_server import binaries, new_server
from tests.shared_places import new_place
from tests.support import until

# Says that some launches were made, and goes on once the store is down. It tries for a second where
# others try for a minute.
_APPLY = """\
import sys, time
from pathlib import Path
from sgpu_decl.backends.local.local_launcher import LocalLauncher
from sgpu_decl.storing.journal import writer
writer.PATIENCE = 1.0
nth, folder = int(sys.argv[1]), Path(sys.argv[2])
launch, calls = LocalLauncher.launch, 0
def counted(self, launching):
    global calls
    reference = launch(self, launching)
    calls += 1
    if calls == nth:
        (folder / "reached").touch()
        while not (folder / "down").exists():
            time.sleep(0.01)
    return reference
LocalLauncher.launch = counted
from sgpu_decl.cli.main import main
sys.exit(main(sys.argv[3:]))
"""


@dataclass
class Team:
    """Two machines with a clone of a project each, and the store that they share. Each run writes
    its name into `launches`."""

    one: Shell
    two: Shell
    folder: Path
    names: list[str]
    stop: Callable[[], None]
    start: Callable[[], None]

    def interrupted_apply(self, nth: int) -> "tuple[int, dict[str, object]]":
        """An apply of the clone `one`, during whose launch of that number the store goes down: its
        exit code and its answer. The store is up again after it."""
        words = ("apply", "-y", "--detach", "--parallelism", "1", "-o", "json")
        with subprocess.Popen(
            [sys.executable, "-c", _APPLY, str(nth), str(self.folder), *words],
            cwd=self.one.folder,
            env=self.one.environ,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            until((self.folder / "reached").exists)
            self.stop()
            (self.folder / "down").touch()
            out, _ = process.communicate()
        self.start()
        return process.returncode, json.loads(out)["error"]

    def unpushed(self) -> list[Path]:
        return list(self.one.folder.glob(".sgpu/default/unpushed/*.json"))

    def apply(self, clone: Shell) -> None:
        clone.done("apply", "-y", "--detach")

    def require_one_launch_each(self) -> None:
        for clone in (self.one, self.two):
            clone.here("wait", "*")
        self.apply(self.one)  # records the ends
        assert sorted((self.folder / "launches").read_text().split()) == self.names
        for clone in (self.one, self.two):
            clone.done("plan", "--detailed-exitcode")
            assert json.loads(clone.here("state", "pull").out)["intents"] == []


@pytest.fixture(
    params=[
        ("moved", 6),
        *(pytest.param((how, 20), marks=pytest.mark.expensive) for how in ("moved", "postgres")),
        pytest.param(("read_only", 20), marks=pytest.mark.expensive),
    ],
    ids=lambda value: f"{value[0]}-{value[1]}",
)
def team(request: pytest.FixtureRequest, sgpu: Shell, tmp_path: Path) -> Iterator[Team]:
    how, count = request.param
    with ExitStack() as running:
        if how == "postgres":
            programs = binaries()
            if programs is None:
                pytest.skip("there is no PostgreSQL")
            server = running.enter_context(new_server(programs))
            stop, start = server.stop, server.start
            store = f'kind: {POSTGRES}, url: "{server.url}"'
        else:
            shared = Path(new_place(request, FOLDER, tmp_path).address)
            store = f"kind: {FOLDER}, path: {shared}"
            stop, start = _moved(shared) if how == "moved" else _read_only(shared, running)
        names = [f"r{number:02}" for number in range(count)]
        lines = [
            f"  {name}: {{gpus: 1, type: CPU, mlflow: {{enabled: false}}, "
            f"command: [sh, -c, 'echo {name} >> {tmp_path}/launches']}}\n"
            for name in names
        ]
        text = f"project: {{name: p}}\nstate: {{{store}}}\nruns:\n{''.join(lines)}"
        clones = []
        for name, host in ("one", None), ("two", "another"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "sgpu.yml").write_text(text)
            clones.append(replace(sgpu, folder=tmp_path / name, host=host))
        yield Team(clones[0], clones[1], tmp_path, names, stop, start)


def _moved(shared: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    away = shared.with_name("away")

    def stop() -> None:
        shared.rename(away)

    def start() -> None:
        away.rename(shared)

    return stop, start


def _read_only(shared: Path, running: ExitStack) -> tuple[Callable[[], None], Callable[[], None]]:
    running.enter_context(bound(shared))

    def stop() -> None:
        mount("-o", "remount,bind,ro", str(shared))

    def start() -> None:
        mount("-o", "remount,bind,rw", str(shared))

    return stop, start


@pytest.mark.expensive
def test_what_was_launched_is_kept_and_the_next_apply_of_this_machine_records_it(
    team: Team,
) -> None:
    code, error = team.interrupted_apply(3)
    assert (code, error["code"]) == (1, "state_unreachable")
    assert "Launched, and not recorded: " in str(error["message"])
    assert "`r02#1`" in str(error["message"])
    (kept,) = team.unpushed()
    assert str(kept) in str(error["hint"])
    assert "r02" in kept.read_text()
    team.apply(team.one)
    assert team.unpushed() == []
    team.require_one_launch_each()


def test_another_machine_that_comes_first_launches_nothing_twice(team: Team) -> None:
    code, _ = team.interrupted_apply(3)
    assert code == 1
    assert team.unpushed()
    team.apply(team.two)
    team.apply(team.one)
    assert team.unpushed() == []
    team.require_one_launch_each()


@pytest.mark.expensive
@pytest.mark.parametrize("team", [("moved", 6)], indirect=True)
@pytest.mark.parametrize("how", ["a file in its place", "a full disk"])
def test_what_cannot_be_kept_is_said_and_the_next_apply_asks_the_backend(
    team: Team, how: str
) -> None:
    folder = team.one.folder / ".sgpu" / "default" / "unpushed"
    with ExitStack() as mounted:
        if how == "a full disk":
            folder.mkdir(parents=True)
            mounted.enter_context(small_disk(folder, 64 * 1024))
            fill(folder / "filler")
        else:
            folder.parent.mkdir(parents=True)
            folder.touch()
        code, error = team.interrupted_apply(3)
        assert (code, error["code"]) == (1, "state_unreachable")
        assert "it could not be kept in" in str(error["hint"])
        assert "asks the backends" in str(error["hint"])
        assert team.unpushed() == []
        team.apply(team.one)
        team.require_one_launch_each()


@pytest.mark.parametrize("team", [("moved", 6)], indirect=True)
def test_a_full_disk_of_this_machine_stops_applies_and_loses_nothing(team: Team) -> None:
    """Its copy of the state cannot be written then. Plans go on without."""
    target = team.one.folder / ".sgpu" / "default"
    target.mkdir(parents=True)
    with small_disk(target, 2_000_000):
        team.one.done("plan")
        fill(target / "filler")
        team.one.done("plan")
        assert team.one.refusal("apply", "-y", "--detach") == (1, "state_unreachable")
        assert not (team.folder / "launches").exists()
        (target / "filler").unlink()
        team.apply(team.one)
        team.require_one_launch_each()
