"""The parameters of a decorated function, as an editor, IPython and `help` see them."""

import inspect

import pytest

from sgpu_decl import distributed, ray_launch
from tests.sampling import sampled


@distributed(gpus=2, gpu_type="CPU")
def train(lr: float, epochs: int = 3) -> float:
    return lr * epochs


@ray_launch
def sweep(trials: int) -> int:
    return trials


class Model:
    @distributed(gpus=2, gpu_type="CPU")
    def fit(self, lr: float) -> float:
        return lr


def test_the_methods_of_a_function_have_its_parameters() -> None:
    assert [*inspect.signature(train.distributed).parameters] == ["lr", "epochs"]
    assert [*inspect.signature(train.plan).parameters] == ["lr", "epochs"]
    assert [*inspect.signature(sweep.distributed).parameters] == ["trials"]
    assert [*inspect.signature(train.with_overrides(gpus=1).plan).parameters] == ["lr", "epochs"]
    assert [*inspect.signature(Model().fit.distributed).parameters] == ["lr"]
    assert "on every rank" in str(inspect.getdoc(train.distributed))


def test_a_builtin_without_a_signature_can_be_decorated() -> None:
    assert [*inspect.signature(distributed(gpus=1)(min).plan).parameters] == ["args", "kwargs"]


@pytest.mark.parametrize(
    "line", sampled(["train(", "train.distributed(", "train.plan(", "train.func("])
)
def test_a_notebook_completes_the_arguments_of_a_call(line: str) -> None:
    jedi = pytest.importorskip("jedi")  # which IPython asks
    offered = {item.name for item in jedi.Interpreter(line, [{"train": train}]).complete()}
    assert {"lr=", "epochs="} <= offered
