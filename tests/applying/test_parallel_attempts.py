"""Several attempts of one run at once: all of them are seen, waited for and cancelled."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.applying.conftest import sgpu

RUN = (
    "name: slow\ngpus: 1\ntype: CPU\ncommand: [sleep, '60']\ngrace: 1s\nmlflow: {enabled: false}\n"
)


@pytest.fixture
def project(folder: Path) -> Path:
    (folder / "run.yaml").write_text(RUN)
    return folder


def states(project: Path) -> dict[int, str]:
    told = json.loads(sgpu(project, "status", "-o", "json").out)
    return {run["attempt"]: run["state"] for run in told["data"]["runs"]}


# Applies, and dies by SIGKILL once the agent is up: before anything else is done or recorded.
DYING = """\
import os, signal, sys
from sgpu_decl.agent.launching import agent_launch
real = agent_launch.launch
def dying(*args, **kwargs):
    real(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
agent_launch.launch = dying
from sgpu_decl.cli.main import main
sys.exit(main(["apply", "-y", "--detach", *sys.argv[1:]]))
"""
CHANGED = ("--set", "env.variables.A=2")


def test_a_parallel_attempt_hides_none_and_cancel_stops_both(project: Path) -> None:
    assert sgpu(project, "apply", "-y", "--detach").code == 0
    beside = sgpu(project, "apply", "-y", "--detach", *CHANGED, "--on-active", "parallel")
    assert beside.code == 0, beside.err
    assert set(states(project)) == {1, 2}

    refused = sgpu(project, "state", "rm", "run.slow")
    assert refused.code == 1
    assert "is active" in refused.err

    cancelled = sgpu(project, "cancel", "slow")
    assert cancelled.code == 0, cancelled.err
    assert "slow#1 cancelled" in cancelled.err
    assert "slow#2 cancelled" in cancelled.err


def test_a_saved_plan_replaces_an_active_run(project: Path) -> None:
    assert sgpu(project, "apply", "-y", "--detach").code == 0
    planned = sgpu(project, "plan", *CHANGED, "--on-active", "replace", "--out", "saved.plan")
    assert planned.code == 0, planned.err

    applied = sgpu(project, "apply", "--detach", "saved.plan")

    assert applied.code == 0, applied.err
    shown = json.loads(sgpu(project, "wait", "slow#1", "-o", "json").out)
    assert [run["state"] for run in shown["data"]["runs"]] == ["cancelled"]
    assert states(project)[2] in {"queued", "starting", "running"}
    assert sgpu(project, "cancel", "slow").code == 0


def test_a_launch_that_a_crash_kept_from_being_recorded_is_found_and_cancelled(
    project: Path,
) -> None:
    died = subprocess.run([sys.executable, "-c", DYING], cwd=project, check=False)
    assert died.returncode == -signal.SIGKILL

    cancelled = sgpu(project, "cancel", "slow")

    assert cancelled.code == 0, cancelled.err
    assert "slow#1 cancelled" in cancelled.err


def test_a_replacement_that_a_crash_cut_short_stops_every_older_attempt(project: Path) -> None:
    assert sgpu(project, "apply", "-y", "--detach").code == 0
    beside = sgpu(project, "apply", "-y", "--detach", *CHANGED, "--on-active", "parallel")
    assert beside.code == 0, beside.err
    third = ("--set", "env.variables.A=3", "--on-active", "replace")
    assert sgpu(project, "plan", *third, "--out", "saved.plan").code == 0
    died = subprocess.run([sys.executable, "-c", DYING, "saved.plan"], cwd=project, check=False)
    assert died.returncode == -signal.SIGKILL

    # Any apply settles what was left open: here one that has nothing else to do.
    assert sgpu(project, "apply", "-y", "--detach", *third[:2]).code == 0

    ended = sgpu(project, "wait", "slow#1", "slow#2", "--timeout", "2m", "-o", "json")
    shown = json.loads(ended.out)["data"]["runs"]
    assert [run["state"] for run in shown] == ["cancelled", "cancelled"]
    assert sgpu(project, "cancel", "slow").code == 0


def test_gc_leaves_a_live_folder_alone(project: Path) -> None:
    assert sgpu(project, "apply", "-y", "--detach").code == 0
    assert sgpu(project, "gc", "-y", "--all", "--keep-last", "0").code == 0
    assert (project / ".sgpu/default/runs/slow/1/spec.json").exists()
    assert sgpu(project, "cancel", "slow").code == 0
