"""The plan says what the last attempts of a run used."""

from dataclasses import replace

from sgpu_decl.model.address import Address
from sgpu_decl.model.desired import DesiredRun
from sgpu_decl.model.jsonable import NO_FIELDS
from sgpu_decl.model.run_usage import RunUsage
from sgpu_decl.planner.usage_checks import usage_checks

RUN = DesiredRun(
    address=Address.run("train"), backend="local", owner="run.yaml", spec=NO_FIELDS,
    until="success", on_active="error",
)  # fmt: skip
USED = RunUsage(
    seconds=600.0, gpus=8, gpu_name="NVIDIA H100 80GB HBM3", gpu_percent=11.0, gpu_memory=9_300,
    gpu_memory_there=81_559,
)  # fmt: skip
ON_CPU = RunUsage(seconds=600.0, processors=1.0)


def said(*past: RunUsage) -> list[str]:
    return [one.summary for one in usage_checks([RUN], {"run.train": past})]


def test_attempts_on_the_same_gpus_are_told_together() -> None:
    words = "used 11 % of 8 H100 and at most 9 of 80 GB"
    assert said(USED) == [f"the last attempt {words}"]
    assert said(*[USED] * 5) == [f"the last 5 attempts {words}"]


def test_attempts_that_held_other_gpus_do_not_count() -> None:
    other = replace(USED, gpus=1, gpu_percent=90.0)
    assert said(USED, other, USED)[0].startswith("the last 2 attempts used 11 % of 8 H100")
    assert said(other, USED)[0].startswith("the last attempt used 90 % of 1 H100")


def test_what_was_not_measured_is_not_said() -> None:
    assert said() == []
    assert said(ON_CPU) == []
    assert said(ON_CPU, USED) == ["the last attempt used 11 % of 8 H100 and at most 9 of 80 GB"]
