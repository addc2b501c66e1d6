from typing import Any

SPEC = {"gpus": 8, "type": "A10", "entrypoint": "train.py"}


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
