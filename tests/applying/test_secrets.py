"""No secret value in anything that sgpu writes or shows, whatever goes wrong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sgpu_decl.agent.attempt.attempt_status import read_attempt
from sgpu_decl.agent.system.locks import wait_until_free
from tests.support import require, until

VALUE = "canary-8c1f7e0d"
RUN = """\
name: quiet
gpus: 2
type: CPU
entrypoint: train.py:main
env: {secrets: {TOKEN: env:MY_TOKEN}}
grace: 1s
"""
TRAIN = """\
import os
def main():
    raise ValueError("refused: " + os.environ["TOKEN"])
"""
# Meets a fault of its own right where it holds the values.
CRASHING = """\
import sys
from sgpu_decl.agent.launching import agent_launch
def launch(folder, *, token, secrets, server):
    assert secrets
    raise RuntimeError("boom")
agent_launch.launch = launch
from sgpu_decl.cli.main import main
sys.exit(main(["apply", "-y", "--detach"]))
"""


def said(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run Python with these arguments; neither stream may hold the value."""
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert VALUE not in done.stdout
    assert VALUE not in done.stderr
    return done


def sgpu(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return said(folder, "-m", "sgpu_decl", *words)


def assert_nowhere(folder: Path) -> list[str]:
    """Look into every file but those that ranks write themselves; returns their names."""
    names = []
    for root, _, files in os.walk(folder):
        for name in files:
            if name not in ("stdout.log", "stderr.log"):
                assert VALUE.encode() not in (Path(root) / name).read_bytes(), name
                names.append(name)
    return names


@pytest.fixture
def written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MY_TOKEN", VALUE)
    (folder / "run.yaml").write_text(RUN)
    (folder / "train.py").write_text(TRAIN)
    return folder


def test_a_run_that_fails_with_it_in_its_message_leaves_no_trace_of_it(written: Path) -> None:
    with (written / "run.yaml").open("a") as file:
        file.write("mlflow: {enabled: false}\n")
    assert sgpu(written, "plan", "--out", "saved.plan").returncode == 0
    assert sgpu(written, "apply", "saved.plan").returncode == 5
    for command in (("logs", "quiet", "--rank", "all"), ("show", "quiet"), ("status",)):
        assert sgpu(written, *command).returncode == 0
    assert sgpu(written, "state", "pull").returncode == 0

    left = assert_nowhere(written.parent)
    assert {"saved.plan", "state.db", "events.log", "outcome.json", "error.json"} <= set(left)


def test_a_crash_report_does_not_hold_it(written: Path) -> None:
    crashed = said(written, "-c", CRASHING)
    assert crashed.returncode == 1
    assert "internal error: RuntimeError: boom" in crashed.stderr
    left = assert_nowhere(written.parent)
    assert any(name.startswith("sgpu-crash-") for name in left)


@pytest.mark.expensive
@pytest.mark.mlflow
def test_a_tracked_run_does_not_hand_it_on(written: Path) -> None:
    require("mlflow")
    assert sgpu(written, "apply", "-y").returncode == 5
    # The guardian stays until the tracker has told the run's end.
    wait_until_free(str(written / ".sgpu/default/runs/quiet/1/guardian.lock"))
    assert "mlflow.db" in assert_nowhere(written.parent)


WAITING = """\
import os, pathlib, time
out = pathlib.Path(os.environ["SGPU_OUTPUT_DIR"])
(out / "seen").write_text(str([os.environ.get(name) == "canary-8c1f7e0d"
                               for name in ("TOKEN", "MY_TOKEN", "UNDECLARED_KEY")]))
while not (out / "go").exists():
    time.sleep(0.01)
"""


def _started_with(folder: Path) -> dict[str, list[bytes]]:
    """What the agent of an attempt and its tracker were started with."""
    found: dict[str, list[bytes]] = {"agent": [], "tracker": []}
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            environ = (process / "environ").read_bytes()
        except OSError:
            continue  # none of the numbered folders, or it has ended
        if os.fsencode(folder) in words:
            found["agent"].append(environ)
        elif (
            b"SGPU_RUN_DIR=" + os.fsencode(folder) + b"\0" in environ
            and b"SGPU_TRACKER=" in environ
        ):
            found["tracker"].append(environ)
    return found


@pytest.mark.parametrize(
    "tracked",
    [False, pytest.param(True, marks=[pytest.mark.mlflow, pytest.mark.expensive])],
    ids=["untracked", "tracked"],
)
def test_processes_of_ours_are_not_started_with_what_the_caller_exported(
    written: Path, monkeypatch: pytest.MonkeyPatch, tracked: bool
) -> None:
    """Ranks inherit it, as under torchrun. /proc shows for all its life what a process started
    with."""
    if tracked:
        require("mlflow")
    monkeypatch.setenv("UNDECLARED_KEY", VALUE)
    (written / "train.py").write_text(WAITING)
    (written / "run.yaml").write_text(
        RUN.replace("train.py:main", "train.py") + ("" if tracked else "mlflow: {enabled: false}\n")
    )
    assert sgpu(written, "apply", "-y", "--detach").returncode == 0
    folder = written / ".sgpu/default/runs/quiet/1"
    until(lambda: read_attempt(folder)["state"] == "running")
    until((folder / "output/seen").exists)
    if tracked:
        until((folder / "mlflow.json").exists)
    assert (folder / "output/seen").read_text() == "[True, True, True]"

    started = _started_with(folder)
    (folder / "output/go").touch()
    # Guardian and supervisor, and the monitor once the ranks have run for two seconds.
    assert len(started["agent"]) in (2, 3)
    assert len(started["tracker"]) == int(tracked)
    assert not [item for item in (*started["agent"], *started["tracker"]) if VALUE.encode() in item]
    assert sgpu(written, "wait", "quiet").returncode == 0
