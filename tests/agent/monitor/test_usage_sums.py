"""What the ranks of a node used in all: means by time, peaks, several starts, several nodes."""

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from sgpu_decl.agent.attempt.monitor_files import MONITOR, USAGE, usage_in
from sgpu_decl.agent.monitor.usage_sums import UsageSums, one_after_another, side_by_side
from sgpu_decl.model.run_usage import RunUsage
from tests.progress_reports import REPORT

GIB = 1 << 30


def sums(**more: Any) -> UsageSums:
    return UsageSums(processors=4, memory=8 * GIB, gpu_name="NVIDIA L4", **more)


def rank(cpu: int, memory: int) -> dict[str, int]:
    return {"cpu": cpu, "memory": memory, "read": 0, "written": 0}


def gpu(number: int, utilisation: int, memory: int = 100) -> dict[str, int]:
    return {"device": number, "utilisation": utilisation, "memory": memory, "room": 23_034}


def test_means_are_weighted_by_time_and_peaks_are_the_highest() -> None:
    used = sums()
    assert used.to_json() is None
    used.add(100.0, {}, [gpu(0, 0), gpu(1, 0)])
    used.add(101.0, {0: rank(1000, 50), 1: rank(500, 70)}, [gpu(0, 100), gpu(1, 0)])
    used.add(104.0, {0: rank(0, 90), 1: rank(500, 10)}, [gpu(0, 20, 9_000), gpu(1, 0)])
    assert used.to_json() == {
        "seconds": 4.0, "nodes": 1, "processors": 0.75, "processors_there": 4, "memory": 120,
        "memory_there": 8192, "gpus": 2, "gpu_name": "NVIDIA L4", "gpu_percent": 20.0,
        "gpus_unused": 1, "gpu_memory": 9_000, "gpu_memory_there": 23_034,
    }  # fmt: skip


def test_a_clock_that_jumps_and_a_machine_that_slept_count_little() -> None:
    used = sums()
    for clock, share in ((0.0, 0), (10.0, 100), (9.0, 100), (90_000.0, 0)):
        used.add(clock, {}, [gpu(0, share)])
    found = used.to_json() or {}
    assert (found["seconds"], found["gpu_percent"]) == (20.0, 50.0)


def test_without_a_gpu_nothing_is_said_of_gpus() -> None:
    used = sums()
    used.add(0.0, {}, [])
    used.add(1.0, {0: rank(500, 50)}, [])
    found = used.to_json() or {}
    assert found["processors"] == 0.5
    assert not [name for name in found if name.startswith("gpu")]


def test_what_nvml_does_not_tell_is_not_said() -> None:
    used = sums()
    for clock in (0.0, 1.0):
        used.add(clock, {}, [{"device": 0, "memory": 7, "room": 9}])
    found = used.to_json() or {}
    assert (found["gpus"], found["gpu_memory"]) == (1, 7)
    assert "gpu_percent" not in found
    assert "gpus_unused" not in found


def test_ranks_that_start_again_go_on_counting() -> None:
    first = {"seconds": 3.0, "gpu_percent": 40.0, "gpus": 1, "gpus_unused": 0, "gpu_memory": 50,
             "gpu_memory_there": 99, "processors": 1.0}  # fmt: skip
    again = sums(before=first)
    assert again.to_json() == first
    again.add(0.0, {}, [gpu(0, 0)])
    again.add(1.0, {0: rank(3000, 5)}, [gpu(0, 0)])
    found = again.to_json() or {}
    assert (found["seconds"], found["gpu_percent"], found["processors"]) == (4.0, 30.0, 1.5)
    assert (found["gpus_unused"], found["gpu_memory"], found["memory"]) == (0, 100, 5)
    assert one_after_another(first, first)["seconds"] == 6.0


def test_nodes_add_up() -> None:
    one = {"seconds": 9.0, "nodes": 1, "processors": 1.5, "processors_there": 4, "memory": 5,
           "memory_there": 10, "gpus": 2, "gpu_percent": 30.0, "gpus_unused": 1,
           "gpu_memory": 7, "gpu_memory_there": 80}  # fmt: skip
    other = {**one, "seconds": 8.0, "memory": 9, "memory_there": 20, "gpus": 6, "gpu_percent": 10.0}
    assert side_by_side([one, other]) == {
        "seconds": 9.0, "nodes": 2, "processors": 3.0, "processors_there": 8, "memory": 9,
        "memory_there": 20, "gpus": 8, "gpu_percent": 15.0, "gpus_unused": 2,
        "gpu_memory": 7, "gpu_memory_there": 80,
    }  # fmt: skip
    assert side_by_side([one]) == one


@pytest.mark.parametrize(
    "used",
    [
        None, [], "much", {}, {"seconds": "1"}, {"seconds": math.nan}, {"seconds": -1.0},
        {"gpus": 3},
    ],
)  # fmt: skip
def test_what_is_no_usage_is_left_out(used: object) -> None:
    assert usage_in({"usage": used}) == {}


def test_of_what_anybody_may_have_written_only_numbers_count() -> None:
    used = {"seconds": 1.0, "gpus": "8", "gpu_name": 3, "memory": math.inf, "script": "x" * 10_000}
    assert usage_in({"usage": used}) == {"seconds": 1.0}


def test_readers_know_the_same_names() -> None:
    assert [one.name for one in dataclasses.fields(RunUsage)] == list(USAGE)


def test_the_outcome_says_what_ranks_used(make_attempt: Callable[..., Any]) -> None:
    attempt = make_attempt(
        f"{REPORT}\nreport(0)\nmemory = bytearray(100 << 20)\n"
        "while not os.path.exists(out + '/go'):\n    sum(range(20_000))\n"
    ).launch()
    attempt.until(lambda: (attempt.read().get("usage") or {}).get("memory"))
    (attempt.folder / "output" / "go").touch()
    used = attempt.wait()["usage"]
    assert used["memory"] >= 100
    assert 0 < used["processors"] <= 1.1 * used["processors_there"]
    assert used == json.loads(attempt.text(MONITOR))["usage"]


def test_the_outcome_of_several_nodes_adds_them_up(make_nodes: Any) -> None:
    nodes = make_nodes(f"{REPORT}\ndef main():\n    report(0)\n    await_file('go')\n").all()
    seen = [nodes.folder(number) / MONITOR for number in (0, 1)]
    nodes.attempt.until(
        lambda: all(one.exists() and json.loads(one.read_text())["usage"] for one in seen)
    )
    (nodes.attempt.folder / "output" / "go").touch()
    assert nodes.wait() == [0, 0]
    used = nodes.read()["usage"]
    assert used["nodes"] == 2
    assert used["processors_there"] == 2 * nodes.read(1)["usage"]["processors_there"]
