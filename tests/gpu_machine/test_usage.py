"""What a device does is measured as it is: a busy kernel is use, memory that is held is none."""

import pytest

from tests.cli.conftest import Shell
from tests.gpu_machine.conftest import RUN

pytestmark = [pytest.mark.gpu, pytest.mark.torch]
BUSY = """
import time
import torch
def main():
    a = torch.randn(4096, 4096, device="cuda")
    end = time.monotonic() + 12
    while time.monotonic() < end:
        for _ in range(50):
            a @ a
        torch.cuda.synchronize()
"""
HOLDS = """
import signal
import torch
def main():
    held = torch.zeros(1 << 30, dtype=torch.uint8, device="cuda")
    while True: signal.pause()
"""
IDLE = "idle: {below: 5%, for: 5s, then: stop}\ngpus: 1\n"


def test_a_busy_device_is_used_and_not_idle(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN + IDLE)
    sgpu.write("train.py", BUSY)
    sgpu.ran("apply", "-y")
    (run,) = sgpu.data("status")["runs"]
    assert run["usage"]["gpu_percent"] > 50
    assert run["usage"]["gpu_memory"] >= 64


def test_a_run_that_only_holds_memory_is_ended_as_idle(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN + IDLE)
    sgpu.write("train.py", HOLDS)
    assert sgpu("apply", "-y").code == 1
    (run,) = sgpu.data("status")["runs"]
    assert "idle" in run["first_cause"]["summary"]
    assert run["usage"]["gpu_memory"] >= 1024
