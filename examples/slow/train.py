"""Ranks that wait for each other at each step, and one that they wait for."""

import time
from queue import Queue

import torch
import torch.distributed as dist


def main(steps: int, slow_rank: int, stuck_at: int | None = None) -> float:
    """Add up a tensor over all ranks, again and again.

    Args:
        slow_rank: the rank that takes five times as long for its part of each step.
        stuck_at: the step at which that rank waits for data that never come.
    """
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    batches: Queue[torch.Tensor] = Queue()
    total = torch.zeros(1)
    for step in range(steps):
        time.sleep(0.05 if rank == slow_rank else 0.01)
        if rank != slow_rank or step != stuck_at:
            batches.put(torch.ones(1))
        total += batches.get()
        dist.all_reduce(total)
        total /= dist.get_world_size()
        if rank == 0:
            print(f"step {step + 1}/{steps}: total {total.item():.1f}", flush=True)
    dist.destroy_process_group()
    return total.item()
