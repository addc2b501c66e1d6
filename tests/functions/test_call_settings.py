from datetime import timedelta

import pytest

from sgpu_decl import distributed
from sgpu_decl.compute import GPUType
from sgpu_decl.errors import InvalidInput
from sgpu_decl.functions.call_settings import Settings, merged_settings
from sgpu_decl.functions.function import DistributedFunction


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
    assert "known of that series: `H100`" in str(caught.value.hint)


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
