"""Large matrices of cases: a few in every run of the tests, all of them in `make test-all`."""

from collections.abc import Sequence
from typing import Any

import pytest

__all__ = ["sampled"]


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
