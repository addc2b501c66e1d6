"""What an attempt used, in words, and how many GPUs would do."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView, status_fields
from sgpu_decl.model.run_usage import (
    RunUsage,
    joined_usage,
    usage_advice,
    usage_in,
    usage_words,
)
from sgpu_decl.views.status_text import usage_line

USED = RunUsage(
    seconds=3600.0, nodes=1, processors=8.2, processors_there=96.0, memory=12_000,
    memory_there=980_000, gpus=8, gpu_name="NVIDIA H100 80GB HBM3", gpu_percent=11.0,
    gpus_unused=0, gpu_memory=9_300, gpu_memory_there=81_559,
)  # fmt: skip
ON_CPU = RunUsage(
    seconds=600.0, processors=1.93, processors_there=16.0, memory=3_000, memory_there=64_000
)
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("changes", "words", "advice"),
    [
        ({}, "used 11 % of 8 H100 and at most 9 of 80 GB", "1 GPU would do"),
        ({"gpu_percent": 13.0}, "used 13 % of 8 H100 and at most 9 of 80 GB", "2 GPUs would do"),
        ({"gpu_percent": 96.0}, "used 96 % of 8 H100 and at most 9 of 80 GB", ""),
        # The memory of all does not fit into one.
        ({"gpu_memory": 60_000}, "used 11 % of 8 H100 and at most 59 of 80 GB", ""),
        ({"gpu_memory": 30_000}, "used 11 % of 8 H100 and at most 29 of 80 GB", "3 GPUs would do"),
        ({"gpus_unused": 7}, "used 11 % of 8 H100 (7 of them never) and at most 9 of 80 GB",
         "1 GPU would do"),
        ({"gpus_unused": 8, "gpu_percent": 0.0, "gpu_memory": 300},
         "used 0 % of 8 H100 and at most 0.3 of 80 GB", "no GPU was needed"),
        ({"gpu_percent": 0.3}, "used under 1 % of 8 H100 and at most 9 of 80 GB",
         "1 GPU would do"),
        ({"gpus": 1}, "used 11 % of 1 H100 and at most 9 of 80 GB", ""),
        ({"seconds": 20.0}, "used 11 % of 8 H100 and at most 9 of 80 GB", ""),
        ({"gpu_name": None}, "used 11 % of 8 GPUs and at most 9 of 80 GB", "1 GPU would do"),
        ({"gpu_name": "NVIDIA A10G", "gpu_memory_there": 23_028, "gpus": 4},
         "used 11 % of 4 A10 and at most 10 of 24 GB", "2 GPUs would do"),
        # MIG: NVML tells nothing of use.
        ({"gpu_percent": None}, "used at most 9 of 80 GB of each of 8 H100", ""),
        ({"gpu_memory": None}, "used 11 % of 8 H100", ""),
    ],
)  # fmt: skip
def test_gpus_in_words(changes: dict[str, Any], words: str, advice: str) -> None:
    usage = replace(USED, **changes)
    assert (usage_words(usage), usage_advice(usage)) == (words, advice)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "used 1.9 of 16 processors and at most 3.1 GB of 67.1 GB memory"),
        ({"processors_there": 1.0}, "used 1.9 of 1 processor and at most 3.1 GB of 67.1 GB memory"),
        ({"processors_there": 0.5, "memory": None}, "used 1.9 of 0.5 processors"),
        ({"processors": None, "memory_there": None}, "used at most 3.1 GB memory"),
        ({"processors": None, "memory": None}, ""),
    ],
)
def test_processors_in_words(changes: dict[str, Any], words: str) -> None:
    usage = replace(ON_CPU, **changes)
    assert (usage_words(usage), usage_advice(usage)) == (words, "")


def test_attempts_are_joined_by_their_time() -> None:
    long = replace(USED, seconds=3.0, gpu_percent=20.0, gpu_memory=100, memory=20_000)
    short = replace(USED, seconds=1.0, gpu_percent=0.0, gpu_memory=200, processors=None)
    joined = joined_usage([long, short])
    assert (joined.seconds, joined.gpu_percent, joined.gpu_memory) == (4.0, 15.0, 200)
    assert (joined.memory, joined.processors) == (20_000, 8.2)


@pytest.fixture
def view() -> AttemptView:
    return AttemptView(
        ref=AttemptRef(Address.parse("run.train"), 1), backend="local",
        state=AttemptState.SUCCEEDED, started_at=NOW, ended_at=NOW + timedelta(hours=1), usage=USED,
    )  # fmt: skip


def test_a_run_that_has_ended_says_what_it_used(view: AttemptView) -> None:
    words = "used 11 % of 8 H100 and at most 9 of 80 GB"
    assert usage_line(view) == f"{words}: 1 GPU would do"
    assert usage_line(replace(view, state=AttemptState.FAILED)) == words
    assert usage_line(replace(view, state=AttemptState.RUNNING)) == ""
    assert usage_line(replace(view, usage=replace(USED, seconds=5.0))) == ""
    assert usage_line(replace(view, usage=None)) == ""


def test_the_json_reads_back(view: AttemptView) -> None:
    assert usage_in(status_fields(view)["usage"]) == USED
    assert "usage" not in status_fields(replace(view, usage=None))


@pytest.mark.parametrize(
    "item",
    [
        None, [], "all", {}, {"seconds": "1"}, {"seconds": float("nan")}, {"seconds": -1},
        {"seconds": 1.0, "gpu_percent": float("inf")}, {"seconds": 1.0, "gpu_name": 3},
        {"seconds": 1.0, "gpus": 1.5}, {"seconds": 1.0, "memory": {}}, {"seconds": 1, "gpus": None},
    ],
)  # fmt: skip
def test_what_is_no_usage_is_none(item: object) -> None:
    assert usage_in(item) is None
