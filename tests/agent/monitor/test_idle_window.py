"""When a node is idle: the mean use over a window, of GPUs, or else of processors."""

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from sgpu_decl.agent.monitor.idle_window import IdleWindow

Uses = Iterable[float]
MINUTE = 60


def alarms(uses: Uses, *, gpus: int = 1, seconds: float = 20 * MINUTE) -> list[int]:
    """The seconds at which GPUs that are all used so are idle."""
    window = IdleWindow(5.0, seconds)
    found = []
    for at, use in enumerate(uses):
        window.add(float(at), {}, [gpu(one, use) for one in range(gpus)])
        if window.to_json() is not None:
            found.append(at)
    return found


def gpu(number: int, use: float) -> dict[str, int]:
    return {"device": number, "utilisation": int(use), "memory": 1, "room": 2}


def rank(cpu: int) -> dict[str, int]:
    return {"cpu": cpu, "memory": 1, "read": 0, "written": 0}


def test_a_run_that_never_uses_its_gpus_is_found_once_the_window_is_over() -> None:
    found = alarms([0] * (21 * MINUTE))
    assert 20 * MINUTE <= found[0] <= 20 * MINUTE + 1
    assert found[-1] == 21 * MINUTE - 1


def test_a_kernel_now_and_then_keeps_nothing_from_being_idle() -> None:
    assert alarms([100 if at % 60 == 0 else 0 for at in range(21 * MINUTE)])


def test_work_ends_it() -> None:
    uses = [0] * (25 * MINUTE) + [100] * (5 * MINUTE)
    found = alarms(uses)
    assert found[-1] < 27 * MINUTE  # 5 % of 20 minutes are one


def phases(*parts: tuple[float, float]) -> list[float]:
    """`(minutes, percent)` one after the other."""
    return [use for minutes, use in parts for _ in range(int(minutes * MINUTE))]


HEALTHY: dict[str, list[float]] = {
    "busy": phases((60, 97)),
    "a long start: download, compilation": phases((15, 0), (45, 90)),
    "evaluation on the processor": phases((30, 95), (10, 0), (30, 95), (10, 0)),
    "checkpoints of five minutes each": phases(*[(10, 90), (5, 0)] * 6),
    "data loading dominates": [100 if at % 10 == 0 else 0 for at in range(60 * MINUTE)],
    "small batches": phases((60, 8)),
    "a notebook between cells": phases(*[(2, 80), (15, 0)] * 5),
    "warm up, then a long pause, then work": phases((2, 60), (17, 0), (60, 70)),
    "noise": [random.Random(at).choice((0, 0, 0, 40)) for at in range(60 * MINUTE)],
    "shorter than the window": phases((19, 0)),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_programs_give_no_alarm(name: str) -> None:
    assert alarms(HEALTHY[name], gpus=8) == []


def test_one_gpu_that_works_is_enough() -> None:
    window = IdleWindow(5.0, 10.0)
    for at in range(30):
        window.add(float(at), {}, [gpu(0, 0), gpu(1, 50)])
    assert window.to_json() is None


def test_what_is_idle_is_said() -> None:
    window = IdleWindow(5.0, 10.0)
    for at in range(30):
        window.add(float(at), {0: rank(900)}, [gpu(0, 0), gpu(1, 4)])
    assert window.to_json() == {
        "of": "gpus", "count": 2, "percent": 4.0, "limit": 5.0, "seconds": 10.0,
    }  # fmt: skip


def test_without_a_gpu_that_tells_its_use_processors_count() -> None:
    window = IdleWindow(5.0, 10.0)
    silent = [{"device": 0, "memory": 1, "room": 2}]
    for at in range(30):
        window.add(float(at), {0: rank(0), 1: rank(20)}, silent)
    assert window.to_json() == {
        "of": "processors", "count": 2, "percent": 2.0, "limit": 5.0, "seconds": 10.0,
    }  # fmt: skip
    for at in range(30, 60):
        window.add(float(at), {0: rank(0), 1: rank(1000)}, silent)
    assert window.to_json() is None


@pytest.mark.parametrize(
    "then", [lambda at: at + 86_400.0, lambda at: at - 86_400.0], ids=["slept", "set back"]
)
def test_a_clock_that_jumps_begins_anew(then: Callable[[float], float]) -> None:
    window = IdleWindow(5.0, 10.0)
    for at in range(9):
        window.add(float(at), {}, [gpu(0, 0)])
    for at in range(9):
        window.add(then(float(at + 9)), {}, [gpu(0, 0)])
        assert window.to_json() is None


def test_nothing_measured_is_not_idle() -> None:
    window = IdleWindow(5.0, 10.0)
    for at in range(60):
        window.add(float(at), {}, [])
    assert window.to_json() is None


def test_it_keeps_little_of_a_long_window() -> None:
    window: Any = IdleWindow(5.0, 100_000.0)
    for at in range(0, 300_000, 5):
        window.add(float(at), {}, [gpu(0, 0)])
    assert len(window._parts) <= 22
