"""Trainings that know of torch's launcher alone find their world in ranks of ours."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is missing"),
]
NO_LIGHTNING = find_spec("pytorch_lightning") is None


@pytest.mark.expensive
def test_ddp_averages_gradients_and_keeps_weights_equal(project: Callable[..., Any]) -> None:
    first, second = project("averaging.py").launch(
        "entrypoint: averaging.py:main", "args: {steps: 20}"
    )

    mean = [
        sum(pair) / 2
        for pair in zip(*(item["gradients"]["own"] for item in (first, second)), strict=True)
    ]
    assert first["gradients"]["own"] != second["gradients"]["own"]
    for item in (first, second):
        assert item["gradients"]["shared"] == pytest.approx(mean, abs=1e-6)

    weights = first["weights"]
    assert weights["drawn"] != second["weights"]["drawn"]
    assert weights["started"] == second["weights"]["started"] == weights["drawn"]
    assert weights["ended"] == second["weights"]["ended"] != weights["started"]
    assert all(item["losses"][-1] < item["losses"][0] for item in (first, second))


@pytest.mark.skipif(NO_LIGHTNING, reason="PyTorch Lightning is missing")
@pytest.mark.expensive
def test_lightning_takes_ranks_for_those_of_torchrun(project: Callable[..., Any]) -> None:
    values = project("lit.py").launch("entrypoint: lit.py:main")
    assert [value["environment"] for value in values] == ["TorchElasticEnvironment"] * 2
    assert [value["place"] for value in values] == [[0, 0, 0, 2], [1, 1, 0, 2]]
    assert [value["rows"] for value in values] == [
        64,
        64,
    ]  # 64 rows, two epochs, half of them for each
    assert values[0]["weights"] == values[1]["weights"]
    assert values[0]["loss"] == values[1]["loss"] < 4.0
