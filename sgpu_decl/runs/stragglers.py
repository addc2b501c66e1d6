"""Ranks that clearly differ from the others. It is arithmetic over what was seen of all of them.

A mark has to be certain: at least four ranks run, the others are alike, and the difference lasts
for `LOOKS` seconds. Healthy programs whose ranks do different things have no marks, then; one whose
first rank evaluates while the others wait has one, and rightly.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from statistics import median

from sgpu_decl.diagnostics.amounts import duration
from sgpu_decl.model.rank_activity import RankActivity

LOOKS = 10
_FEWEST = 4
_ALIKE = 0.75  # of the others have to be near their median:
_NEAR = 1 / 3  # of the difference at most
_GPU_POINTS = 30  # of GPU use
_CPU_POINTS = 50  # of a core, in percent
_RATIO = 3  # of the larger use to the smaller
_SILENCE = 60.0  # seconds
_LONGER = 5  # times as long as any other


def stragglers(
    looks: Sequence[Sequence[RankActivity]], running: Sequence[int], now: datetime
) -> dict[int, str]:
    """Return for each rank that clearly differs from the others how it does, in words.

    Args:
        looks: what was seen of all ranks, second by second, the newest last. Their use is compared
            over the last `LOOKS` of them, and not before there are as many.
        running: the ranks that run: no others are compared.
    """
    if len(running) < _FEWEST or not looks:
        return {}
    rows = [{one.rank: one for one in look} for look in looks[-LOOKS:]]
    found = dict(_silent(rows[-1], running, now))
    if len(rows) == LOOKS:
        found |= dict(_unlike(rows, running, "cpu", "CPU", _CPU_POINTS))
        found |= dict(_unlike(rows, running, "gpu", "GPU", _GPU_POINTS))
    return found


def _unlike(
    rows: Sequence[Mapping[int, RankActivity]],
    running: Sequence[int],
    field: str,
    name: str,
    points: int,
) -> Iterator[tuple[int, str]]:
    """The ranks whose use differs in every row from that of the others, which are alike."""
    table: list[dict[int, int]] = []
    for row in rows:
        values = {rank: getattr(row[rank], field) for rank in running if rank in row}
        if len(values) < len(running) or None in values.values():
            return
        table.append(values)
    # Whoever is the only one to differ stands at one end in each row.
    ends = (min, max)
    for end in ends:
        rank = end(table[-1], key=table[-1].__getitem__)
        if all(_apart(values, rank, points) for values in table):
            mine = round(median(values[rank] for values in table))
            theirs = round(median(_middle(values, rank) for values in table))
            yield rank, f"{name} {mine} %, others {theirs} %"


def _middle(values: Mapping[int, int], rank: int) -> float:
    return median(value for other, value in values.items() if other != rank)


def _apart(values: Mapping[int, int], rank: int, points: int) -> bool:
    others = [value for other, value in values.items() if other != rank]
    middle, mine = median(others), values[rank]
    low, high = sorted((mine, middle))
    near = sum(abs(value - middle) <= (high - low) * _NEAR for value in others)
    return high - low >= points and high >= _RATIO * low and near >= _ALIKE * len(others)


def _silent(
    row: Mapping[int, RankActivity], running: Sequence[int], now: datetime
) -> Iterator[tuple[int, str]]:
    """The rank that has written nothing for long, where all others wrote a short while ago."""
    written = {rank: row[rank].written_at for rank in running if rank in row}
    ages = {rank: (now - at).total_seconds() for rank, at in written.items() if at is not None}
    if len(ages) < len(running):
        return  # ranks that write nothing say nothing
    rank = max(ages, key=ages.__getitem__)
    longest = max(age for other, age in ages.items() if other != rank)
    if ages[rank] >= max(_SILENCE, _LONGER * longest):
        yield rank, f"silent for {duration(int(ages[rank]))}, others for {duration(int(longest))}"
