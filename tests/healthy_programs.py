"""Programs that do nothing wrong, though some of their ranks wait long for others: each works until
there is a file `go` in its output, and ends then.

    torchrun --nproc-per-node 3 tests/healthy_programs.py NAME [nccl]
"""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset

rank = int(os.environ["RANK"])
size = int(os.environ["WORLD_SIZE"])
output = os.environ["SGPU_OUTPUT_DIR"]
backend = sys.argv[2] if len(sys.argv) > 2 else "gloo"
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else "cpu"


def go() -> bool:
    return os.path.exists(output + "/go")


def ones(*sizes: int) -> torch.Tensor:
    return torch.ones(*sizes, device=device)


def join() -> None:
    dist.init_process_group(backend)


def steps(count: int = 3) -> None:
    for _ in range(count):
        dist.all_reduce(ones(4))


def compute() -> None:
    torch.ones(200, 200) @ torch.ones(200, 200)


def compute_until_go() -> None:
    while not go():
        compute()


def until_all_go() -> Iterator[None]:
    """Until rank 0 has seen the file: all end with the same step."""
    while True:
        told = ones(1) if rank == 0 and go() else 0 * ones(1)
        dist.broadcast(told, 0)
        if told.item():
            return
        yield


def evaluation_on_rank_0() -> None:
    join()
    steps()
    if rank == 0:
        compute_until_go()
    dist.barrier()


def evaluation_on_the_last_rank() -> None:
    join()
    steps()
    if rank == size - 1:
        compute_until_go()
    steps()


def compilation_in_a_child() -> None:
    join()
    if rank == 1:
        code = f"import os\nwhile not os.path.exists({output + '/go'!r}): sum(range(1000))"
        subprocess.run([sys.executable, "-c", code], check=True)
    steps()


def checkpoint() -> None:
    join()
    steps()
    if rank == 0:
        while not go():
            with open(output + "/checkpoint", "wb") as file:
                torch.save(torch.ones(100_000), file)
                os.fsync(file.fileno())
    dist.barrier()


def uneven_data() -> None:
    join()
    for _ in until_all_go():
        for _ in range(100 * rank):
            compute()
        steps(1)


def long_first_step() -> None:
    join()
    if rank:
        compute_until_go()
    steps()


class Slow(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        compute_until_go()
        yield 1


def slow_data() -> None:
    join()
    steps()
    if rank == 1:
        for _ in DataLoader(Slow(), num_workers=1):
            pass
    steps()


def data_in_the_process() -> None:
    join()
    for _ in DataLoader(Slow()) if rank == 2 else ():
        pass
    steps()


def no_collectives() -> None:
    join()
    if rank == 0:
        compute_until_go()
    while not go():
        time.sleep(0.05)


def no_group() -> None:
    while not go():
        compute()


def a_thread_works() -> None:
    join()
    steps()
    if rank == 1:
        worker = threading.Thread(target=compute_until_go)
        worker.start()
        worker.join()
    steps()


def subgroups() -> None:
    join()
    first, rest = dist.new_group([0]), dist.new_group([1, 2])
    group = first if rank == 0 else rest
    if rank == 0:
        compute_until_go()
    else:
        while not go():
            compute()
        dist.all_reduce(ones(4), group=group)
    dist.barrier()


def many_more_in_one_group() -> None:
    join()
    pair = dist.new_group([1, 2])
    for _ in until_all_go():
        if rank:
            for _ in range(10):
                dist.all_reduce(ones(2), group=pair)
        else:
            compute()


def point_to_point() -> None:
    join()
    for _ in until_all_go():
        if rank == 0:
            dist.send(ones(4), 1)
        if rank == 1:
            dist.recv(ones(4), 0)


def waits_to_receive() -> None:
    join()
    if rank == 0:
        compute_until_go()
        dist.send(ones(4), 1)
    if rank == 1:
        dist.recv(ones(4), 0)
    dist.barrier()


def asynchronous() -> None:
    join()
    for _ in until_all_go():
        works = [dist.all_reduce(ones(4), async_op=True) for _ in range(5)]
        compute()
        for work in works:
            work.wait()


def objects_of_any_size() -> None:
    join()
    for step, _ in enumerate(until_all_go()):
        found: list[object] = [None] * size
        dist.all_gather_object(found, "x" * (rank * 1000 + step))


def a_slow_network() -> None:
    join()
    steps()
    if rank == 0:
        mine, other = socket.socketpair()
        sender = threading.Thread(target=_trickle, args=(other,))
        sender.start()
        while mine.recv(100):
            pass
        sender.join()
    dist.barrier()


def _trickle(to: socket.socket) -> None:
    while not go():
        to.sendall(bytes(100))
        time.sleep(0.005)
    to.close()


def late_to_join() -> None:
    if rank == 2:
        compute_until_go()
    join()
    steps()


def two_programs_in_turn() -> None:
    for _ in range(2):
        join()
        steps()
        if rank == 1:
            compute_until_go()
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
