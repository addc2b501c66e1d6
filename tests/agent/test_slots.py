"""Slots are held by one run at a time, also after somebody has deleted their files."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.attempt.attempt_status import request_cancel
from sgpu_decl.agent.host.slots import Slots, Waiters
from sgpu_decl.agent.system.loop import Loop
from sgpu_decl.rendering.spec import Gpus

Make = Callable[..., Any]
BLOCK = """
import os, signal
open(os.environ["SGPU_OUTPUT_DIR"] + "/" + os.environ["CUDA_VISIBLE_DEVICES"], "w").close()
while True: signal.pause()
"""
HOLDS = """
import fcntl, os, sys
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("deleted", ["the file", "the folder"])
def test_a_gpu_whose_lock_file_was_deleted_stays_with_its_run(
    make_attempt: Make, tmp_path: Path, deleted: str
) -> None:
    locks = tmp_path / "locks"
    gpus = Gpus(lock_dir=str(locks), devices=("0",), need=1)
    first = make_attempt(BLOCK, gpus=gpus, world_size=1).launch()
    first.until(lambda: (first.folder / "output/0").exists())
    (locks / "slot-0").unlink()
    if deleted == "the folder":
        for path in locks.iterdir():
            path.unlink()
        locks.rmdir()

    second = make_attempt(BLOCK, gpus=gpus, world_size=1).launch()
    second.until(lambda: second.read().get("waiting_for") == "gpus")
    third = make_attempt(BLOCK, gpus=gpus, world_size=1).launch()
    third.until(lambda: third.read().get("waiting_for") == "gpus")
    assert not (second.folder / "output/0").exists()
    request_cancel(str(first.folder))
    second.until(lambda: (second.folder / "output/0").exists())
    first.until(lambda: first.read()["state"] == "cancelled")
    assert third.read()["state"] == "queued"

    request_cancel(str(second.folder))
    third.until(lambda: (third.folder / "output/0").exists())
    request_cancel(str(third.folder))
    third.until_gone()


def test_a_file_that_is_deleted_while_it_is_awaited_is_not_the_slot_any_more(
    loop: Loop, tmp_path: Path
) -> None:
    """An older sgpu holds the slot; its file is deleted, and a newer one takes its place."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path / "slot-0")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdout.readline()
    waiters, ours = Waiters(loop), Slots(str(tmp_path), ["0"], 1)
    got: list[str] = []
    ours.acquire(waiters, lambda: got.extend(ours.names))
    (tmp_path / "slot-0").unlink()
    holder.stdin.close()
    holder.stdout.close()
    holder.wait()
    while not got:
        loop.turn()
    other = os.open(tmp_path / "slot-0", os.O_RDWR)
    ours.touch()
    assert Path(tmp_path, "slot-0").read_bytes() == b"1"
    ours.release()
    os.close(other)
