"""torch in ranks: the rendezvous is quick and on loopback alone, and a fork breaks nothing."""

import ctypes
import shlex
import socket
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.rank.store_loopback import NoNameServer, await_listener
from sgpu_decl.rendering.spec import Entry, Warm
from tests.support import PATIENCE, require

pytestmark = pytest.mark.torch
FUNCTION = Entry(kind="file_function", path="main.py", function="main")
WARM = Warm(
    imports=(
        ("torch", ()),
        ("torch.distributed", ()),
        ("torch.utils.data", ("DataLoader", "Dataset")),
        ("numpy", ()),
    )
)
SOURCE = """
import os

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    total = torch.ones(1) * (dist.get_rank() + 1)
    dist.all_reduce(total)
    port = "%04X" % int(os.environ["MASTER_PORT"])
    found = []
    for name in ("tcp", "tcp6"):
        with open("/proc/net/" + name) as file:
            rows = [line.split() for line in file][1:]
        found += [row[1] for row in rows if row[3] == "0A" and row[1].endswith(":" + port)]
    dist.barrier()
    dist.destroy_process_group()
    return [total.item(), found]
"""


@pytest.mark.expensive
@pytest.mark.parametrize("warm", [None, WARM], ids=["cold", "warm"])
def test_the_rendezvous_listens_on_loopback_alone(
    make_attempt: Callable[..., Any], warm: Warm | None
) -> None:
    require("torch")
    attempt = make_attempt(SOURCE, entry=FUNCTION, warm=warm).launch()
    for total, listeners in attempt.values():
        assert total == 3.0
        assert [address.partition(":")[0] for address in listeners] == ["0100007F"]
    assert not attempt.events("cold_start")


WORK = """
import json
import os
import pickle

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return index**2


def double(rank, queue):
    queue.put(2.0)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    torch.set_num_threads(2)
    big = torch.ones(600, 600)
    product = (big @ big).sum().item() / 600**3
    loaded = sum(batch.sum().item() for batch in DataLoader(Squares(), 4, num_workers=2))
    queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
    if dist.get_rank() == 0:
        torch.multiprocessing.spawn(double, (queue,), nprocs=1)
        assert queue.get() == 2.0
    assert len(pickle.loads(pickle.dumps(Squares()))) == 8
    layer = torch.nn.Linear(4, 4)
    layer(torch.ones(1, 4)).sum().backward()
    seeds = [torch.initial_seed(), torch.rand(1).item(), numpy.random.rand()]
    dist.destroy_process_group()
    found = [total.item(), product, loaded, torch.cuda.is_initialized(), seeds]
    folder = os.environ["SGPU_RUN_DIR"] + "/ranks/" + os.environ["RANK"]
    with open(folder + "/output.json", "w") as file:
        json.dump(found, file)
"""


@pytest.mark.expensive
def test_torch_works_in_ranks_that_were_forked(make_attempt: Callable[..., Any]) -> None:
    require("torch")
    entry = Entry(kind="script", path="main.py")
    attempt = make_attempt(WORK, entry=entry, world_size=4, warm=WARM).launch()
    found = attempt.values()
    assert not attempt.events("cold_start")
    assert [rank[:3] for rank in found] == [[4.0, 1.0, 140]] * 4
    for numbers in zip(*(rank[4] for rank in found), strict=True):
        assert len(set(numbers)) == 4
    assert not attempt.left()


ON_A_GPU = """
import torch

def main():
    assert not torch.cuda.is_initialized()
    return torch.ones(4, device="cuda").sum().item()
"""


@pytest.mark.parametrize("used", [False, True], ids=["after the fork", "by an import"])
def test_cuda_is_first_used_in_ranks(
    make_attempt: Callable[..., Any], tmp_path: Path, used: bool
) -> None:
    require("torch")
    if not Path("/dev/nvidia0").exists():
        pytest.skip("this machine has no NVIDIA GPU")
    (tmp_path / "ahead.py").write_text("import torch\ntorch.ones(1, device='cuda')" if used else "")
    warm = Warm(imports=(("torch", ()), ("ahead", ())))
    env = {"PYTHONPATH": str(tmp_path)}
    attempt = make_attempt(ON_A_GPU, entry=FUNCTION, warm=warm, env=env).launch()
    assert attempt.values() == [4.0, 4.0]
    assert bool(attempt.events("cold_start")) == used


