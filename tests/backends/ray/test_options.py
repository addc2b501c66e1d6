"""Options of a Ray cluster that come from Python, where no reader of YAML looked at them."""

import math

import pytest
from pydantic import ValidationError

from sgpu_decl.backends.ray.options import RayOptions
from sgpu_decl.backends.ray.planning.group_shape import options_of
from sgpu_decl.config.run import RunConfig
from sgpu_decl.errors import BackendError


@pytest.mark.parametrize("amount", [math.inf, math.nan])
def test_an_amount_that_is_not_finite_is_no_number(amount: float) -> None:
    with pytest.raises(ValidationError) as raised:
        RayOptions.model_validate({"kind": "ray", "resources_per_rank": {"CPU": amount}})
    assert [error["type"] for error in raised.value.errors()] == ["wrong_type"]


@pytest.mark.parametrize(("written", "amount"), [("4", 4), ("0.5", 0.5), ("2.50", 2.5)])
def test_a_number_in_quotes_is_a_number(written: str, amount: float) -> None:
    options = RayOptions.model_validate({"kind": "ray", "resources_per_rank": {"CPU": written}})
    assert options.rank_resources == {"CPU": amount}


def test_a_type_of_gpu_as_a_resource_is_named_as_types_are() -> None:
    resources = {"accelerator_type:A100-80G": 1}
    with pytest.raises(ValidationError) as raised:
        RayOptions.model_validate({"kind": "ray", "resources_per_rank": resources})
    (error,) = raised.value.errors()
    assert error["ctx"]["hint"] == "write `type: A100_80GB`"


def test_a_record_with_the_config_of_another_backend_is_no_fault_of_sgpu() -> None:
    config = RunConfig.model_validate({"name": "a", "gpus": 1, "type": "CPU", "command": "true"})
    with pytest.raises(BackendError, match="a config of another backend") as refused:
        options_of(config)
    assert refused.value.code == "unknown_config"
