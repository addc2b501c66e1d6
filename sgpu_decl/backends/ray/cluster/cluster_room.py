"""Whether a cluster that does not grow has nodes for a placement at all, and what it lacks. Ray
does not always say so: it looks at bundles one by one in some cases (2.49, and 2.60 with the
strategy PACK), and waits for ever for nodes that together are too small."""

from __future__ import annotations

import re

from sgpu_decl.agent.system.byte_size import size
from sgpu_decl.backends.ray.cluster.bundle_counts import (
    TYPE_RESOURCE,
    bundles_in,
    launches_at_once,
    short_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_EITHER = re.compile(r"in\((.*)\)")  # a label selector of several values


def has_room(wanted: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the nodes have room for a placement when nothing else runs there.

    Args:
        wanted: see `placement_group.place`.
        nodes: those of the cluster, as `ray.nodes()` gives them.
    """
    counts = [bundles_in(node["Resources"], wanted["bundle"]) for node in _eligible(wanted, nodes)]
    return launches_at_once(counts, int(wanted["nodes"]), wanted["strategy"]) > 0


def need(wanted: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> str:
    """What a placement asks for of the resource that the nodes have not enough of, even when
    nothing else runs there: `2 x 4 GPU`, with the sign for times."""
    return _need(wanted, _short(wanted, [node["Resources"] for node in _eligible(wanted, nodes)]))


def shortage(
    wanted: Mapping[str, Any],
    nodes: Sequence[Mapping[str, Any]],
    free: Mapping[str, Mapping[str, float]],
) -> str:
    """What a placement asks for of the resource that is short now, and how much of it is free on
    the nodes that count for it: `2 x 4 GPU; 10 of 16 free`.

    Args:
        free: what is free on each node, by its id.
    """
    eligible = _eligible(wanted, nodes)
    left = [free.get(node["NodeID"], {}) for node in eligible]
    name = _short(wanted, left)
    have = sum(resources.get(name, 0.0) for resources in left)
    every = sum(node["Resources"].get(name, 0.0) for node in eligible)
    return f"{_need(wanted, name)}; {_amount(have, name)} of {_amount(every, name)} free"


def _eligible(
    wanted: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The nodes that are alive, have the labels, and the type of GPU where a resource tells it."""
    types = [name for name in wanted["bundle"] if name.startswith(TYPE_RESOURCE)]
    return [
        node
        for node in nodes
        if node["Alive"]
        and has_selected_labels(node.get("Labels") or {}, wanted["labels"])
        and all(name in node["Resources"] for name in types)
    ]


def _short(wanted: Mapping[str, Any], resources: Sequence[Mapping[str, float]]) -> str:
    return short_of(resources, wanted["bundle"], int(wanted["nodes"]), wanted["strategy"])[0]


def _need(wanted: Mapping[str, Any], name: str) -> str:
    times = "\N{MULTIPLICATION SIGN}"
    return f"{wanted['nodes']} {times} {_amount(wanted['bundle'][name], name)} {name}"


def _amount(amount: float, name: str) -> str:
    return size(round(amount)) if name == "memory" else f"{round(amount, 4):g}"


def has_selected_labels(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(name) in _values(selector) for name, selector in wanted.items())


def _values(selector: str) -> list[str]:
    either = _EITHER.fullmatch(selector)
    return either[1].split(",") if either else [selector]