def test_the_store_is_sought_without_a_name_server() -> None:
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "__res_state"):
        pytest.skip("another C library than glibc")
    libc.__res_state.restype = ctypes.c_void_p

    def servers() -> bytes:
        libc.__res_init()
        return ctypes.string_at(libc.__res_state() + 16, 20)

    seen: list[bytes] = []
    before = servers()
    with NoNameServer():
        # As torch does, without the interpreter's lock; older Pythons hold it in `getnameinfo`.
        address = socket.inet_pton(socket.AF_INET6, "::ffff:127.0.0.1")
        asked = struct.pack("=H", socket.AF_INET6) + struct.pack("!HI16sI", 1, 0, address, 0)
        name, service = ctypes.create_string_buffer(64), ctypes.create_string_buffer(8)
        flags = int(socket.NI_NUMERICSERV)
        assert libc.getnameinfo(asked, len(asked), name, 64, service, 8, flags) == 0
        assert (name.value, service.value) == (b"::ffff:127.0.0.1", b"1")
        with pytest.raises(socket.gaierror, match="not known"):
            socket.getaddrinfo("somewhere.example", None)
        other = threading.Thread(target=lambda: seen.append(servers()))
        other.start()
        other.join()
    assert [ctypes.string_at(libc.__res_state() + 16, 20), *seen] == [before, before]


def test_a_rank_that_is_early_waits_for_the_listener() -> None:
    with socket.socket() as late:
        late.bind(("127.0.0.1", 0))
        port = late.getsockname()[1]
        waiting = threading.Thread(target=await_listener, args=("127.0.0.1", port))
        waiting.start()
        late.listen()
        late.settimeout(PATIENCE)
        late.accept()[0].close()
        waiting.join(PATIENCE)
    assert not waiting.is_alive()


UNDER_TORCHRUN = """
import os
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    folder = os.environ["SGPU_OUTPUT_DIR"] + "/rank" + os.environ["RANK"]
    with open(folder, "w") as file:
        file.write(str(total.item()))
    dist.destroy_process_group()
    if os.environ["RANK"] == "1" and os.environ.get("FAIL"):
        raise ValueError("of rank 1")

main()
"""


@pytest.mark.expensive
def test_a_launcher_inside_of_a_run_starts_the_ranks_of_its_node(
    make_attempt: Callable[..., Any],
) -> None:
    require("torch")
    line = (
        f"{shlex.quote(sys.executable)} -m torch.distributed.run"
        " --nnodes $NUM_NODES --node-rank $NODE_RANK --nproc-per-node $LOCAL_WORLD_SIZE"
        " --master-addr $MASTER_ADDR --master-port $MASTER_PORT main.py"
    )
    entry = Entry(kind="shell", shell=line)
    attempt = make_attempt(UNDER_TORCHRUN, entry=entry, per="node").launch()
    attempt.until(lambda: attempt.read()["state"] in ("succeeded", "failed"))
    assert attempt.read()["state"] == "succeeded", attempt.log(0, "stderr")
    told = [attempt.text(f"output/rank{rank}") for rank in range(2)]
    assert told == ["2.0", "2.0"]
    attempt.until_gone()


@pytest.mark.expensive
def test_a_script_for_torchrun_runs_unchanged_and_its_record_is_read(
    make_attempt: Callable[..., Any],
) -> None:
    require("torch")
    entry = Entry(kind="script", path="main.py")
    attempt = make_attempt(UNDER_TORCHRUN, entry=entry, warm=WARM, env={"FAIL": "1"}).launch()
    attempt.until(lambda: attempt.read()["state"] in ("succeeded", "failed"))
    cause = attempt.read()["first_cause"]
    assert (cause["rank"], cause["class"]) == (1, "exception")
    assert cause["summary"] == "ValueError: of rank 1"
    assert "main.py" in cause["traceback"]
    assert attempt.text("output/rank0") == "2.0"
    attempt.until_gone()
