"""The preflight before ranks: healthy devices pass, others are named, and nothing is left."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.attempt.attempt_status import request_cancel
from sgpu_decl.agent.ranks.preflight import slow_devices
from sgpu_decl.rendering.spec import PreflightSpec, RetrySpec

Make = Callable[..., Any]
# On a busy machine, healthy processors differ by half.
SHORT = PreflightSpec(seconds=0.2, least=0.2)


@pytest.fixture
def hooked(make_attempt: Make, tmp_path: Path) -> Make:
    """Make an attempt whose Python runs this first, in processes of the preflight alone; torch is
    not there, which is quicker, unless it is asked for."""

    def make(hook: str = "", *, torch: bool = False, **fields: Any) -> Any:
        folder = tmp_path / "hook"
        folder.mkdir()
        hidden = "" if torch else "sys.modules['torch'] = None\n"
        lines = f"import os, sys, time\n{hidden}slot = os.environ['LOCAL_RANK']\n{hook}"
        inner = "\n".join(f"    {line}" for line in lines.splitlines())
        text = f"import sys\nif sys.argv[:1] == ['-c']:\n{inner}\n"
        (folder / "sitecustomize.py").write_text(text)
        fields.setdefault("preflight", SHORT)
        return make_attempt("", env={"PYTHONPATH": str(folder)}, **fields)

    return make


# What makes the product of one slot slow, by the function that the plain one calls most.
SLOW = """
if slot == '1':
    import builtins
    fast = builtins.zip
    def zip(*rows):
        time.sleep(0.05)
        return fast(*rows)
    builtins.zip = zip
"""


def test_healthy_devices_pass(hooked: Make) -> None:
    attempt = hooked().launch()
    assert attempt.wait()["state"] == "succeeded"
    (event,) = attempt.events("preflight")
    assert [one["device"] for one in event["devices"]] == [0, 1]
    assert all(one["gflops"] > 0 and one["name"] is None for one in event["devices"])
    assert json.loads(attempt.text("outcome.json"))["preflight"] == event["devices"]
    started = {event["pid"] for event in attempt.events("preflight_started")}
    assert len(started) == 2
    attempt.check()
    attempt.until_gone()


@pytest.mark.expensive
def test_torch_also_adds_up_over_all_processes(hooked: Make) -> None:
    attempt = hooked(torch=True, preflight=PreflightSpec(seconds=0.4, least=0.2)).launch()
    assert attempt.wait()["state"] == "succeeded"
    (event,) = attempt.events("preflight")
    assert all(one["all_reduce_gb_per_s"] > 0 for one in event["devices"])


def test_a_slow_device_is_named_and_no_rank_starts(hooked: Make) -> None:
    ended = (attempt := hooked(SLOW, world_size=3).launch()).wait()
    assert (ended["state"], ended["class"]) == ("failed", "launch_failed")
    summary = ended["first_cause"]["summary"]
    assert summary.startswith("processor 1 of node 0 multiplies at ")
    assert summary.endswith(" % of the others")
    assert attempt.events("rank_started") == []
    attempt.check()
    attempt.until_gone()


# A torch that sees two GPUs, one of which is slow.
GPUS = """
from types import ModuleType, SimpleNamespace as Space
torch, torch.cuda, torch.distributed = ModuleType("torch"), Space(), ModuleType("distributed")
sys.modules |= {"torch": torch, "torch.distributed": torch.distributed}
class Matrix:
    def __matmul__(self, other): return self
