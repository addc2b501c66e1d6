"""Whether a cluster that does not grow has nodes for a placement at all. Ray does not always say
so: it looks at bundles one by one in some cases (2.49, and 2.60 with the strategy PACK), and waits
for ever for nodes that together are too small."""

from __future__ import annotations

import re

from sgpu_decl.backends.ray.cluster.bundle_counts import bundles_in, launches_at_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

__all__ = ["has_room", "has_selected_labels"]

_EITHER = re.compile(r"in\((.*)\)")  # a label selector of several values


def has_room(wanted: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the nodes have room for a placement when nothing else runs there.

    Args:
        wanted: see `placement_group.place`.
        nodes: those of the cluster, as `ray.nodes()` gives them.
    """
    counts = [
        bundles_in(node["Resources"], wanted["bundle"])
        for node in nodes
        if node["Alive"] and has_selected_labels(node.get("Labels") or {}, wanted["labels"])
    ]
    return launches_at_once(counts, int(wanted["nodes"]), wanted["strategy"]) > 0


def has_selected_labels(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(name) in _values(selector) for name, selector in wanted.items())


def _values(selector: str) -> list[str]:
    either = _EITHER.fullmatch(selector)
    return either[1].split(",") if either else [selector]
