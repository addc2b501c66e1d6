"""torch in ranks: the rendezvous works and listens on loopback alone."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from sgpu_decl.rendering.spec import Entry

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


@pytest.mark.torch
def test_the_rendezvous_listens_on_loopback_alone(make_attempt: Callable[..., Any]) -> None:
    pytest.importorskip("torch")
    entry = Entry(kind="file_function", path="main.py", function="main")
    attempt = make_attempt(SOURCE, entry=entry).launch()
    attempt.until(lambda: attempt.read()["state"] in ("succeeded", "failed"), 90)
    assert attempt.read()["state"] == "succeeded", attempt.log(0, "stderr")
    for rank in (0, 1):
        total, listeners = json.loads(attempt.text(f"ranks/{rank}/output.json"))
        assert total == 3.0
        assert [address.partition(":")[0] for address in listeners] == ["0100007F"]
