"""Types of GPU by all their names."""

import pickle

import pytest

from sgpu_decl.compute import GPUType, read_gpu_type
from sgpu_decl.config.gpu_type import GpuType
from sgpu_decl.errors import InvalidInput


@pytest.mark.parametrize("name", ["A10", "a10", "A10G", " a10g "])
def test_an_enum_member_is_made_from_any_of_its_names(name: str) -> None:
    assert GPUType(name) is GPUType.A10


def test_members_have_the_names_and_values_of_platforms() -> None:
    assert {kind.name: kind.value for kind in GPUType} == {
        "A10": "a10",
        "H100": "h100_80gb",
        "B300": "b300",
        "CPU": "cpu",
    }
    assert GPUType("h100") is GPUType("H100_80GB") is GPUType.H100
    assert pickle.loads(pickle.dumps(GPUType.B300)) is GPUType.B300
    for wrong in ("A100", "", "GPU_8xH100", None, 8):
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
    [("H10", "`H10`", "`H100`"), ("GPU_8xA100", "`GPU_8xA100`", "`GPU_"),
     ("h100_90gb", "`h100_90gb`", "`H100_80GB`"), (8, "`int`", None), (None, "`NoneType`", None)],
)  # fmt: skip
def test_an_unknown_type_is_an_error_with_the_nearest_name(
    given: object, shown: str, near: str | None
) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_gpu_type(given, parameter="accelerator_type")
    error = caught.value
    assert error.code == "unknown_gpu_type"
    assert error.message == f"`accelerator_type` must be a type of GPU, not {shown}"
    assert str(error.hint).startswith(f"did you mean {near}" if near else "known: ")
    assert error.__notes__ == [f"hint: {error.hint}"]
