"""The files by which a monitor tells what it sees now, in the folder of a node's records.

series.db            what ranks and GPUs used, second by second: see `series_file`
monitor.json         replaced each second: `at`, when that was; `ranks` by their numbers and
                     `devices`, as in the series; `progress`, see `ProgressEstimate.to_json`, and
                     `usage`, see `UsageSums.to_json`, null where nothing is known; `idle`, see
                     `IdleWindow.to_json`, and `rank_wait`, see `CollectiveWait.to_json`, null where
                     that is not so; on node 0 also `others`, the same of other nodes by their
                     numbers, some seconds ago
RANK/progress.json   in the folder of a rank: what `runtime.report_progress` was told last
"""

from __future__ import annotations

from sgpu_decl.agent.attempt.attempt_files import read_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SERIES = "series.db"
MONITOR = "monitor.json"
REPORTED = "progress.json"
LONGEST = 1 << 19  # bytes of a message between a monitor and its supervisor


USAGE = ("seconds", "nodes", "processors", "processors_there", "memory", "memory_there", "gpus",
         "gpu_name", "gpu_percent", "gpus_unused", "gpu_memory", "gpu_memory_there")  # fmt: skip


def monitored(folder: str) -> dict[str, Any]:
    """What a record of an attempt takes from the monitor of a node: `progress`, how far its ranks
    were when it looked last, `usage`, what they used, `idle`, that they use too little, and
    `rank_wait`, for whom they wait; without what nobody knows."""
    seen = read_json(folder, MONITOR) or {}
    found: dict[str, Any] = {}
    for name in ("progress", "rank_wait"):
        if isinstance(seen.get(name), dict):
            found[name] = seen[name]
    if usage := usage_in(seen):
        found["usage"] = usage
    if idle := idle_in(seen):
        found["idle"] = idle
    return found


def usage_in(seen: Mapping[str, Any]) -> dict[str, Any]:
    """What ranks used, as a file or a message says; empty where it does not. Ranks could have
    written it."""
    used = seen.get("usage")
    if not isinstance(used, dict) or not _is_number(used.get("seconds")):
        return {}
    found = {name: used[name] for name in USAGE if _is_number(used.get(name))}
    named = used.get("gpu_name")
    found.pop("gpu_name", None)
    return {**found, "gpu_name": named[:96]} if isinstance(named, str) else found


def idle_in(seen: Mapping[str, Any]) -> dict[str, Any]:
    """How little a node uses, as a file says; empty where that is enough, or it does not say."""
    item = seen.get("idle")
    if not isinstance(item, dict) or item.get("of") not in ("gpus", "processors"):
        return {}
    numbers = {name: item.get(name) for name in ("count", "percent", "limit", "seconds")}
    return {"of": item["of"], **numbers} if all(map(_is_number, numbers.values())) else {}


def idle_pause(limit: Mapping[str, Any]) -> float:
    """Seconds between two looks at whether a node is idle, by the `idle` of a spec."""
    return float(min(30.0, max(0.5, limit["seconds"] / 4)))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < float("inf")
