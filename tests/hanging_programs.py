"""Programs whose ranks hang, each in one way, for gloo and for NCCL. They are read as text, too:
the line that a program hangs at ends with `# HERE`.

    torchrun --nproc-per-node 3 tests/hanging_programs.py NAME [nccl]
"""

import fcntl
import os
import queue
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

rank = int(os.environ["RANK"])
backend = sys.argv[2] if len(sys.argv) > 2 else "gloo"
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else "cpu"


def ones(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(*sizes, dtype=dtype, device=device)


def join() -> None:
    dist.init_process_group(backend)


def steps(count: int = 3) -> None:
    for _ in range(count):
        dist.all_reduce(ones(4))


def never_enters() -> None:
    join()
    steps()
    if rank == 2:
        queue.Queue().get()  # HERE
    dist.all_reduce(ones(4))


class Stuck(Dataset[int]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        if index == 2:
            signal.pause()
        return index


def waits_for_data() -> None:
    join()
    loader = DataLoader(Stuck() if rank == 1 else range(10), num_workers=rank % 2)  # type: ignore[arg-type]
    for _ in loader:  # HERE
        steps(1)


def other_order() -> None:
    join()
    steps()
    if rank == 1:
        dist.broadcast(ones(4), 0)  # HERE
    dist.all_reduce(ones(4))


def one_evaluates() -> None:
    join()
    steps()
    if rank == 0:
        dist.all_gather([ones(1) for _ in range(dist.get_world_size())], ones(1))  # HERE
    dist.barrier()


def _as_many_steps_as_told(told: torch.Tensor) -> None:
    """gloo takes tensors that do not match; what a rank makes of them, it does alone."""
    if rank == 0:
        told.fill_(5)
    dist.broadcast(told, 0)
    for _ in range(int(told[-1])):
        dist.all_reduce(ones(4))
    dist.barrier()  # HERE


def other_shape() -> None:
    join()
    steps()
    _as_many_steps_as_told(0 * ones(2 if rank == 2 else 1, dtype=torch.int64))


def other_type() -> None:
    join()
    steps()
    _as_many_steps_as_told(0 * ones(1, dtype=torch.float64 if rank == 2 else torch.int64))


def ends_early() -> None:
    join()
    for _ in range(3 if rank == 1 else 5):
        dist.all_reduce(ones(4))
    dist.barrier()  # HERE


def leaves_early() -> None:
    join()
    for _ in range(3 if rank == 1 else 5):
        dist.all_reduce(ones(4))
    threading.Event().wait()  # HERE


def is_stopped() -> None:
    join()
    steps()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.all_reduce(ones(4))


def groups_crossed() -> None:
    join()
    one, other = dist.new_group([0, 1]), dist.new_group([1, 2])
    steps()
    if rank == 2:
        dist.all_reduce(ones(4), group=other)
        dist.barrier()
    elif rank == 1:
        threading.Event().wait()  # HERE
    else:
        dist.all_reduce(ones(4), group=one)


def nobody_sends() -> None:
    join()
    steps()
    if rank == 1:
        dist.recv(ones(4), 0)  # HERE
    dist.all_reduce(ones(4))


def never_joins() -> None:
    if rank == 1:
        threading.Event().wait()  # HERE
    join()


def waits_for_a_lock() -> None:
    join()
    steps()
    path = os.environ["SGPU_OUTPUT_DIR"] + "/lock"
    if rank == 0:
        held = os.open(path, os.O_CREAT | os.O_RDWR)
        fcntl.flock(held, fcntl.LOCK_EX)
    dist.barrier()
    if rank == 2:
        mine = os.open(path, os.O_RDWR)
        fcntl.flock(mine, fcntl.LOCK_EX)  # HERE
    dist.all_reduce(ones(4))


def holds_the_interpreter() -> None:
    import ctypes

    join()
    steps()
    if rank == 2:
        ctypes.PyDLL(None).pause()  # HERE
    dist.all_reduce(ones(4))


if __name__ == "__main__":
    if backend == "nccl":
        torch.cuda.set_device(device)
    globals()[sys.argv[1]]()
    time.sleep(3600)
