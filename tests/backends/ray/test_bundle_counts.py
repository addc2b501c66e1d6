"""Room is counted exactly: the same as by trying all ways to place bundles."""

from itertools import combinations_with_replacement

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgpu_decl.backends.ray.cluster.bundle_counts import bundles_in, divisors, launches_at_once
from sgpu_decl.backends.ray.placement import Strategy


@pytest.mark.parametrize(
    ("resources", "bundle", "count"),
    [
        ({"GPU": 8.0, "CPU": 8.0}, {"GPU": 4, "CPU": 4}, 2),
        ({"GPU": 8.0, "CPU": 7.0}, {"GPU": 4, "CPU": 4}, 1),
        ({"GPU": 8.0}, {"GPU": 4, "CPU": 1}, 0),
        ({"CPU": 0.3}, {"CPU": 0.1}, 3),  # 0.3 / 0.1 is less than 3 in binary
        ({"CPU": 1.0, "memory": 1e12}, {"CPU": 1, "memory": 5e11}, 1),
    ],
)
def test_how_many_bundles_a_node_holds(
    resources: dict[str, float], bundle: dict[str, float], count: int
) -> None:
    assert bundles_in(resources, bundle) == count


def test_divisors_come_the_largest_first() -> None:
    assert divisors(12) == [12, 6, 4, 3, 2, 1]


@given(st.lists(st.integers(0, 3), max_size=4), st.integers(1, 3), st.sampled_from(list(Strategy)))
def test_launches_fit_as_trying_all_ways_says(
    counts: list[int], groups: int, strategy: Strategy
) -> None:
    assert launches_at_once(counts, groups, strategy) == _tried(counts, groups, strategy)


def _tried(counts: list[int], groups: int, strategy: Strategy) -> int:
    """How many launches can be placed one after the other, in the best way."""
    best = 0
    for nodes in combinations_with_replacement(range(len(counts)), groups):
        if strategy is Strategy.SPREAD and len(set(nodes)) < groups:
            continue
        left = [count - nodes.count(number) for number, count in enumerate(counts)]
        if all(count >= 0 for count in left):
            best = max(best, 1 + _tried(left, groups, strategy))
    return best
