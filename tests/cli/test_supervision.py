"""What a user meets of supervisors that hang, are gone, or lost the folder under their ranks."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sgpu_decl.agent.system import host_locks
from sgpu_decl.agent.system.processes import carriers, send_signal, start_time
from tests.cli.conftest import Shell
from tests.support import PATIENCE, until

RUN = """\
name: train
gpus: 2
type: CPU
entrypoint: train.py
grace: 1s
mlflow: {enabled: false}
"""
BLOCK = """\
import os, signal
project = os.environ["SGPU_PROJECT_DIR"]
with open(project + "/launches.log", "a") as file:
    file.write(os.environ["RANK"])
open(os.environ["SGPU_OUTPUT_DIR"] + "/up" + os.environ["RANK"], "w").close()
signal.pause()
"""
DAEMON = """\
import os, signal
if os.environ["RANK"] == "0" and os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open(os.environ["SGPU_PROJECT_DIR"] + "/daemon", "w").close()
    while True:
        signal.pause()
"""


class Active:
    """A run that is up, with all its processes."""

    def __init__(self, shell: Shell, source: str = BLOCK) -> None:
        self.shell = shell
        shell.write("run.yaml", RUN)
        shell.write("train.py", source)
        assert shell("apply", "-y", "--detach").code == 0
        self.folder = shell.folder / ".sgpu/default/runs/train/1"
        until(lambda: all((self.folder / f"output/up{rank}").exists() for rank in (0, 1)))
        self.identity = json.loads((self.folder / "identity.json").read_text())
        self.agents = {
            pid: start_time(pid) for pid in (self.identity["pid"], self.identity["guardian"])
        }

    def status(self) -> dict[str, object]:
        (run,) = self.shell.data("status")["runs"]
        return dict(run)

    def ranks(self) -> list[int]:
        return [pid for pid, _ in carriers(self.identity["token"])]

    def gone(self) -> bool:
        return not self.ranks() and not any(
            start_time(pid) == at for pid, at in self.agents.items()
        )

    def end(self) -> None:
        for pid, started in [*self.agents.items(), *carriers(self.identity["token"])]:
            send_signal(pid, started, signal.SIGKILL)


@pytest.fixture
def start(sgpu: Shell) -> Iterator[Callable[..., Active]]:
    made: list[Active] = []

    def active(source: str = BLOCK) -> Active:
        made.append(Active(sgpu, source))
        return made[-1]

    yield active
    for one in made:
        one.end()


def remove(folder: Path) -> None:
    """As `git clean -fdx` does, while ranks may be writing into it."""
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("what", [".sgpu/default/runs/train/1", ".sgpu"])
def test_ranks_end_when_their_folder_is_deleted(
    sgpu: Shell, start: Callable[..., Active], what: str
) -> None:
    run = start()
    remove(sgpu.folder / what)
    until(run.gone)
    sgpu.ran("apply", "-y", "--detach")
    until(lambda: sorted((sgpu.folder / "launches.log").read_text()) == ["0", "0", "1", "1"])


@pytest.mark.expensive
@pytest.mark.parametrize("what", [".sgpu/default/runs/train/1", ".sgpu"])
def test_nothing_is_launched_beside_ranks_whose_folder_was_deleted(
    sgpu: Shell, start: Callable[..., Active], what: str
) -> None:
    """They take their grace; here for ever, as their supervisor is stopped."""
    run = start()
    os.kill(run.identity["pid"], signal.SIGSTOP)
    remove(sgpu.folder / what)

    seen = run.status()
    assert (seen["attempt"], seen["state"]) == (1, "stopping")
    assert "its folder was deleted" in sgpu.here("status").out
    planned = sgpu.data("plan")
    assert [item["action"] for item in planned["changes"]] == ["adopt"] or planned["checks"]
    sgpu.write("train.py", BLOCK + "print('changed')\n")
    refused = sgpu("apply", "-y", "--detach")
    assert refused.code == 1
    assert "active" in refused.err
    assert sorted((sgpu.folder / "launches.log").read_text()) == ["0", "1"]

    assert "does not answer" in sgpu.ran("cancel", "train", "--force-after", "0.2s").err
    assert run.gone()
    sgpu.ran("apply", "-y", "--detach")


def test_a_folder_that_is_deleted_while_it_is_followed_ends_the_following(
    sgpu: Shell, start: Callable[..., Active]
) -> None:
    run = start()
    with sgpu.start("logs", "-f", "train") as following:
        remove(run.folder)
        following.communicate(timeout=PATIENCE)
    until(run.gone)


@pytest.mark.expensive
@pytest.mark.parametrize(
    "both",
    [False, pytest.param(True, marks=pytest.mark.expensive)],
    ids=["supervisor", "guardian too"],
)
def test_a_supervisor_that_does_not_answer_is_ended_by_cancel(
    sgpu: Shell, start: Callable[..., Active], both: bool
) -> None:
    run = start()
    for pid in run.agents if both else [run.identity["pid"]]:
        os.kill(pid, signal.SIGSTOP)

    assert "does not answer" in sgpu.ran("cancel", "train", "--force-after", "0.2s").err
    seen = run.status()
    assert (seen["state"], seen["exit_code"]) == ("cancelled", 130)
    until(run.gone)
    plan = sgpu.data("plan")
    assert [(item["action"], item["reason"]) for item in plan["changes"]] == [
        ("no_op", "cancelled_by_user")
    ]


def test_status_says_since_when_a_supervisor_does_not_respond(
    sgpu: Shell, start: Callable[..., Active], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start()
    assert "not_responding_since" not in run.status()
    os.kill(run.identity["pid"], signal.SIGSTOP)
    later = time.monotonic_ns() + 3_600_000_000_000
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic_ns", lambda: later)
        assert "not_responding_since" in run.status()
        assert "not responding since" in sgpu.here("status").out
        assert "of train#1 has been silent since" in sgpu.here("doctor").out
    os.kill(run.identity["pid"], signal.SIGCONT)
    assert sgpu("cancel", "train").code == 0
    assert run.status()["state"] == "cancelled"


def lose(run: Active) -> None:
    """Kill supervisor and guardian, so that a daemon beside the ranks is left."""
    until((run.shell.folder / "daemon").exists)
    supervisor, guardian = run.identity["pid"], run.identity["guardian"]
    os.kill(guardian, signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)
    os.kill(guardian, signal.SIGKILL)
    until(lambda: len(run.ranks()) == 1 and not any(map(start_time, run.agents)))


def test_cancel_sweeps_what_a_lost_run_left_though_its_folder_is_gone(
    sgpu: Shell, start: Callable[..., Active]
) -> None:
    run = start(DAEMON + BLOCK)
    lose(run)
    remove(run.folder)
    assert "1 process that it left stopped" in sgpu("cancel", "train").err
    assert run.gone()


def test_cancel_sweeps_what_a_lost_run_left(sgpu: Shell, start: Callable[..., Active]) -> None:
    run = start(DAEMON + BLOCK)
    lose(run)

    seen = run.status()
    assert (seen["state"], seen["processes_left"]) == ("lost", run.ranks())
    assert f"1 process is left ({run.ranks()[0]})" in sgpu.here("status").out
    found = sgpu.here("doctor").out
    assert "train#1 is recorded as active, and its supervisor is gone" in found
    assert f"left processes: {run.ranks()[0]}" in found

    assert "1 process that it left stopped" in sgpu.ran("cancel", "train").err
    assert run.gone()
    assert "processes_left" not in run.status()


@pytest.mark.parametrize("runtime", [True, False], ids=["another place", "no other place"])
def test_a_folder_of_locks_that_somebody_took_is_passed_over_and_said(
    sgpu: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: bool
) -> None:
    (tmp_path / f"sgpu-{os.getuid()}").mkdir()
    (tmp_path / f"sgpu-{os.getuid()}").chmod(0o777)
    (tmp_path / "runtime").mkdir(mode=0o700)
    monkeypatch.setattr(host_locks, "_SHARED", str(tmp_path))
    monkeypatch.setattr(host_locks, "_RUNTIME", str(tmp_path / "none"))
    sgpu.environ["XDG_RUNTIME_DIR"] = str(tmp_path / "runtime") if runtime else ""
    sgpu.write("run.yaml", RUN)
    sgpu.write("train.py", "")

    applied = sgpu.here("apply", "-y", "--detach")

    if runtime:
        assert applied.code == 0, applied.err
        assert f"the locks of ports and GPUs lie in `{tmp_path}/runtime/sgpu`" in applied.out
        assert list((tmp_path / "runtime/sgpu/ports").iterdir())
        sgpu.done("wait", "train")
    else:
        assert applied.code == 1
        assert "set XDG_RUNTIME_DIR to a folder that is yours alone" in applied.err