torch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: 2
torch.cuda.set_device = torch.cuda.synchronize = lambda device: None
torch.cuda.get_device_properties = lambda device: Space(name="NVIDIA H100", uuid="7c-%d" % device)
torch.distributed.is_available = lambda: False
torch.device, torch.float16 = lambda kind, number: number, None
torch.randn = lambda *size, **options: Matrix()
torch.mm = lambda left, right, out: time.sleep(0.001 if slot == "0" else 0.05)
"""


def test_a_slow_gpu_is_named_with_its_model_and_uuid(hooked: Make) -> None:
    ended = (attempt := hooked(GPUS).launch()).wait()
    assert (ended["state"], ended["class"]) == ("failed", "launch_failed")
    summary = ended["first_cause"]["summary"]
    assert summary.startswith("gpu 1 of node 0 (NVIDIA H100, GPU-7c-1) multiplies at ")
    (event,) = attempt.events("preflight")
    assert [one["uuid"] for one in event["devices"]] == ["GPU-7c-0", "GPU-7c-1"]
    attempt.check()


def test_it_comes_before_each_start_of_the_ranks(hooked: Make) -> None:
    retry = RetrySpec(max=1, on=("infra",), backoff=0.01)
    ended = (attempt := hooked(SLOW, retry=retry).launch()).wait()
    assert (ended["state"], ended["class"], ended["restart"]) == ("failed", "launch_failed", 1)
    assert len(attempt.events("preflight")) == 2
    assert attempt.events("rank_started") == []
    attempt.check()


@pytest.mark.parametrize(
    ("hook", "why"),
    [
        ("if slot == '1': os.kill(os.getpid(), 11)", "it was ended by SIGSEGV"),
        ("if slot == '1': os._exit(3)", "it exited with 3"),
        (
            "if slot == '1': time.perf_counter = None",
            "TypeError: 'NoneType' object is not callable",
        ),
    ],
)
def test_a_device_that_fails_is_named(hooked: Make, hook: str, why: str) -> None:
    ended = (attempt := hooked(hook).launch()).wait()
    assert (ended["state"], ended["class"]) == ("failed", "launch_failed")
    summary = ended["first_cause"]["summary"]
    assert summary == f"processor 1 of node 0 failed in the preflight: {why}"
    if "TypeError" in why:
        assert "Traceback" in ended["first_cause"]["traceback"]
    attempt.check()
    attempt.until_gone()


@pytest.mark.parametrize(
    ("hook", "where"),
    [
        ("if slot == '1': time.sleep(600)", "before it measured anything"),
        ("if slot == '1': time.perf_counter = lambda: time.sleep(600)", "in its multiply"),
    ],
)
def test_a_device_that_hangs_is_named(hooked: Make, hook: str, where: str) -> None:
    limits = PreflightSpec(seconds=0.2, least=0.2, patience=6.0)
    ended = (attempt := hooked(hook, preflight=limits).launch()).wait()
    assert (ended["state"], ended["class"]) == ("failed", "launch_failed")
    assert ended["first_cause"]["summary"].startswith("the preflight did not end in time: ")
    assert ended["first_cause"]["summary"].endswith(f" is {where}")
    attempt.check()
    attempt.until_gone()


def test_a_python_that_is_not_there(make_attempt: Make) -> None:
    attempt = make_attempt("", preflight=SHORT, python="/no/such/python").launch()
    ended = attempt.wait()
    assert (ended["state"], ended["class"]) == ("failed", "launch_failed_user")
    attempt.check()


def test_a_cancel_ends_it(hooked: Make) -> None:
    attempt = hooked("time.sleep(600)").launch()
    attempt.until(lambda: attempt.read().get("waiting_for") == "preflight")
    assert attempt.read()["state"] == "starting"
    request_cancel(attempt.folder)
    assert attempt.wait()["state"] == "cancelled"
    assert attempt.events("rank_started") == []
    attempt.check()
    attempt.until_gone()


def test_the_startup_timeout_ends_it(hooked: Make) -> None:
    ended = (attempt := hooked("time.sleep(600)", startup_timeout=0.5).launch()).wait()
    assert (ended["state"], ended["class"]) == ("failed", "timeout")
    assert "startup_timeout" in ended["first_cause"]["summary"]
    attempt.until_gone()


@pytest.mark.parametrize(
    ("speeds", "slow"),
    [
        ({}, {}),
        ({0: ("H100", 1.0)}, {}),
        ({0: ("H100", 100.0), 1: ("H100", 41.0)}, {1: 0.41}),
        ({0: ("H100", 100.0), 1: ("H100", 70.0)}, {}),
        ({0: ("H100", 100.0), 1: ("L4", 10.0)}, {}),
        ({key: ("H100", 100.0 if key != 3 else 41.0) for key in range(8)}, {3: 0.41}),
        ({key: ("H100", 100.0 if key > 1 else 41.0) for key in range(8)}, {0: 0.41, 1: 0.41}),
    ],
)
def test_a_device_is_compared_with_others_of_its_kind(
    speeds: dict[int, tuple[object, float]], slow: dict[int, float]
) -> None:
    assert slow_devices(speeds, 0.7) == pytest.approx(slow)
