"""Sums over what a monitor measured: what the ranks of a node used since they started, as means and
peaks. They are kept as they come, so the series need not be read for them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

LONGEST = 10.0  # seconds that one look stands for: a machine that slept used nothing
_MIB = 1 << 20
_MEANS = frozenset({"processors", "gpu_percent"})
_PEAKS = ("memory", "gpu_memory")


class UsageSums:
    """For a node with so many `processors` and bytes of `memory`, and GPUs that are called
    `gpu_name`. `before` is what `to_json` gave when ranks were started before."""

    def __init__(
        self,
        *,
        processors: int,
        memory: int,
        gpu_name: str | None = None,
        before: Mapping[str, Any] | None = None,
    ) -> None:
        self._there = {"processors_there": processors, "memory_there": memory // _MIB}
        self._gpu_name = gpu_name
        self._before = before
        self._clock: float | None = None
        self._seconds = self._gpu_seconds = 0.0
        self._used = self._processors = 0.0  # percent and processors, times seconds
        self._ranks = False
        self._memory = 0
        self._gpus: set[int] = set()
        self._gpus_used: set[int] = set()
        self._gpu_memory: tuple[int, int] | None = None

    def add(
        self,
        clock: float,
        ranks: Mapping[int, Mapping[str, int]],
        devices: Sequence[Mapping[str, int]],
    ) -> None:
        """Take the measurements of one look, which stand for the time since the last one."""
        before, self._clock = self._clock, clock
        seconds = 0.0 if before is None else min(LONGEST, max(0.0, clock - before))
        self._seconds += seconds
        if ranks:
            self._ranks = True
            self._processors += seconds * sum(one["cpu"] for one in ranks.values()) / 1000
            self._memory = max(self._memory, sum(one["memory"] for one in ranks.values()))
        for one in devices:
            self._gpus.add(one["device"])
            if "utilisation" in one:
                self._gpu_seconds += seconds
                self._used += seconds * one["utilisation"]
                if one["utilisation"]:
                    self._gpus_used.add(one["device"])
            if "memory" in one and (self._gpu_memory or (-1, 0))[0] < one["memory"]:
                self._gpu_memory = one["memory"], one.get("room", 0)

    def to_json(self) -> dict[str, Any] | None:
        """Return what `model.run_usage.RunUsage` says; None if nothing was measured yet."""
        if not self._seconds:
            return dict(self._before) if self._before else None
        found: dict[str, Any] = {"seconds": round(self._seconds, 1), "nodes": 1, **self._there}
        if self._ranks:
            found["processors"] = round(self._processors / self._seconds, 3)
            found["memory"] = self._memory
        if self._gpus:
            found |= {"gpus": len(self._gpus), "gpu_name": self._gpu_name}
        if self._gpu_seconds:
            found["gpu_percent"] = round(self._used / self._gpu_seconds, 2)
            found["gpus_unused"] = len(self._gpus - self._gpus_used)
        if self._gpu_memory is not None:
            found["gpu_memory"], found["gpu_memory_there"] = self._gpu_memory
        return found if self._before is None else one_after_another(self._before, found)


def one_after_another(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """What the ranks of a node used in two starts."""
    joined = _joined((first, then), ("seconds",), lambda one: float(one["seconds"]))
    if "gpus_unused" in first and "gpus_unused" in then:
        joined["gpus_unused"] = min(first["gpus_unused"], then["gpus_unused"])
    return joined


def side_by_side(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the ranks of several nodes used at the same time."""
    sums = ("nodes", "processors", "processors_there", "gpus", "gpus_unused")
    joined = _joined(nodes, sums, lambda one: float(one.get("gpus", 0)))
    return {**joined, "seconds": max(one["seconds"] for one in nodes)}


def _joined(
    parts: Sequence[Mapping[str, Any]],
    sums: Sequence[str],
    weight: Callable[[Mapping[str, Any]], float],
) -> dict[str, Any]:
    """The last part, with sums of these values, means of others, and peaks."""
    joined: dict[str, Any] = {}
    for one in parts:
        joined |= one
    for name in sums:
        if name in joined:
            joined[name] = round(sum(one.get(name, 0) for one in parts), 3)
    for name in _MEANS - set(sums):
        known = [(one[name], weight(one)) for one in parts if name in one]
        total = sum(share for _, share in known)
        if total:
            joined[name] = round(sum(value * share for value, share in known) / total, 3)
    for name in _PEAKS:
        highest = max(parts, key=lambda one: one.get(name, -1))
        joined |= {key: highest[key] for key in (name, f"{name}_there") if key in highest}
    return joined
