"""Several sgpu at work on one state: they wait for its lock, and plan again if they lost a race."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from sgpu_decl.content.store.references import References
from sgpu_decl.storing.sqlite.store import SqliteStore
from sgpu_decl.storing.state_store import StateWriter
from sgpu_decl.testing.contracts.killed_commands import dying
from tests.cli.conftest import Shell
from tests.support import PATIENCE

RUN = "name: {name}\ngpus: 1\ntype: CPU\ncommand: [echo, {said}]\nmlflow: {{enabled: false}}\n"


def declare(sgpu: Shell, name: str, said: str = "hello") -> str:
    """Write a run file; the name of it."""
    sgpu.write(f"{name}.yaml", RUN.format(name=name, said=said))
    return f"{name}.yaml"


@contextmanager
def locked(sgpu: Shell, lineage: str = "another") -> Iterator[StateWriter]:
    """The lock of the state, held by this process."""
    store = SqliteStore(sgpu.folder / ".sgpu/default/state.db")
    with store.lock("gc", lineage=lineage) as writer:
        yield writer


def waiting(process: subprocess.Popen[str], holder: str = "gc") -> str:
    """What a process says until it waits for the lock."""
    said = ""
    for line in process.stderr:
        said += line
        if f"is locked by `{holder}`" in line:
            return said
    raise AssertionError(said)


@pytest.mark.expensive
@pytest.mark.parametrize("words", [("mv", "hello", "other"), ("rm", "hello")])
def test_a_run_that_is_launched_while_an_edit_waits_for_the_lock_is_left_alone(
    sgpu: Shell, words: tuple[str, ...]
) -> None:
    file = declare(sgpu, "hello")
    assert sgpu("apply", file, "-y").code == 0
    sgpu.write(file, RUN.format(name="hello", said="x").replace("[echo, x]", "[sleep, '600']"))
    step = "sgpu_decl.storing.sqlite.writer,SqliteWriter,begin,after,1"
    stopped = dying(step, "apply", file, "-y", "--detach", by=signal.SIGSTOP)
    with subprocess.Popen(
        stopped, cwd=sgpu.folder, env=sgpu.environ, stdout=subprocess.PIPE
    ) as apply:
        assert os.WIFSTOPPED(os.waitpid(apply.pid, os.WUNTRACED)[1])
        with sgpu.start("state", *words) as edit:
            waiting(edit, "apply")
            apply.send_signal(signal.SIGCONT)
            apply.communicate(timeout=PATIENCE)
            _, said = edit.communicate(timeout=PATIENCE)

    assert edit.returncode == 1, said
    assert "`hello#2` is active" in said
    (run,) = sgpu("status", "-o", "json").json["data"]["runs"]
    assert (run["name"], run["attempt"], run["state"]) == ("hello", 2, "running")


@pytest.mark.expensive
def test_three_applies_at_once_wait_for_the_lock_and_all_succeed(sgpu: Shell) -> None:
    files = [declare(sgpu, name) for name in ("one", "two", "three")]
    with ExitStack() as opened:
        with locked(sgpu) as writer:
            applies = [opened.enter_context(sgpu.start("apply", file, "-y")) for file in files]
            said = [waiting(apply) for apply in applies]
            writer.plan_applied("another")  # so that even the first of them lost the race
        for before, process in zip(said, applies, strict=True):
            out, after = process.communicate(timeout=PATIENCE)
            assert (process.returncode, out.splitlines().count("hello")) == (0, 1), before + after
            assert "waiting up to 60 s" in before
            assert "planning again" in after
    runs = sgpu("status", "-o", "json").json["data"]["runs"]
    assert sorted((run["name"], run["attempt"], run["state"]) for run in runs) == [
        ("one", 1, "succeeded"),
        ("three", 1, "succeeded"),
        ("two", 1, "succeeded"),
    ]


def test_the_same_run_applied_twice_at_once_is_launched_once(sgpu: Shell) -> None:
    file = declare(sgpu, "train")
    with ExitStack() as opened:
        with locked(sgpu):
            applies = [opened.enter_context(sgpu.start("apply", file, "-y")) for _ in range(2)]
            for process in applies:
                waiting(process)
        for process in applies:
            _, err = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, err
    assert len(sgpu("show", "train", "-o", "json").json["data"]["history"]) == 1


@pytest.mark.expensive
def test_an_apply_that_waits_for_a_gc_of_the_store_says_so(sgpu: Shell) -> None:
    file = declare(sgpu, "hello")
    store = Path(sgpu.environ["XDG_DATA_HOME"], "sgpu/store")
    store.mkdir(parents=True)
    with ExitStack() as gc:
        gc.enter_context(References(store).alone())
        with sgpu.start("apply", file, "-y") as apply:
            for line in apply.stderr:
                if "waiting for an `sgpu gc` that deletes from the store of this machine" in line:
                    gc.close()
            assert apply.wait(PATIENCE) == 0


AT_ONE_MOMENT = """\
import sys
from datetime import UTC, datetime
from sgpu_decl.planning import project
project.now = lambda: datetime(2026, 1, 1, tzinfo=UTC)
from sgpu_decl.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_two_applies_that_planned_in_the_same_millisecond_both_succeed(sgpu: Shell) -> None:
    file = declare(sgpu, "train")
    command = [sys.executable, "-c", AT_ONE_MOMENT, "apply", file, "-y"]
    with ExitStack() as opened:
        with locked(sgpu):
            applies = [
                opened.enter_context(
                    subprocess.Popen(
                        command, cwd=sgpu.folder, env=sgpu.environ, text=True,
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    )
                )
                for _ in range(2)
            ]  # fmt: skip
            for process in applies:
                waiting(process)
        said = [process.communicate(timeout=PATIENCE)[1] for process in applies]
    assert [process.returncode for process in applies] == [0, 0], said
    assert "this plan was applied already: planning again" in "".join(said)
    assert len(sgpu("show", "train", "-o", "json").json["data"]["history"]) == 1


