"""What ranks are told about themselves, asked in real ranks, with and without a process group."""

from collections.abc import Callable
from typing import Any

import pytest

from sgpu_decl.rendering.spec import Entry
from tests.support import require

Make = Callable[..., Any]
MAIN = Entry(kind="file_function", path="main.py", function="main")
ASKS = """
import sys

from sgpu_decl import runtime


def main():
    told = [
        runtime.get_global_rank(),
        runtime.get_local_rank(),
        runtime.get_node_rank(),
        runtime.get_replica_rank(),
        runtime.get_world_size(),
        runtime.get_local_world_size(),
    ]
    return [told, "torch" in sys.modules]
"""
TOGETHER = """
import os

import torch
import torch.distributed as dist

from sgpu_decl import runtime
from sgpu_decl.errors import SgpuError


def main():
    runtime.init_process_group(timeout=60)
    runtime.init_process_group("gloo")
    total = torch.ones(1) * (runtime.get_global_rank() + 1)
    dist.all_reduce(total)
    try:
        runtime.init_process_group("nccl")
    except SgpuError as error:
        other = error.code
    os.environ["RANK"], right = "7", os.environ["RANK"]
    try:
        runtime.get_global_rank()
    except SgpuError as error:
        wrong = [error.code, error.message]
    os.environ["RANK"] = right
    answer = [runtime.get_global_rank(), runtime.get_world_size(), total.item(), other, wrong]
    dist.barrier()
    dist.destroy_process_group()
    return answer + [runtime.get_world_size()]
"""


def test_a_rank_knows_its_place_without_importing_torch(make_attempt: Make) -> None:
    assert make_attempt(ASKS, entry=MAIN).launch().values() == [
        [[0, 0, 0, 0, 2, 2], False],
        [[1, 1, 0, 0, 2, 2], False],
    ]


def test_a_process_that_starts_its_own_ranks_is_the_first_of_them(make_attempt: Make) -> None:
    source = ASKS + "\nif __name__ == '__main__':\n    print(main()[0])\n"
    attempt = make_attempt(source, world_size=2, per="node").launch()
    assert attempt.wait()["state"] == "succeeded"
    assert attempt.log() == "[0, 0, 0, 0, 2, 2]\n"


@pytest.mark.torch
def test_ranks_meet_once_and_the_group_must_agree(make_attempt: Make) -> None:
    require("torch")
    wrong = "`RANK` is 7, but the process group says {}"
    assert make_attempt(TOGETHER, entry=MAIN).launch().values() == [
        [rank, 2, 3.0, "group_differs", ["rank_unknown", wrong.format(rank)], 2]
        for rank in range(2)
    ]
