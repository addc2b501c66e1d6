"""What a preflight does in one process, for one device: see `preflight`. The Python of the run
executes this source by `-c`, so it stands alone.

A GPU multiplies matrices by torch, as long as it is given, and its sustained speed counts. Where
torch sees no GPU, a processor does it, by torch or without; there the fastest product counts, since
other programs may take the processor in between. Then torch adds up a tensor over all processes.

    python -c SOURCE SLOT SLOTS SECONDS FOLDER DESCRIPTOR

Lines of JSON go to the descriptor: `ready` with the `name` and `uuid` of the GPU, the `stage` that
begins, at last `multiply` in GFLOP/s and `all_reduce` in GB/s. Or an `error`. It begins to measure
once it can read a byte from stdin.
"""

from __future__ import annotations

import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

STORE = "store"  # the file by which the processes meet
_SHORT = 2.0  # seconds that are enough for processors
_GPU_SIDE, _SIDE, _PLAIN_SIDE = 8192, 256, 32  # of the matrices
_GPU_FLOATS, _FLOATS = 1 << 26, 1 << 20  # of the tensor that is added up
_AT_ONCE = 5  # products between two looks at the clock of a GPU


def main(argv: list[str]) -> None:
    slot, slots, seconds, folder, descriptor = argv
    pipe = int(descriptor)

    def tell(**values: object) -> None:
        os.write(pipe, json.dumps(values).encode() + b"\n")

    try:
        _measure(int(slot), int(slots), float(seconds), folder, tell)
    except Exception as error:
        tell(error=f"{type(error).__name__}: {error}"[:1000])
        raise
    sys.stderr.flush()
    os._exit(0)  # the end of a library says nothing about a device


def _measure(slot: int, slots: int, seconds: float, folder: str, tell: Callable[..., None]) -> None:
    torch = _torch()
    device = None
    if torch is not None and torch.cuda.is_available() and torch.cuda.device_count() > slot:
        device = torch.device("cuda", slot)
        torch.cuda.set_device(device)
        about = torch.cuda.get_device_properties(device)
        uuid = getattr(about, "uuid", None)
        tell(ready=True, name=about.name, uuid=f"GPU-{uuid}" if uuid else None)
    else:
        tell(ready=True, name=None, uuid=None)
        seconds = min(seconds, _SHORT)
    if not sys.stdin.buffer.read(1):
        return  # nobody waits any more
    together = slots > 1 and torch is not None and torch.distributed.is_available()
    each = seconds / 2 if together else seconds
    tell(stage="multiply")
    on_gpu = device is not None
    speed = _gpu_speed(torch, device, each) if on_gpu else _processor_speed(torch, each)
    found: dict[str, Any] = {"multiply": round(speed, 3)}
    if together:
        tell(stage="all-reduce")
        found["all_reduce"] = round(_sum_up(torch, device, slot, slots, each, folder), 3)
    tell(**found)


def _torch() -> Any:
    if sys.path[:1] == [""]:
        del sys.path[0]  # modules of the run's code are not meant
    try:
        import torch
        import torch.distributed
    except ImportError:
        return None
    return torch


def _gpu_speed(torch: Any, device: Any, seconds: float) -> float:
    side = _GPU_SIDE
    left = torch.randn(side, side, device=device, dtype=torch.float16)
    right = torch.randn(side, side, device=device, dtype=torch.float16)
    result = left @ right  # libraries are loaded by the first one
    torch.cuda.synchronize(device)
    speeds: list[float] = []
    until = time.monotonic() + seconds
    while not speeds or time.monotonic() < until:
        began = time.monotonic()
        for _ in range(_AT_ONCE):
            torch.mm(left, right, out=result)
        torch.cuda.synchronize(device)
        speeds.append(2e-9 * _AT_ONCE * side**3 / (time.monotonic() - began))
    late = sorted(speeds[len(speeds) // 2 :])  # it is warm by then
    return late[len(late) // 2]


def _processor_speed(torch: Any, seconds: float) -> float:
    if torch is None:
        side = _PLAIN_SIDE
        rows = [[float(row * side + column) for column in range(side)] for row in range(side)]
        product: Callable[[], object] = lambda: _product(rows, rows)  # noqa: E731
    else:
        side = _SIDE
        torch.set_num_threads(1)
        matrix = torch.ones(side, side)
        product = lambda: torch.mm(matrix, matrix)  # noqa: E731
    product()
    fastest = float("inf")
    until = time.monotonic() + seconds
    while fastest == float("inf") or time.monotonic() < until:
        began = time.perf_counter()
        product()
        fastest = min(fastest, max(1e-9, time.perf_counter() - began))
    return 2e-9 * side**3 / fastest


def _product(left: list[list[float]], right: list[list[float]]) -> list[list[float]]:
    columns = list(zip(*right))  # noqa: B905  Python 3.9 has no `strict`
    return [[sum(map(float.__mul__, row, column)) for column in columns] for row in left]


def _sum_up(torch: Any, device: Any, slot: int, slots: int, seconds: float, folder: str) -> float:
    group = torch.distributed
    kind = "nccl" if device is not None and group.is_nccl_available() else "gloo"
    store = group.FileStore(os.path.join(folder, STORE), slots)
    group.init_process_group(kind, store=store, rank=slot, world_size=slots)
    length = _FLOATS if device is None else _GPU_FLOATS
    tensor = torch.empty(length, device=device)

    def rounds(count: int) -> float:
        began = time.monotonic()
        for _ in range(count):
            tensor.fill_(float(slot + 1))
            group.all_reduce(tensor)
        if device is not None:
            torch.cuda.synchronize(device)
        return time.monotonic() - began

    rounds(1)  # connections are made by the first one
    took = torch.tensor([rounds(2) / 2], device=device)
    group.all_reduce(took, op=group.ReduceOp.MAX)  # so that all go as many rounds
    count = max(1, int(seconds / max(1e-6, float(took[0]))))
    speed = 4e-9 * length * count / rounds(count)
    expected = slots * (slots + 1) / 2
    low, high = float(tensor.min()), float(tensor.max())
    if low != expected or high != expected:
        raise ArithmeticError(
            f"the all-reduce gave {low:g} to {high:g} in the place of {expected:g}"
        )
    group.destroy_process_group()
    return speed


if __name__ == "__main__":
    main(sys.argv[1:])
