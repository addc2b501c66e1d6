"""An apply that is stopped while it holds the lock of a shared state, and goes on once another one
has taken over: what the other one gave up is never launched, and nothing is launched twice."""

import os
import re
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from sgpu_decl.testing.contracts.killed_commands import dying
from tests.cli.conftest import Shell
from tests.sampling import sampled
from tests.support import PATIENCE

PROJECT = """project: {{name: p}}
state: {{kind: folder, path: {folder}/store}}
runs:
  a: {{gpus: 1, type: CPU, command: "echo a >> {folder}/launches", {rest}}}
  b: {{gpus: 1, type: CPU, command: "echo b >> {folder}/launches", {rest}}}
"""
REST = "mlflow: {enabled: false}, env: {secrets: {TOKEN: env:TOKEN}}"
LAUNCHER = "sgpu_decl.backends.local.local_launcher,LocalLauncher"
WRITER = "sgpu_decl.storing.journal.writer,JournalWriter"
STEPS = (
    f"{LAUNCHER},launch,before,1",
    f"{WRITER},begin,after,1",
    f"{WRITER},check_held,after,1",
    f"{LAUNCHER},stage,before,1",
    "sgpu_decl.code.code_store,CodeStore,materialize,after,1",
    f"{LAUNCHER},stage,after,1",
    "sgpu_decl.agent.launching.agent_launch,LaunchServer,start,before,1",
)


@pytest.fixture
def shell(sgpu: Shell) -> Shell:
    (sgpu.folder.parent / "store").mkdir()
    (sgpu.folder.parent / "store" / ".sgpu-state").touch()
    sgpu.write("sgpu.yml", PROJECT.format(folder=sgpu.folder.parent, rest=REST))
    return sgpu


def stopped(sgpu: Shell, step: str, *words: str) -> "subprocess.Popen[str]":
    """A command, an apply unless it is given, that is stopped at a step, and whose lock was broken
    since."""
    holder = subprocess.Popen(
        dying(step, *(words or ("apply", "-y", "--detach")), by=signal.SIGSTOP),
        cwd=sgpu.folder,
        env=having(sgpu).environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert os.WIFSTOPPED(os.waitpid(holder.pid, os.WUNTRACED)[1])
    locked = sgpu.here("gc", "-y", "--lock-timeout", "0s")
    found = re.search(r"sgpu state unlock (\S+?)`", locked.err)
    assert found is not None, locked.err
    sgpu.done("state", "unlock", found[1])
    return holder


@pytest.mark.expensive
def test_a_gc_whose_lock_was_taken_over_deletes_no_more(shell: Shell) -> None:
    user = having(shell)
    user.done("apply", "-y")
    folders = (".sgpu/default/runs/a/1", ".sgpu/default/runs/b/1")
    step = "sgpu_decl.backends.local.local_storage,LocalStorage,free,after,1"
    holder = stopped(shell, step, "gc", "-y", "--all", "--keep-last", "0")
    assert "a#2" in user.here("apply", "-y", "--rerun", "run.a").err
    assert "unlocked by hand" in going_on(holder)
    assert [(shell.folder / one).exists() for one in folders] == [False, True]


def having(sgpu: Shell) -> Shell:
    return replace(sgpu, environ={**sgpu.environ, "TOKEN": "correct horse"})


def going_on(holder: "subprocess.Popen[str]") -> str:
    with holder:
        holder.send_signal(signal.SIGCONT)
        _, said = holder.communicate(timeout=PATIENCE)
    assert holder.returncode in (1, 3), said  # the first launch may have ended otherwise
    assert '{"' not in said
    return said


def launches(sgpu: Shell) -> list[str]:
    having(sgpu).here("wait", "*")
    file = Path(sgpu.folder.parent, "launches")
    return sorted(file.read_text().split()) if file.exists() else []


@pytest.mark.expensive
@pytest.mark.parametrize("step", sampled(STEPS, quick=1))
def test_what_the_next_apply_gave_up_is_not_launched(shell: Shell, step: str) -> None:
    holder = stopped(shell, step)
    shell.exits(1, "apply", "-y")  # it cannot resolve the secret
    assert "unlocked by hand" in going_on(holder)
    assert launches(shell) == []
    having(shell).done("apply", "-y")
    assert launches(shell) == ["a", "b"]


@pytest.mark.expensive
@pytest.mark.parametrize(
    "step", sampled((*STEPS, f"{LAUNCHER},launch,after,1", f"{WRITER},end,before,1"), quick=1)
)
def test_what_the_next_apply_finished_is_launched_once(shell: Shell, step: str) -> None:
    holder = stopped(shell, step)
    having(shell).done("apply", "-y", "--detach")
    going_on(holder)
    assert launches(shell) == ["a", "b"]
    having(shell).done("apply", "-y")
    assert launches(shell) == ["a", "b"]
