"""A launch that replaces attempts on a platform where it cannot wait: they stop without the lock of
the state, and it is launched once, whatever happens meanwhile."""

import json
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from sgpu_decl.api import PlanOptions, Session
from sgpu_decl.applying.apply_result import Applied
from sgpu_decl.errors import Interrupted, SgpuError, StateMoved
from tests.applying.conftest import Open, sgpu
from tests.applying.paper_platform import ENTRY_POINTS, PaperPlatform
from tests.cli.conftest import Shell
from tests.sampling import sampled
from tests.support import PATIENCE, until

ROOT = Path(__file__).parents[2]
REPLACE = PlanOptions(on_active="replace")
WRITER = "sgpu_decl.storing.sqlite.writer,SqliteWriter"
LAUNCHES = "sgpu_decl.backends.remote.launching.remote_launches,RemoteLaunches"
PAPER = "tests.applying.paper_platform,PaperLauncher"
RUNS = "sgpu_decl.runs.project_runs,ProjectRuns"


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PaperPlatform:
    installed = tmp_path / "site/paper-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Name: paper\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(installed.parent)
    monkeypatch.setenv("PYTHONPATH", f"{installed.parent}{os.pathsep}{ROOT}")
    return PaperPlatform(tmp_path / "platform")


def declare(
    folder: Path, platform: PaperPlatform, variable: int, *names: str, alone: Sequence[str] = ()
) -> None:
    """Write a project whose runs come after each other, as they are named, and runs beside them."""
    runs = {
        name: {
            "gpus": 1, "type": "CPU", "command": ["true"], "mlflow": {"enabled": False},
            "env": {"variables": {"A": str(variable)}},
            "backend": {"kind": "paper", "root": str(platform.root)},
            **({"after": [before]} if before else {}),
        }
        for name, before in (*zip(names, ("", *names), strict=False), *((one, "") for one in alone))
    }  # fmt: skip
    (folder / "sgpu.yml").write_text(json.dumps({"project": {"name": "p"}, "runs": runs}))


@pytest.fixture
def project(folder: Path, platform: PaperPlatform) -> Path:
    """A project whose run `train` is active, and has changed since."""
    declare(folder, platform, 1, "train")
    assert sgpu(folder, "apply", "-y", "--detach").code == 0
    declare(folder, platform, 2, "train")
    return folder


@contextmanager
def applying(
    session: Session, options: PlanOptions = REPLACE
) -> Iterator[list[Applied | SgpuError]]:
    """Apply in a thread that is waiting for an attempt to end while the block lasts; the list has
    the result after it."""
    prepared, results = session.plan(options), list[Applied | SgpuError]()
    waits, left = threading.Event(), threading.Event()

    def wait() -> None:
        waits.set()
        left.wait(PATIENCE)

    def run() -> None:
        try:
            results.append(session.apply(prepared, on_wait=wait))
        except SgpuError as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert waits.wait(PATIENCE)
    try:
        yield results
    finally:
        left.set()
        thread.join(PATIENCE)


def applied(results: list[Applied | SgpuError]) -> Applied:
    (result,) = results
    assert isinstance(result, Applied), result
    return result


def leave(open_file: Open) -> None:
    """Replace what is active, and leave while that stops."""

    def interrupted() -> None:
        raise Interrupted("enough")

    with open_file("sgpu.yml") as session:
        prepared = session.plan(REPLACE)
        with pytest.raises(Interrupted):
            session.apply(prepared, on_wait=interrupted)


def attempts(project: Path) -> dict[str, str]:
    """The last attempt of each run, and older ones that are active."""
    runs = json.loads(sgpu(project, "status", "-o", "json").out)["data"]["runs"]
    return {f"{run['name']}#{run['attempt']}": run["state"] for run in runs}


def intents(project: Path) -> object:
    return json.loads(sgpu(project, "state", "pull", "-o", "json").out)["data"]["intents"]


def test_the_lock_is_free_while_a_replaced_attempt_stops(
    project: Path, platform: PaperPlatform, open_file: Open
) -> None:
    with open_file("sgpu.yml") as session, applying(session) as results:
        assert platform.log == ["start train#1", "stop train#1"]
        with open_file("sgpu.yml") as other, other._project.writing("test") as writer:
            assert [intent.attempt for intent in writer.state.intents] == [2]
        platform.note("end", "train#1")

    done = applied(results)
    assert [str(ref) for ref in done.launched] == ["train#2"]
    assert (done.failed, done.unrecorded) == ((), ())
    assert platform.log == ["start train#1", "stop train#1", "end train#1", "start train#2"]
    assert attempts(project) == {"train#2": "running"}
    assert intents(project) == []


