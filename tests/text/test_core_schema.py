import math

import pytest

from sgpu_decl.text.yaml_nodes import is_null, resolve


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"), ("no", "no"), ("yes", "yes"), ("y", "y"), ("off", "off"),
        ("010", 10), ("0o10", 8), ("0x1F", 31), ("0b11", "0b11"), ("1_000", "1_000"),
        ("1:30", "1:30"), ("2024-01-01", "2024-01-01"), ("1e-4", 1e-4), ("1e3", 1000.0),
        (".5", 0.5), ("5.", 5.0), ("+3", 3), ("-0", 0), ("true", True), ("False", False),
        ("tRUE", "tRUE"), ("~", None), ("", None), ("Null", None), ("nULL", "nULL"),
        ("-.inf", -math.inf), ("inf", "inf"), ("nan", "nan"), ("<<", "<<"), ("=", "="),
        ("-", "-"), (".", "."), ("e5", "e5"), ("0o8", "0o8"), ("3.10", 3.1),
    ],
)  # fmt: skip
def test_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    assert resolve(text) == value
    assert type(resolve(text)) is type(value)


def test_not_a_number_is_one() -> None:
    assert math.isnan(resolve(".nan"))  # type: ignore[arg-type]


def test_a_number_beyond_reason_stays_text() -> None:
    assert resolve("9" * 100_000) == "9" * 100_000


def test_null_is_told_from_text() -> None:
    assert is_null("~")
    assert not is_null("nul")
