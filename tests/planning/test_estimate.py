from typing import Any

import pytest

from sgpu_decl.planning.estimate import seconds_of

SPEC = {"gpus": 8, "type": "A10", "entrypoint": "train.py"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("6h", 21600.0), ("1h30m", 5400.0), ("1.5h", 5400.0), (5, 5.0), ("500ms", 0.5)],
)
def test_durations_are_read_as_the_spec_has_them(text: Any, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", [None, True, "", "h", "6 h", "6x", [1]])
def test_what_is_no_duration_is_unknown(text: Any) -> None:
    assert seconds_of(text) is None


def test_the_worst_case_counts_every_restart(world: Any) -> None:
    world.want(spec={**SPEC, "timeout": "6h", "retry": {"max": 2}})
    estimate = world.plan().estimate
    assert (estimate.gpu_hours_worst, estimate.gpu_hours_expected) == (144.0, None)
    assert estimate.cost_worst is None


def test_one_run_without_a_limit_makes_the_sum_unknown(world: Any) -> None:
    world.want("a", spec={**SPEC, "timeout": "6h"}).want("b", spec=SPEC)
    assert world.plan().estimate.gpu_hours_worst is None


def test_ranks_without_gpus_cost_no_gpu_hours(world: Any) -> None:
    world.want(spec={**SPEC, "type": "CPU"})
    estimate = world.plan().estimate
    assert (estimate.gpu_hours_worst, estimate.gpu_hours_expected) == (0.0, 0.0)
