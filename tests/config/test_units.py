import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pydantic_core import PydanticCustomError

from sgpu_decl.config.env import SecretRef
from sgpu_decl.config.gpu_type import GpuType
from sgpu_decl.config.text_types import Duration, Size


@pytest.mark.parametrize(
    ("text", "seconds", "canonical"),
    [
        ("90s", 90, "1m30s"), ("6h", 21_600, "6h"), ("360m", 21_600, "6h"),
        ("1h30m", 5_400, "1h30m"), (90, 90, "1m30s"), ("45", 45, "45s"), ("2d", 172_800, "48h"),
        ("500ms", 0.5, "500ms"), ("1.5s", 1.5, "1s500ms"), ("0s", 0, "0s"), (0.25, 0.25, "250ms"),
        ("1w", 604_800, "168h"),
    ],
)  # fmt: skip
def test_a_duration_has_one_canonical_text(text: object, seconds: float, canonical: str) -> None:
    duration = Duration.read(text)
    assert duration.seconds == seconds
    assert str(duration) == canonical
    assert Duration.read(canonical) == duration


@given(st.integers(0, 10_000_000_000).map(lambda thousandths: thousandths / 1000))
def test_durations_survive_their_text(seconds: float) -> None:
    assert Duration.read(str(Duration(seconds))) == Duration.read(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "soon", "-1s", "1h 30m", "30m1h", True, None, [], "9" * 60, -1, "1e9h", "1000000d"],
)
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(PydanticCustomError):
        Duration.read(text)


@pytest.mark.parametrize(
    ("text", "amount", "canonical"),
    [("2GiB", 2 << 30, "2GiB"), ("1.5GB", 1_500_000_000, "1500MB"), (1024, 1024, "1KiB"),
     ("8GB", 8 * 10**9, "8GB"), ("1024000", 1_024_000, "1000KiB"),
     ("512 mib", 512 << 20, "512MiB"), ("10", 10, "10"), ("0", 0, "0")],
)  # fmt: skip
def test_a_size_has_one_canonical_text(text: object, amount: int, canonical: str) -> None:
    assert Size.read(text).bytes == amount
    assert str(Size.read(text)) == canonical
    assert Size.read(canonical).bytes == amount


@pytest.mark.parametrize("text", ["", "big", "-1", "1XB", True, None])
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(PydanticCustomError):
        Size.read(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [("A10", "A10"), ("a10g", "A10"), ("H100_80gb", "H100"), ("gpu_8xh100", "H100"),
     ("GPU_1xA10", "A10"), ("cpu", "CPU"), ("GPU_8xB300", "B300"), ("b300", "B300"),
     ("gpu", "GPU"), ("a100-80gb", "A100_80GB"), ("A100 40GB", "A100_40GB"), ("t4_16gb", "T4"),
     ("rtx4090", "RTX_4090"), ("RTX 6000 Ada", "RTX_6000_ADA"), ("a6000", "RTX_A6000"),
     ("gpu_4xl40s", "L40S"), ("mi300x", "MI300X")],
)  # fmt: skip
def test_a_gpu_type_has_many_names_and_one_text(text: str, name: str) -> None:
    assert str(GpuType.read(text)) == name


@pytest.mark.parametrize(
    ("text", "gpus", "fits"),
    [("H100", 3, True), ("GPU_8xH100", 1, False), ("GPU_8xH100", 8, True), ("CPU", 7, True),
     ("GPU_1xH100", 3, True), ("GPU_4xA100", 6, False), ("GPU_8xB300", 24, True)],
)  # fmt: skip
def test_the_name_of_a_node_asks_for_whole_nodes_and_a_type_for_nothing(
    text: str, gpus: int, fits: bool
) -> None:
    assert (GpuType.read(text).refuse(gpus) is None) == fits


def test_a_bare_reference_means_databricks() -> None:
    assert SecretRef.read("scope/key") == "databricks:scope/key"
    assert SecretRef.read("env:HF_TOKEN").scheme == "env"
    assert SecretRef.read("file:/run/secrets/x").reference == "/run/secrets/x"


@pytest.mark.parametrize(
    "text", ["", "hunter2", "env:", "env:A-B", "vault:x", "databricks:x", None, 5]
)
def test_what_is_no_reference_is_refused_without_repeating_it(text: object) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        SecretRef.read(text)
    assert not isinstance(text, str) or not text or text not in str(caught.value)


@pytest.mark.parametrize("kind", [Duration, Size, GpuType, SecretRef])
def test_each_publishes_its_own_schema(kind: type) -> None:
    assert "pattern" in TypeAdapter(kind).json_schema()
