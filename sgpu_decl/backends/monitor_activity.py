"""What the ranks of a node use, from what its monitor saw last: see
`agent.attempt.monitor_files`. Anything may stand in that file; what is no number is not known."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from sgpu_decl.backends.activity_reader import ActivityReader
from sgpu_decl.model.attempt_view import AttemptView, RankView
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.rank_activity import RankActivity

_DIGITS = 10


class GpusOfRank(NamedTuple):
    """Of the GPUs of one rank: the mean of their use, in percent, and the sums of the memory that
    is used and that is there, in MiB; None where one does not tell."""

    gpu: int | None
    gpu_memory: int | None
    gpu_room: int | None


class MonitorActivity(ActivityReader):
    """For nodes elsewhere: `seen` gives what arrived from there last."""

    def __init__(self, seen: Callable[[], Mapping[str, Any]]) -> None:
        self._seen = seen

    def look(self, view: AttemptView) -> tuple[datetime | None, Sequence[RankActivity]]:
        seen = self._seen() if view.state.active else {}
        return measured(seen, view, [RankActivity(rank=rank.rank) for rank in view.ranks])


def running_ranks(seen: Mapping[str, Any]) -> tuple[RankView, ...]:
    """The ranks that the monitors of all nodes saw running, where no other source names them."""
    found = [
        RankView(rank=int(rank), node_rank=int(node), state="running")
        for node, seen_there in _by_node(seen).items()
        for rank, used in _ranks_of(seen_there).items()
        if used is not None and _is_number(rank) and _is_number(node)
    ]
    return tuple(sorted(found, key=lambda one: one.rank))


def measured(
    seen: Mapping[str, Any], view: AttemptView, ranks: Sequence[RankActivity]
) -> tuple[datetime | None, Sequence[RankActivity]]:
    """When the monitor of node 0 looked last, and the ranks with what the monitors of all nodes
    saw."""
    usage: dict[int, dict[str, Any]] = {}
    for number, node in _by_node(seen).items():
        there = [rank.rank for rank in view.ranks if str(rank.node_rank or 0) == number]
        usage |= _on_node(node, there)
    return _moment(seen.get("at")), [replace(one, **usage.get(one.rank, {})) for one in ranks]


def _is_number(name: str) -> bool:
    return name.isdecimal() and len(name) < _DIGITS


def _by_node(seen: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    others = seen.get("others")
    nodes = {"0": seen, **(others if isinstance(others, dict) else {})}
    return {number: dict(node) for number, node in nodes.items() if isinstance(node, Mapping)}


def _ranks_of(seen: Mapping[str, Any]) -> dict[str, Any]:
    used = seen.get("ranks")
    return used if isinstance(used, dict) else {}


def _on_node(seen: Mapping[str, Any], ranks: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Fields of `RankActivity` of the ranks of a node, as its monitor saw them."""
    of_ranks, devices = _ranks_of(seen), seen.get("devices")
    gpus = gpus_of_ranks(devices if isinstance(devices, list) else [], len(ranks))
    return {
        rank: _usage(of_ranks.get(str(rank)), gpus.get(place)) for place, rank in enumerate(ranks)
    }


def _usage(values: object, gpu: GpusOfRank | None) -> dict[str, Any]:
    """Fields of `RankActivity`: of a rank that has ended there are no values."""
    if not isinstance(values, dict):
        return {}
    cpu = whole(values.get("cpu"))
    return {
        "cpu": None if cpu is None else round(cpu / 10),
        "memory": whole(values.get("memory")),
        **(gpu._asdict() if gpu is not None else {}),
    }


def gpus_of_ranks(devices: Sequence[Json], ranks: int) -> dict[int, GpusOfRank]:
    """What the GPUs of each rank do. Each rank has as many as the others, in their order."""
    numbered: dict[int, Mapping[str, Json]] = {}
    for one in devices:
        number = whole(one.get("device")) if isinstance(one, Mapping) else None
        if number is not None and isinstance(one, Mapping):
            numbered[number] = one
    count = max(ranks, 1 + max(numbered, default=-1))
    of: dict[int, list[Mapping[str, Json]]] = {}
    for number, one in numbered.items():
        of.setdefault(number * ranks // count, []).append(one)
    return {
        rank: GpusOfRank(
            gpu=_mean([whole(one.get("utilisation")) for one in some]),
            gpu_memory=_sum([whole(one.get("memory")) for one in some]),
            gpu_room=_sum([whole(one.get("room")) for one in some]),
        )
        for rank, some in of.items()
    }


def _mean(values: Sequence[int | None]) -> int | None:
    total = _sum(values)
    return None if total is None else round(total / len(values))


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):  # not finite
        return None


def _moment(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
