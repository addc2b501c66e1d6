"""Sizes in words are made in one place, in one kind of unit."""

import re
from pathlib import Path

from sgpu_decl.diagnostics.amounts import size

PACKAGE = Path(__file__).resolve().parents[2] / "sgpu_decl"
MADE = re.compile(r"\}\s?(k|M|G|T)i?B\b")  # `{number / 1e9:.1f} GB`
ALLOWED = {
    "model/gpu.py": "the name of a GPU",
    "gpus/devices.py": "the GB that a vendor counts",
    "model/run_usage.py": "the GB that a vendor counts",
}


def test_a_size_has_at_most_four_digits_and_a_decimal_unit() -> None:
    assert [size(number) for number in (0, 999, 1000, 48 << 20, 999_950, 10**9, 10**16)] == [
        "0 B", "999 B", "1.0 kB", "50.3 MB", "1.0 MB", "1.0 GB", "10,000.0 TB",
    ]  # fmt: skip


def test_no_other_place_makes_one() -> None:
    found = {
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if MADE.search(file.read_text()) and "testing" not in file.parts
    }
    assert found - ALLOWED.keys() == set()
