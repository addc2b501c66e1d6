"""NCCL records its collectives for the monitor, which names the rank that others wait for; and a
preflight measures healthy devices."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.gpu_machine.conftest import RUN, values

pytestmark = [pytest.mark.gpu, pytest.mark.torch]
HANGS = Path(__file__).parents[1] / "hanging_programs.py"
RECORDS = """
import os, pickle
import torch
import torch.distributed as dist
def main():
    at = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(at)
    dist.init_process_group("nccl", device_id=torch.device("cuda", at))
    tensor = torch.ones(4, device="cuda")
    for _ in range(5):
        dist.all_reduce(tensor)
    torch.cuda.synchronize()
    trace = pickle.loads(torch._C._distributed_c10d._dump_fr_trace(True, False, False))
    dist.destroy_process_group()
    return [one["profiling_name"] for one in trace["entries"]]
"""


@pytest.mark.parametrize("all_devices", [False, True])
def test_the_recorder_is_on_for_nccl(
    sgpu: Shell, gpus: list[dict[str, str]], *, all_devices: bool
) -> None:
    count = len(gpus) if all_devices else 1
    sgpu.write("run.yaml", f"{RUN}gpus: {count}\n")
    sgpu.write("train.py", RECORDS)
    sgpu.ran("apply", "-y")
    for names in values(sgpu):
        assert names.count("nccl:all_reduce") == 5


def test_the_rank_that_nccl_waits_for_is_named(sgpu: Shell, gpus: list[dict[str, str]]) -> None:
    if len(gpus) < 3:
        pytest.skip(f"it takes three devices, and there are {len(gpus)}")
    run = RUN.replace("train.py:main", "train.py")
    more = "gpus: 3\nhang: stop\nhang_after: 5s\nargs: [never_enters, nccl]\n"
    sgpu.write("run.yaml", run + more)
    sgpu.write("train.py", HANGS.read_text())
    assert sgpu("apply", "-y").code != 0
    (found,) = sgpu.data("status")["runs"]
    assert found["first_cause"]["summary"].startswith("rank 2 has not entered all_reduce")


def test_healthy_devices_pass_the_preflight(sgpu: Shell, gpus: list[dict[str, str]]) -> None:
    sgpu.write("run.yaml", f"{RUN}gpus: {len(gpus)}\npreflight: true\n")
    sgpu.write("train.py", "def main(): pass\n")
    sgpu.ran("apply", "-y")
    outcome = sgpu.folder / ".sgpu/default/runs/gpu/1/outcome.json"
    measured = json.loads(outcome.read_text())["preflight"]
    assert [one["uuid"] for one in measured] == [one["uuid"] for one in gpus]
    assert all(one["gflops"] > 1000 for one in measured)
