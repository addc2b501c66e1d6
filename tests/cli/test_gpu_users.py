"""GPUs that other programs use: a plan says who, a run gets others or waits.

NVML is asked in its real way; the library is one of the tests, which says what a file tells it.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from pwd import getpwuid
from typing import Any

import pytest

from tests.cli.conftest import Shell
from tests.support import until

L4 = "NVIDIA L4:24152899584"
ME = getpwuid(os.getuid()).pw_name
RUN = """
name: a
gpus: 1
type: L4
command: 'echo on $CUDA_VISIBLE_DEVICES.'
mlflow: {enabled: false}
"""
SHARED = "backend={kind: local, share_gpus: true}"


@pytest.fixture
def notebook() -> Iterator["subprocess.Popen[bytes]"]:
    """A program that uses a GPU."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.fixture
def machine(on: Callable[..., Shell], tmp_path: Path, notebook: "subprocess.Popen[bytes]") -> Shell:
    """The GPUs 8 and 9, of which the notebook uses the first."""
    users = tmp_path / "users"
    users.write_text(f"8:{notebook.pid}:31000000000")
    shell = on(*[L4] * 10, SGPU_TEST_USERS=f"@{users}", CUDA_VISIBLE_DEVICES="8,9")
    shell.write("run.yaml", RUN)
    return shell


def found(shell: Shell, *options: str) -> tuple[str, str, Any]:
    answer = shell.ran("plan", "-o", "json", *options)
    (check,) = [one for one in answer.json["data"]["checks"] if one["id"] == "gpus_in_use"]
    return check["severity"], check["summary"], check["hint"]


def test_a_plan_says_who_uses_which_gpu(
    machine: Shell, notebook: "subprocess.Popen[bytes]"
) -> None:
    used = f"GPU 8 is used by user {ME} (process {notebook.pid}, sleep, 31.0 GB)"
    assert found(machine) == ("info", f"{used}: the run gets others", None)
    severity, summary, hint = found(machine, "--set", "gpus=2")
    assert (severity, summary) == (
        "warning", f"{used}: the run waits until enough GPUs are free"
    )  # fmt: skip
    assert "`CUDA_VISIBLE_DEVICES`" in hint
    assert "`backend: {kind: local, share_gpus: true}`" in hint
    shared = found(machine, "--set", "gpus=2", "--set", SHARED)
    assert shared == ("info", f"{used}: its ranks may share that", None)


def test_a_run_gets_gpus_that_nobody_uses(machine: Shell) -> None:
    answer = machine("apply", "-y")
    assert answer.code == 0, answer.err
    assert "on 9." in answer.out + answer.err


def test_a_run_waits_until_others_have_left_its_gpus(
    machine: Shell, notebook: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    assert machine("apply", "-y", "--detach", "--set", "gpus=2").code == 0

    def run() -> Any:
        return machine.data("status")["runs"][0]

    until(lambda: (run()["waiting_for"] or "").startswith("GPUs that are free: GPU 8 is used by"))
    used = f"GPU 8 is used by user {ME} (process {notebook.pid}, sleep, 31.0 GB)"
    assert run()["state"] == "queued"
    assert f"waits for GPUs that are free: {used}" in machine.here("show", "a").out
    (tmp_path / "users").write_text("")
    notebook.kill()
    until(lambda: run()["state"] == "succeeded")
    assert "on 8,9." in machine.here("logs", "a").out


def test_a_run_that_waits_for_a_gpu_can_be_cancelled(machine: Shell) -> None:
    assert machine("apply", "-y", "--detach", "--set", "gpus=2").code == 0
    machine.done("cancel", "a")
    until(lambda: "cancelled" in machine.here("status").out)


@pytest.mark.parametrize("why", ["it shares", "its caller uses the GPU", "MPS shares it"])
def test_a_run_takes_a_gpu_that_is_used(machine: Shell, tmp_path: Path, why: str) -> None:
    words = ["--set", SHARED] if why == "it shares" else []
    if why == "its caller uses the GPU":  # a notebook that applies would wait for itself
        (tmp_path / "users").write_text(f"8:{os.getpid()}:31000000000")
    server = tmp_path / "nvidia-cuda-mps-server"
    server.symlink_to("/bin/sleep")
    with subprocess.Popen([server, "600"]) as sharing:
        if why == "MPS shares it":
            (tmp_path / "users").write_text(f"8:{sharing.pid}:31000000")
        answer = machine("apply", "-y", "--set", "gpus=2", *words)
        sharing.kill()
    assert answer.code == 0, answer.err
    assert "on 8,9." in answer.out + answer.err


def test_a_driver_that_crashes_or_says_nothing_holds_no_run_up(machine: Shell) -> None:
    for broken in ("8", "8:4711", "x"):
        shell = replace(machine, environ={**machine.environ, "SGPU_TEST_USERS": broken})
        shell.ran("apply", "-y", "--rerun", "a", "--set", "gpus=2")
