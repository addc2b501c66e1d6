"""Types of GPU by all their names."""

import pickle
from typing import Any

import pytest

from sgpu_decl.compute import GPUType, read_gpu_type
from sgpu_decl.config.gpu_type import GpuType
from sgpu_decl.errors import InvalidInput


@pytest.mark.parametrize("name", ["A10", "a10", "A10G", " a10g "])
def test_an_enum_member_is_made_from_any_of_its_names(name: str) -> None:
    assert GPUType(name) is GPUType.A10


def test_members_have_the_names_and_values_of_platforms() -> None:
    values = {kind.name: kind.value for kind in GPUType}
    assert (
        values.items() >= {"A10": "a10", "H100": "h100_80gb", "B300": "b300", "CPU": "cpu"}.items()
    )
    assert values.pop("H100")  # a platform calls it by its size
    assert {name: value.upper() for name, value in values.items()} == {
        name: name for name in values
    }
    assert GPUType.A100.memory == (40, 80)
    assert GPUType("rtx 4090").memory == (24,)
    assert GPUType("h100") is GPUType("H100_80GB") is GPUType.H100
    assert pickle.loads(pickle.dumps(GPUType.B300)) is GPUType.B300
    wrong: Any
    for wrong in ("A1000", "", "GPU_8xH100", None, 8):
        with pytest.raises(ValueError, match="is not a valid GPUType"):
            GPUType(wrong)


@pytest.mark.parametrize("kind", GPUType)
def test_the_config_takes_every_member_and_every_name_of_it(kind: GPUType) -> None:
    assert read_gpu_type(kind) == GpuType.read(kind) == GpuType(kind.name)
    for name, known in GPUType.__members__.items():
        if known is kind:
            assert read_gpu_type(name.lower()) == GpuType(kind.name)


@pytest.mark.parametrize(
    ("given", "name", "node"),
    [("GPU_8xH100", "H100", 8), ("gpu_1xa10", "A10", 1), ("h100_80gb", "H100", None)],
)
def test_an_accelerator_name_tells_the_gpus_of_a_node(
    given: str, name: str, node: int | None
) -> None:
    found = read_gpu_type(given)
    assert (found.name, found.node) == (name, node)


@pytest.mark.parametrize(
    ("given", "shown", "near"),
    [("H1OO", "`H1OO`", "did you mean `H100`?"), ("GPU_8xB400", "`GPU_8xB400`", "known in that s"),
     ("h100_90gb", "`h100_90gb`", "it comes as `H100`"), (8, "`int`", "name a GPU, such as"),
     (None, "`NoneType`", "name a GPU, such as")],
)  # fmt: skip
def test_an_unknown_type_is_an_error_with_what_was_meant_or_is_near(
    given: object, shown: str, near: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_gpu_type(given, parameter="accelerator_type")
    error = caught.value
    assert error.code == "unknown_gpu_type"
    assert error.message == f"`accelerator_type` must be a type of GPU, not {shown}"
    assert str(error.hint).startswith(near)
    assert error.__notes__ == [f"hint: {error.hint}"]


@pytest.mark.parametrize("digits", ["10", "20", "30", "100", "150", "200", "300", "400"])
@pytest.mark.parametrize("letters", ["A", "B", "H", "L", "T", "V", "MI", "RTX_"])
def test_no_model_is_offered_as_the_spelling_of_another(letters: str, digits: str) -> None:
    name = letters + digits
    if name in GPUType.__members__:
        return
    with pytest.raises(InvalidInput) as caught:
        read_gpu_type(name)
    assert "did you mean" not in str(caught.value.hint)
