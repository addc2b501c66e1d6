"""Whether rank groups fit on nodes: exact, since all bundles of a run are equal. Plans and drivers
count the same way."""

from __future__ import annotations

from bisect import bisect_right
from math import isqrt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

TYPE_RESOURCE = "accelerator_type:"
"""The prefix of the resource that Ray gives to nodes for their type of GPU."""

HEAD_RESOURCE = "node:__internal_head__"
"""A resource of the head node alone."""

_STEPS = 10_000  # Ray counts resources in parts of one (`fixed_point.h`)


def bundles_in(resources: Mapping[str, float], bundle: Mapping[str, float]) -> int:
    """How many bundles a node's resources hold."""
    return min(
        _steps(resources.get(name, 0.0)) // _steps(amount) for name, amount in bundle.items()
    )


def launches_at_once(counts: Iterable[int], groups: int, strategy: str) -> int:
    """How many launches of that many rank groups find room together.

    Args:
        counts: how many bundles each node holds.
        strategy: `spread` or `pack`.
    """
    room = [count for count in counts if count > 0]
    most = sum(room) // groups
    if strategy == "pack":
        return most
    # The groups of one launch need nodes of their own; those of two launches may share one. If so
    # many launches fit, fewer do.
    return bisect_right(
        range(1, most + 1),
        0,
        key=lambda launches: groups * launches - sum(min(count, launches) for count in room),
    )


def short_of(
    nodes: Sequence[Mapping[str, float]], bundle: Mapping[str, float], groups: int, strategy: str
) -> Sequence[str]:
    """The resources that keep a launch from fitting on nodes with these resources: as few as do so
    together, the GPU before others, or the CPU of a launch without GPUs. All, where it fits."""
    unit = unit_of(bundle)
    names = sorted(bundle, key=lambda name: name != unit)
    for name in names[::-1]:
        rest = {other: bundle[other] for other in names if other != name}
        counts = [bundles_in(resources, rest) for resources in nodes] if rest else []
        if rest and not launches_at_once(counts, groups, strategy):
            names.remove(name)
    return names


def unit_of(bundle: Mapping[str, float]) -> str:
    """The resource that counts most: `GPU`, else `CPU`, else any."""
    return next((name for name in ("GPU", "CPU") if name in bundle), next(iter(bundle)))


def divisors(number: int) -> Sequence[int]:
    """The divisors of a number, the largest first."""
    small = [item for item in range(1, isqrt(number) + 1) if number % item == 0]
    return sorted({*small, *(number // item for item in small)}, reverse=True)


def _steps(amount: float) -> int:
    return round(amount * _STEPS)
