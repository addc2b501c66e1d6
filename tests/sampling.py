"""Large matrices of cases: a few in every run of the tests, a sample of the others in
`make test-all`, and all in `make soak`.

`SGPU_SAMPLE` in the environment is `all`, or a number that shifts the sample.
"""

import os
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final, TypeVar
from zlib import crc32

import pytest

__all__ = ["SAMPLE", "sampled", "strided", "thinned"]

SAMPLE: Final = os.environ.get("SGPU_SAMPLE", "0")
_Case = TypeVar("_Case")


def sampled(cases: Sequence[Any], *, quick: int = 2) -> list[Any]:
    """Parameters for `pytest.mark.parametrize`: all cases, those but `quick` marked `expensive`.

    The quick ones are spread evenly over the list, the last case included.
    """
    count = len(cases)
    chosen = {count - 1 - index * count // quick for index in range(min(quick, count))}
    return [
        case if index in chosen else pytest.param(case, marks=pytest.mark.expensive)
        for index, case in enumerate(cases)
    ]


def strided(cases: Sequence[_Case], stride: int) -> Sequence[_Case]:
    """One case of each `stride`, or all of them.

    Of a product of two lists, this takes the entries of the inner one in turn, if its length has no
    factor in common with the stride.
    """
    return cases if SAMPLE == "all" else cases[int(SAMPLE) % stride :: stride]


def thinned(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests with a sample of the expensive cases of one test, such as places of a state
    or moments of a kill: one of two or three, every third of more."""
    families: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    if SAMPLE != "all":
        for item in items:
            if isinstance(item, pytest.Function) and item.get_closest_marker("expensive"):
                families[f"{item.path.name} {item.originalname}"].append(item)
    left_out: set[pytest.Item] = set()
    for name, cases in families.items():
        stride = min(3, len(cases))
        shift = (crc32(name.encode()) + int(SAMPLE) + 1) % stride
        left_out |= {*cases} - {*cases[shift::stride]}
    return [item for item in items if item not in left_out]
