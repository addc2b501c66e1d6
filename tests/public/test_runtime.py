"""What a process that is no rank is told, and one that has only some of a rank's variables."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from sgpu_decl import runtime
from sgpu_decl.errors import RankUnknown
from tests.support import require

NAMES = {
    "RANK": runtime.get_global_rank,
    "LOCAL_RANK": runtime.get_local_rank,
    "NODE_RANK": runtime.get_node_rank,
    "REPLICA_RANK": runtime.get_replica_rank,
    "WORLD_SIZE": runtime.get_world_size,
    "LOCAL_WORLD_SIZE": runtime.get_local_world_size,
}
ALONE = """
import json
import torch
import torch.distributed as dist
from sgpu_decl import runtime
from sgpu_decl.errors import RankUnknown

runtime.init_process_group(timeout=30)
total = torch.ones(1)
dist.all_reduce(total)
seen = [runtime.get_global_rank(), runtime.get_local_rank(), runtime.get_world_size(), total.item()]
dist.destroy_process_group()

from torch.testing._internal.distributed.fake_pg import FakeStore
runtime.init_process_group("fake", rank=2, world_size=4, store=FakeStore())
seen += [runtime.get_global_rank(), runtime.get_world_size()]
try:
    runtime.get_local_rank()
except RankUnknown as error:
    seen.append(error.message)
print(json.dumps(seen))
"""


@pytest.fixture(autouse=True)
def no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("name", "ask"), NAMES.items(), ids=list(NAMES))
def test_a_process_that_is_no_rank_is_the_only_one(name: str, ask: Callable[[], int]) -> None:
    assert ask() == (1 if name.endswith("SIZE") else 0)


@pytest.mark.parametrize(("name", "ask"), NAMES.items(), ids=list(NAMES))
def test_a_process_with_other_variables_of_a_rank_is_not_taken_for_the_only_one(
    monkeypatch: pytest.MonkeyPatch, name: str, ask: Callable[[], int]
) -> None:
    for other in NAMES.keys() - {name}:
        monkeypatch.setenv(other, "4")
    with pytest.raises(RankUnknown, match=f"`{name}` is not set, though") as caught:
        ask()
    assert caught.value.hint
    monkeypatch.setenv(name, "3")
    assert ask() == 3


@pytest.mark.parametrize("text", ["", "-1", "two", "1.0", "²"])
def test_what_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("RANK", text)
    with pytest.raises(RankUnknown, match="`RANK` must be a whole number, not `"):
        runtime.get_global_rank()


def test_the_address_of_a_node_is_that_of_its_way_to_rank_0(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    assert runtime.get_node_ip() == "127.0.0.1", "no rank: nobody else is to reach it"
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(RankUnknown, match="`MASTER_ADDR` is not set, though"):
        runtime.get_node_ip()
    monkeypatch.setenv("MASTER_ADDR", "no such host")
    with pytest.raises(RankUnknown, match="no way from this node to `no such host`") as caught:
        runtime.get_node_ip()
    assert "MASTER_ADDR" in str(caught.value.hint)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    assert runtime.get_node_ip() == "127.0.0.1"


@pytest.mark.expensive
@pytest.mark.torch
def test_a_group_is_believed_where_the_environment_says_nothing() -> None:
    require("torch")
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    told = "`LOCAL_RANK` is not set, though a process group is up"
    assert json.loads(done.stdout) == [0, 0, 1, 1.0, 2, 4, told]