def test_other_runs_of_the_plan_do_not_wait_and_those_after_it_do(
    folder: Path, platform: PaperPlatform, open_file: Open
) -> None:
    declare(folder, platform, 1, "train")
    assert sgpu(folder, "apply", "-y", "--detach").code == 0
    declare(folder, platform, 2, "train", "evaluate", alone=("alone",))

    with open_file("sgpu.yml") as session, applying(session) as results:
        assert sorted(platform.log) == ["start alone#1", "start train#1", "stop train#1"]
        platform.note("end", "train#1")

    assert sorted(map(str, applied(results).launched)) == ["alone#1", "evaluate#1", "train#2"]
    assert platform.log[-3:] == ["end train#1", "start train#2", "start evaluate#1"]


STEPS = [
    f"{WRITER},begin,after,1",
    f"{LAUNCHES},mark,after,1",
    f"{PAPER},cancel,before,1",
    f"{PAPER},cancel,after,1",
    f"{RUNS},wait,before,1",
    f"{WRITER},record_attempts,after,1",
    f"{PAPER},launch_joined,before,1",
    f"{PAPER},start,after,1",
    f"{LAUNCHES},mark,after,2",
    f"{WRITER},launched,before,1",
    f"{WRITER},plan_applied,before,1",
]


@pytest.mark.parametrize("step", sampled(STEPS, quick=1))
def test_killed_at_a_step_the_next_apply_launches_it_once(
    project: Path, platform: PaperPlatform, step: str
) -> None:
    saved = sgpu(project, "plan", "--on-active", "replace", "--out", "saved.plan")
    assert saved.code == 0, saved.err
    if STEPS.index(step) > STEPS.index(f"{RUNS},wait,before,1"):
        platform.note("end", "train#1")
    Shell(project, dict(os.environ)).kill_at(step, "apply", "--detach", "saved.plan")
    platform.note("end", "train#1")

    again = sgpu(project, "apply", "-y", "--detach", "--on-active", "replace")

    assert again.code == 0, again.err
    assert platform.log.count("start train#2") == 1
    assert "start train#3" not in platform.log
    assert platform.log.index("end train#1") < platform.log.index("start train#2")
    assert attempts(project) == {"train#2": "running"}
    assert intents(project) == []


def test_the_next_apply_waits_for_the_old_attempt_without_the_lock_too(
    project: Path, platform: PaperPlatform, open_file: Open
) -> None:
    leave(open_file)

    with open_file("sgpu.yml") as session, applying(session) as results:
        with open_file("sgpu.yml") as other, other._project.writing("test"):
            pass
        platform.note("end", "train#1")

    assert [str(ref) for ref in applied(results).adopted] == ["train#2"]
    assert platform.log.count("start train#2") == 1
    assert intents(project) == []


def test_what_another_apply_launched_meanwhile_is_launched_once_and_followed_by_both(
    project: Path, platform: PaperPlatform, open_file: Open
) -> None:
    with open_file("sgpu.yml") as session, applying(session) as results:
        platform.note("end", "train#1")
        other = sgpu(project, "apply", "-y", "--detach", "-o", "json")
        assert json.loads(other.out)["data"]["attempts"] == ["train#2"]

    assert [str(ref) for ref in applied(results).launched] == ["train#2"]
    assert applied(results).failed == ()
    assert platform.log == ["start train#1", "stop train#1", "end train#1", "start train#2"]
    assert intents(project) == []


def test_of_two_applies_that_wait_one_launches(
    project: Path, platform: PaperPlatform, open_file: Open
) -> None:
    with (
        open_file("sgpu.yml") as first,
        open_file("sgpu.yml") as second,
        applying(first) as by_first,
        applying(second) as by_second,
    ):
        platform.note("end", "train#1")

    (later,) = by_second
    assert [str(ref) for ref in applied(by_first).launched] == ["train#2"]
    assert isinstance(later, StateMoved) or [str(ref) for ref in later.adopted] == ["train#2"]
    assert platform.log == ["start train#1", "stop train#1", "end train#1", "start train#2"]
    assert intents(project) == []


