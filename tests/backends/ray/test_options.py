"""Options of a Ray cluster that come from Python, where no reader of YAML looked at them."""

import math

import pytest
from pydantic import ValidationError

from sgpu_decl.backends.ray.options import RayOptions


@pytest.mark.parametrize("amount", [math.inf, math.nan])
def test_an_amount_that_is_not_finite_is_no_number(amount: float) -> None:
    with pytest.raises(ValidationError) as raised:
        RayOptions.model_validate({"kind": "ray", "resources_per_rank": {"CPU": amount}})
    assert [error["type"] for error in raised.value.errors()] == ["wrong_type"]