def test_a_plan_that_does_something_else_by_now_is_shown_again(sgpu: Shell) -> None:
    file = declare(sgpu, "train")
    with ExitStack() as opened:
        with locked(sgpu) as writer:
            process = opened.enter_context(sgpu.start("apply", file, "-y"))
            waiting(process)
            declare(sgpu, "train", said="goodbye")
            writer.plan_applied("another")
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert out.count("create train#1") == 2
    assert "goodbye" in out.splitlines()


def test_a_plan_that_does_the_same_is_shown_once(sgpu: Shell) -> None:
    file = declare(sgpu, "train")
    with ExitStack() as opened:
        with locked(sgpu) as writer:
            process = opened.enter_context(sgpu.start("apply", file, "-y"))
            waiting(process)
            writer.plan_applied("another")
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert out.count("create train#1") == 1
    assert "planning again" in err


def test_a_saved_plan_that_lost_the_race_is_refused(sgpu: Shell) -> None:
    first, second = declare(sgpu, "first"), declare(sgpu, "second")
    sgpu.done("apply", first, "-y")
    sgpu.done("plan", second, "--out", "saved.plan")
    with locked(sgpu) as writer:
        writer.plan_applied("another")
    assert sgpu.refusal("apply", "saved.plan") == (3, "stale_plan")


@pytest.mark.parametrize(
    "command",
    [
        ("apply", "train.yaml", "-y"),
        ("destroy", "-y"),
        ("gc",),
        ("state", "rm", "train"),
        ("state", "mv", "train", "other"),
    ],
    ids=lambda item: " ".join(item[:2]),
)
def test_every_command_that_writes_gives_up_in_time_and_names_the_holder(
    sgpu: Shell, command: tuple[str, ...]
) -> None:
    file = declare(sgpu, "train")
    sgpu.done("apply", file, "-y")
    declare(sgpu, "train", said="goodbye")
    with locked(sgpu):
        refused = sgpu.here(*command, "--lock-timeout", "0s", "-o", "json")
        assert (refused.code, refused.json["error"]["code"]) == (3, "state_locked")
        assert "locked by `gc` of " in refused.json["error"]["message"]
        assert "--lock-timeout" in refused.json["error"]["hint"]
        assert "waiting" not in refused.err
        waited = sgpu.exits(3, *command, "--lock-timeout", "100ms", "-o", "json")
        assert waited.err.count("waiting up to 0.1 s") == 1


def test_waiting_for_the_lock_is_interrupted(sgpu: Shell) -> None:
    file = declare(sgpu, "train")
    with locked(sgpu), sgpu.start("apply", file, "-y", "-o", "json") as process:
        waiting(process)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert json.loads(out)["error"]["code"] == "interrupted"


def test_a_lock_timeout_that_is_no_duration_is_wrong_usage(sgpu: Shell) -> None:
    declare(sgpu, "train")
    refused = sgpu.exits(64, "apply", "train.yaml", "-y", "--lock-timeout", "soon")
    assert "`soon` is not a duration" in refused.err
