"""Functions that are the drivers of Ray clusters, called in this process."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from sgpu_decl import ray_launch, runtime
from sgpu_decl.errors import InvalidInput, RankUnknown
from sgpu_decl.functions.call_errors import RankFailed
from sgpu_decl.functions.running_call import DistributedFunctionCall
from tests.support import PATIENCE, until

SMALL = {"num_cpus": 1, "object_store_memory": "80MB"}


class Spoilt(Exception):
    """Raised in a driver."""


@pytest.mark.ray
def test_a_call_returns_what_its_driver_returns(capfd: pytest.CaptureFixture[str]) -> None:
    offset = 10

    @ray_launch(gpus=1, gpu_type="CPU", ray={**SMALL, "resources": {"ssd": 2}})
    def squares(numbers: list[int]) -> dict[str, object]:
        import ray

        ray.init()

        def square(number: int) -> int:
            return number * number + offset

        task = ray.remote(square)
        print("the driver speaks")
        resources = ray.cluster_resources()
        unknown = ""
        try:
            runtime.get_global_rank()
        except RankUnknown as error:
            unknown = error.message
        return {
            "values": ray.get([task.remote(number) for number in numbers]),
            "resources": (resources["CPU"], resources["ssd"]),
            "rank": unknown,
            "node": runtime.get_node_rank(),
        }

    assert squares.distributed([1, 2, 3]) == {
        "values": [11, 14, 19],
        "resources": (1.0, 2.0),
        "rank": "`RANK` is not set, though other variables of a rank are",
        "node": 0,
    }
    assert "the driver speaks\n" in capfd.readouterr().out


@pytest.mark.ray
@pytest.mark.expensive
def test_calls_go_on_beside_each_other_with_a_cluster_each() -> None:
    @ray_launch(gpus=1, gpu_type="CPU", run_async=True, ray=SMALL)
    def address(number: int) -> tuple[int, str]:
        import ray

        return number, str(ray.init().address_info["gcs_address"])

    calls = [address.distributed(number) for number in range(2)]
    first, second = (call.result(timeout=PATIENCE) for call in calls)
    assert (first[0], second[0]) == (0, 1)
    assert first[1] != second[1]
    found: DistributedFunctionCall[tuple[int, str]] = DistributedFunctionCall.from_run_id(
        calls[1].run_id
    )
    assert found.result() == second

    async def awaited() -> tuple[int, str]:
        return await calls[0]

    assert asyncio.run(awaited()) == first


@pytest.mark.ray
@pytest.mark.expensive
def test_an_exception_of_the_driver_is_the_callers(project: Path) -> None:
    @ray_launch(gpus=1, gpu_type="CPU", ray=SMALL)
    def spoilt(task: bool) -> None:
        import ray

        ray.init()

        def fail() -> None:
            raise Spoilt("in a task")

        if task:
            ray.get(ray.remote(fail).remote())
        raise Spoilt("in the driver")

    with pytest.raises(Spoilt, match="in the driver") as caught:
        spoilt.distributed(task=False)
    assert isinstance(caught.value.__cause__, RankFailed)
    assert (caught.value.__cause__.rank, caught.value.__cause__.failure) == (0, "exception")
    with pytest.raises(Spoilt, match="in a task"):
        spoilt.distributed(task=True)
    assert list((project / ".sgpu/default/runs/spoilt/1/output/ray_logs").rglob("*.log"))


@pytest.mark.ray
@pytest.mark.expensive
def test_a_cancelled_call_leaves_no_process(project: Path) -> None:
    @ray_launch(gpus=1, gpu_type="CPU", run_async=True, ray=SMALL)
    def waits() -> None:
        import time

        import ray

        ray.init()
        print("up", flush=True)
        time.sleep(3600)

    call = waits.distributed()
    until(lambda: "up" in call.logs() or not call.status.active)
    folder = str(project / ".sgpu/default/runs/waits/1")
    call.cancel()
    assert call.wait(timeout=PATIENCE).state == "cancelled"
    assert folder not in subprocess.check_output(["ps", "axeww", "-o", "args"], text=True)


def test_a_plan_shows_the_cluster_of_a_call() -> None:
    @ray_launch(gpus=1, gpu_type="CPU", ray={"num_cpus": 1})
    def sweep(n: int) -> int:
        return n

    shown = str(sweep.plan(1))
    assert "ray.num_cpus: 1" in shown
    assert "info[ray_cluster]: run.sweep: Ray cluster: 1 node, 1 CPU" in shown


@pytest.mark.parametrize(
    ("options", "words", "hint"),
    [
        ({"num_cpu": 1}, "unknown key `num_cpu` in `ray`", "did you mean `num_cpus`?"),
        ({"num_cpus": 0}, "`ray.num_cpus` must be at least 1, not `0`", "the driver's tasks"),
        ({"num_gpus": 1}, "`ray.num_gpus: 1` is more than the run has", "leave it out"),
        ({"temp_dir": "a"}, "`ray.temp_dir` must be an absolute path", "begin it with /"),
    ],
)
def test_a_wrong_option_is_said_at_the_decorator(
    options: dict[str, object], words: str, hint: str
) -> None:
    @ray_launch(gpus=1, gpu_type="CPU", ray=options)
    def sweep() -> None: ...

    with pytest.raises(InvalidInput) as caught:
        sweep.distributed()
    assert words in str(caught.value)
    assert "test_ray_launch.py:" in str(caught.value)
    assert hint in str(caught.value.hint)


def test_a_driver_has_no_rank_to_fill_in() -> None:
    @ray_launch(gpus=1, gpu_type="CPU")
    def train(rank: int) -> int:
        return rank

    with pytest.raises(TypeError, match="missing `rank`"):
        train.distributed()


def test_a_call_of_ray_init_that_ray_would_refuse_is_found_before_the_launch() -> None:
    @ray_launch(gpus=1, gpu_type="CPU", ray=SMALL)
    def resizes() -> None:
        import ray

        ray.init(num_cpus=4)

    with pytest.raises(InvalidInput, match=r"`ray\.init` refuses `num_cpus`"):
        resizes.distributed()
