"""Large matrices of cases: a few in every run of the tests, the others in `make test-all`; of the
largest a sample there, and all in `make soak`.

`SGPU_SAMPLE` in the environment is `all`, or a number that shifts the sample.
"""

import os
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import pytest

__all__ = ["SAMPLE", "sampled", "strided"]

SAMPLE: Final = os.environ.get("SGPU_SAMPLE", "0")
_Case = TypeVar("_Case")


def sampled(cases: Sequence[Any], *, quick: int = 3) -> list[Any]:
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