def test_a_lock_that_is_not_to_be_had_again_leaves_the_launch_to_the_next_apply(
    project: Path, platform: PaperPlatform, open_file: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgpu_decl.applying.apply_lock._RETAKING", 0.0)
    with open_file("sgpu.yml") as other, ExitStack() as lock, open_file("sgpu.yml") as session:
        with applying(session) as results:
            lock.enter_context(other._project.writing("test"))
            platform.note("end", "train#1")
        ((_, error),) = applied(results).failed
        assert (error.code, error.exit_code) == ("state_locked", 3)

    again = sgpu(project, "apply", "-y", "--detach")

    assert again.code == 0, again.err
    assert platform.log[-1] == "start train#2"


def test_what_somebody_else_may_have_started_stays_open_if_the_platform_refuses_it(
    project: Path, platform: PaperPlatform, open_file: Open
) -> None:
    with open_file("sgpu.yml") as session, applying(session) as results:
        with open_file("sgpu.yml") as other, other._project.writing("test") as writer:
            writer.plan_applied("of somebody else")
        platform.refuse("there is no room")
        platform.note("end", "train#1")

    ((_, error),) = applied(results).failed
    assert error.message == "`train#2` may have been started: there is no room"
    assert intents(project) != []


def test_a_launch_that_somebody_dropped_meanwhile_is_a_stale_plan(
    project: Path, platform: PaperPlatform, open_file: Open
) -> None:
    with open_file("sgpu.yml") as session, applying(session) as results:
        with open_file("sgpu.yml") as other, other._project.writing("test") as writer:
            for intent in writer.state.intents:
                writer.abandon(intent)
        platform.note("end", "train#1")

    ((address, error),) = applied(results).failed
    assert (str(address), error.code, error.exit_code) == ("run.train", "stale_plan", 3)
    assert "another sgpu changed `train`" in error.message
    assert "start train#2" not in platform.log


def test_an_attempt_that_goes_on_keeps_the_next_one_away(
    project: Path, platform: PaperPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgpu_decl.applying.apply._STOPPING", 0.0)
    assert sgpu(project, "plan", "--on-active", "replace", "--out", "saved.plan").code == 0
    refused = sgpu(project, "apply", "--detach", "saved.plan")

    assert refused.code == 1
    assert "`train#1` was asked to stop, and goes on" in refused.err
    assert platform.log == ["start train#1", "stop train#1"]
    assert intents(project) == []


def test_a_refusal_of_the_platform_leaves_nothing_behind(
    project: Path, platform: PaperPlatform, open_file: Open
) -> None:
    with open_file("sgpu.yml") as session, applying(session) as results:
        platform.refuse("there is no room")
        platform.note("end", "train#1")

    ((_, error),) = applied(results).failed
    assert error.message == "there is no room"
    assert intents(project) == []
    assert not list(platform.root.glob("staging/runs/*/train/2-*"))


def test_what_was_interrupted_while_it_waited_is_launched_by_the_next_apply(
    project: Path, platform: PaperPlatform, open_file: Open
) -> None:
    leave(open_file)
    assert platform.log == ["start train#1", "stop train#1"]
    platform.note("end", "train#1")

    again = sgpu(project, "apply", "-y", "--detach")

    assert again.code == 0, again.err
    assert platform.log[-1] == "start train#2"
    assert intents(project) == []


def test_an_apply_of_other_runs_launches_them_before_it_waits_for_what_another_left(
    project: Path, platform: PaperPlatform, open_file: Open
) -> None:
    leave(open_file)
    declare(project, platform, 2, "train", alone=("alone",))

    with open_file("sgpu.yml") as session:
        options = PlanOptions(select=("run.alone",))
        with applying(session, options) as results:
            assert platform.log == ["start train#1", "stop train#1", "start alone#1"]
            platform.note("end", "train#1")

    assert [str(ref) for ref in applied(results).launched] == ["alone#1"]
    assert platform.log[-1] == "start train#2"
    assert intents(project) == []


def test_what_is_destroyed_meanwhile_is_launched_once_and_stopped(
    project: Path, platform: PaperPlatform, open_file: Open
) -> None:
    with open_file("sgpu.yml") as session, applying(session) as results:
        platform.note("end", "train#1")
        with open_file("sgpu.yml") as other:
            other.apply(other.plan(PlanOptions(destroy=True)))

    assert [str(ref) for ref in applied(results).launched] == ["train#2"]
    assert platform.log[-3:] == ["end train#1", "start train#2", "stop train#2"]
    assert intents(project) == []


def test_what_comes_after_it_is_not_launched_if_somebody_else_did_that_meanwhile(
    folder: Path, platform: PaperPlatform, open_file: Open
) -> None:
    declare(folder, platform, 1, "train")
    assert sgpu(folder, "apply", "-y", "--detach").code == 0
    declare(folder, platform, 2, "train", "evaluate")
    with open_file("sgpu.yml") as session, applying(session) as results:
        platform.note("end", "train#1")
        assert sgpu(folder, "apply", "-y", "--detach").code == 0

    done = applied(results)
    assert [str(ref) for ref in done.launched] == ["train#2"]
    ((address, error),) = done.failed
    assert (str(address), error.code) == ("run.evaluate", "stale_plan")
    assert platform.log[2:] == ["end train#1", "start train#2", "start evaluate#1"]


@pytest.mark.expensive
def test_ctrl_c_leaves_while_attempts_that_are_replaced_stop(
    project: Path, platform: PaperPlatform
) -> None:
    assert sgpu(project, "plan", "--on-active", "replace", "--out", "saved.plan").code == 0
    with Shell(project, dict(os.environ)).start("apply", "--detach", "saved.plan") as leaving:
        until(lambda: "stop train#1" in platform.log)
        leaving.send_signal(signal.SIGINT)
        _, said = leaving.communicate(timeout=PATIENCE)

    assert leaving.returncode == 130
    assert "train#1 asked to stop" in said
    assert "interrupted while attempts that are replaced stopped" in said
    assert "internal error" not in said
