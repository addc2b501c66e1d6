"""Ranks have the devices that sgpu gave them, and a device that is full is a cause by name."""

import pytest

from tests.cli.conftest import Shell
from tests.gpu_machine.conftest import RUN, values

pytestmark = [pytest.mark.gpu, pytest.mark.torch]
WHICH = """
import os
import torch
def main():
    at = int(os.environ["LOCAL_RANK"])
    return "GPU-" + str(torch.cuda.get_device_properties(at).uuid)
"""
FILLS = """
import torch
def main():
    held = []
    while True:
        held.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
"""


def test_each_rank_has_a_device_of_its_own(sgpu: Shell, gpus: list[dict[str, str]]) -> None:
    sgpu.write("run.yaml", f"{RUN}gpus: {len(gpus)}\n")
    sgpu.write("train.py", WHICH)
    sgpu.ran("apply", "-y")
    assert values(sgpu) == [one["uuid"] for one in gpus]


def test_a_device_is_chosen_by_its_uuid(sgpu: Shell, gpus: list[dict[str, str]]) -> None:
    last = gpus[-1]["uuid"]
    sgpu.environ["CUDA_VISIBLE_DEVICES"] = last
    sgpu.write("run.yaml", f"{RUN}gpus: 1\n")
    sgpu.write("train.py", WHICH)
    sgpu.ran("apply", "-y")
    assert values(sgpu) == [last]


def test_a_full_device_is_the_cause_with_the_numbers_of_the_allocator(sgpu: Shell) -> None:
    sgpu.write("run.yaml", f"{RUN}gpus: 1\n")
    sgpu.write("train.py", FILLS)
    assert sgpu("apply", "-y").code == 1
    (run,) = sgpu.data("status")["runs"]
    cause = run["first_cause"]
    assert cause["kind"] == "cuda_out_of_memory"
    assert "1.00 GiB" in cause["explanation"]["meaning"]
