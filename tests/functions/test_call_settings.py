import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import assert_type, get_overloads

import pytest

from sgpu_decl import distributed, ray_launch
from sgpu_decl.compute import GPUType
from sgpu_decl.errors import InvalidInput
from sgpu_decl.functions.call_results import Results
from sgpu_decl.functions.call_settings import Parameters, Settings, merged_settings
from sgpu_decl.functions.function import DistributedFunction
from sgpu_decl.functions.running_call import DistributedFunctionCall


def settings(**values: object) -> Settings:
    return merged_settings(Settings(), values)


@pytest.mark.parametrize("name", ["gpus", "num_accelerators"])
def test_both_names_of_the_count_are_one_setting(name: str) -> None:
    assert settings(**{name: 8}).gpus == 8


def test_num_gpus_is_gpus_with_a_warning() -> None:
    with pytest.warns(FutureWarning, match="`num_gpus` is called `gpus`"):

        @distributed(num_gpus=8, gpu_type="H100")
        def train(rank: int, world_size: int) -> None: ...

    assert train.num_accelerators == 8


@pytest.mark.parametrize(
    "given", ["A10", "a10", "A10G", "a10g", GPUType.A10, GPUType.A10G, "gpu_1xa10", "GPU_1xA10"]
)
def test_a_type_goes_by_any_of_its_names(given: str) -> None:
    for name in ("gpu_type", "accelerator_type"):
        assert settings(**{name: given}).gpu_type in ("A10", "GPU_1xA10", "gpu_1xa10")


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(90, 90.0), (0.5, 0.5), ("6h", 21_600.0), (timedelta(minutes=2), 120.0), (None, None)],
)
def test_a_timeout_is_seconds_a_duration_or_none(given: object, seconds: float | None) -> None:
    assert settings(timeout=given).timeout == seconds


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"gpus": 0}, "`gpus` must be a whole number of 1 or more, not `0`"),
        ({"gpus": -1}, "not `-1`"),
        ({"gpus": 2.5}, "not `2.5`"),
        ({"gpus": True}, "not `True`"),
        ({"num_accelerators": "2"}, "`num_accelerators` must be a whole number"),
        ({"gpu_type": "H10"}, "`gpu_type` must be a type of GPU, not `H10`"),
        ({"accelerator_type": 5}, "`accelerator_type` must be a type of GPU"),
        ({"gpus": 2, "num_accelerators": 4}, "the same setting with different values: `2` and `4`"),
        ({"timeout": -5}, "`timeout` must be a number of seconds"),
        ({"timeout": "soon"}, "`timeout` must be a number of seconds"),
        ({"timeout": float("nan")}, "`timeout` must be a number of seconds"),
        ({"remote": 1}, "`remote` must be True or False"),
        ({"target": 1}, "`target` must be text"),
        ({"gpu": 1}, "`distributed` has no parameter `gpu`"),
    ],
)
def test_a_wrong_setting_is_told_by_the_name_that_was_used(
    values: dict[str, object], words: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        settings(**values)
    assert words in str(caught.value)
    assert caught.value.hint


def test_the_types_that_are_near_are_told() -> None:
    with pytest.raises(InvalidInput) as caught:
        distributed(gpus=8, gpu_type="H10")
    assert "known in that series: `H100`" in str(caught.value.hint)


@pytest.mark.parametrize("decorator", [distributed, ray_launch])
def test_an_unknown_parameter_of_the_decorator_has_its_nearest(
    decorator: Callable[..., object],
) -> None:
    with pytest.raises(TypeError, match="has no parameter `gpu`") as caught:
        decorator(gpu=2)
    assert caught.value.__notes__ == ["hint: did you mean `gpus`?"]


@pytest.mark.parametrize("decorator", [distributed, ray_launch])
def test_editors_and_type_checkers_know_every_parameter(decorator: Callable[..., object]) -> None:
    parameters = set(Parameters.__annotations__) - ({"ray"} if decorator is distributed else set())
    bare, *factories = get_overloads(decorator)
    for function in (decorator, *factories):
        assert set(inspect.signature(function).parameters) - {"unknown"} == parameters
    assert len(factories) == 2
    assert [*inspect.signature(bare).parameters] == ["num_accelerators"]


def test_positional_settings_are_those_of_the_library_it_stands_in_for() -> None:
    @distributed(2, "CPU", False, 60.0)
    def train() -> None: ...

    assert (train.num_accelerators, train.accelerator_type, train.remote) == (2, "CPU", False)


def test_the_decorator_needs_no_parentheses() -> None:
    @distributed
    def train() -> int:
        return 1

    assert isinstance(train, DistributedFunction)
    assert train.num_accelerators is None
    assert train.func() == 1


def test_overrides_leave_the_function_as_it_was() -> None:
    @distributed(gpus=2, gpu_type="CPU", timeout=60)
    def train() -> None: ...

    other = train.with_overrides(gpus=4, timeout=None)
    train.with_overrides(target="prod", run_async=True, gpu_type=GPUType.A10)  # all are typed
    assert (train.num_accelerators, other.num_accelerators) == (2, 4)
    assert other.accelerator_type == "CPU"
    assert other.func is train.func


def test_calling_it_says_what_to_do() -> None:
    @distributed(gpus=2, gpu_type="CPU")
    def train() -> None: ...

    with pytest.raises(TypeError, match="`train` runs on ranks, and was called here") as caught:
        train(1, x=2)
    assert "`train.distributed(...)`" in str(getattr(caught.value, "hint", ""))


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(InvalidInput, match="takes a function, not `int`"):
        distributed(gpus=2, gpu_type="CPU")(5)  # type: ignore[arg-type]


def test_it_keeps_the_functions_name_and_words() -> None:
    @distributed(gpus=2, gpu_type="CPU")
    def train() -> None:
        """Words."""

    assert (getattr(train, "__name__", ""), train.__doc__) == ("train", "Words.")
    assert "gpus=2" in repr(train)


def test_a_ray_program_takes_what_ranks_take_and_the_options_of_its_cluster() -> None:
    options = {"num_cpus": 8, "env": {"A": "1"}, "head_startup_timeout": timedelta(minutes=2)}
    with pytest.warns(FutureWarning, match="`num_gpus` is called `gpus`"):

        @ray_launch(num_gpus=2, accelerator_type="A10", timeout="1h", target="t", ray=options)
        def sweep() -> int:
            return 1

    assert (sweep.num_accelerators, sweep.accelerator_type) == (2, "A10")
    assert "'num_cpus': 8, 'env': {'A': '1'}, 'head_startup_timeout': '120s'" in repr(sweep)


def test_a_ray_program_needs_no_options() -> None:
    @ray_launch
    def sweep() -> int:
        return 1

    assert "ray=True" in repr(sweep)
    assert "ray={'num_cpus': 2}" in repr(sweep.with_overrides(ray={"num_cpus": 2}))


def test_types_tell_the_list_of_ranks_from_the_value_of_a_driver() -> None:
    def train(n: int) -> str:
        return str(n)

    def calls() -> None:  # for mypy alone
        assert_type(distributed(train).distributed(n=1), Results[str])
        assert_type(distributed(gpus=1)(train).distributed(1), Results[str])
        assert_type(
            distributed(run_async=True)(train).distributed(1), DistributedFunctionCall[Results[str]]
        )
        assert_type(ray_launch(train).distributed(1), str)
        assert_type(ray_launch(ray={"num_cpus": 1})(train).distributed(1), str)
        assert_type(
            ray_launch(num_gpus=None, run_async=True)(train).distributed(1),
            DistributedFunctionCall[str],
        )

    assert callable(calls)


@pytest.mark.parametrize("ray", [5, "yes", ["num_cpus"], {1: 2}, {"env": object()}, False])
def test_options_of_a_cluster_that_no_block_could_hold(ray: object) -> None:
    with pytest.raises(InvalidInput, match="`ray` must be a dictionary of options") as caught:
        merged_settings(Settings(ray={}), {"ray": ray})
    assert "`ray={'num_cpus': 8, 'dashboard': True}`" in str(caught.value.hint)


def test_ranks_have_no_cluster() -> None:
    with pytest.raises(InvalidInput, match="`distributed` has no parameter `ray`") as caught:
        settings(ray={})
    assert "`@ray_launch` makes" in str(caught.value.hint)
    with pytest.raises(InvalidInput, match="`ray_launch` has no parameter `rai`") as caught:
        merged_settings(Settings(ray={}), {"rai": {}})
    assert caught.value.hint == "did you mean `ray`?"


def test_calling_a_ray_program_says_where_it_runs() -> None:
    @ray_launch(gpus=2, gpu_type="CPU")
    def sweep() -> None: ...

    with pytest.raises(TypeError, match="`sweep` runs on a Ray cluster, and was called here"):
        sweep()
