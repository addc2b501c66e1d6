"""What Ray's State API says of the nodes of a cluster."""

from collections.abc import Iterable, Mapping
from typing import Any

from sgpu_decl.backends.ray.api.dashboard import Dashboard

__all__ = ["NODES", "head_among", "head_node", "list_nodes", "living_nodes"]

NODES = "/api/v0/nodes"

_ALIVE = "ALIVE"
_MOST = 10_000  # that Ray lists


def list_nodes(dashboard: Dashboard, **query: int) -> list[Mapping[str, Any]]:
    """Return what is said of each node that is alive, with `detail=1` all that Ray knows.
    One request; raises BackendError."""
    answer = dashboard.get(NODES, limit=_MOST, **query)
    rows = dashboard.part(NODES, answer, "data.result.result", list)
    alive = [row for row in rows if dashboard.part(NODES, row, "state", str) == _ALIVE]
    for row in alive:
        dashboard.part(NODES, row, "node_id", str)
    return alive


def living_nodes(dashboard: Dashboard) -> frozenset[str]:
    """Return the ids of the nodes that are alive. One request; raises BackendError."""
    return frozenset(row["node_id"] for row in list_nodes(dashboard))


def head_node(dashboard: Dashboard) -> str | None:
    """Return the id of the head; None if none is alive. One request; raises BackendError."""
    return head_among(dashboard, list_nodes(dashboard))


def head_among(dashboard: Dashboard, rows: Iterable[Mapping[str, Any]]) -> str | None:
    """The id of the head among nodes that are alive, if it is. Raises BackendError."""
    heads = (row for row in rows if dashboard.optional_part(NODES, row, "is_head_node", bool))
    return next((str(row["node_id"]) for row in heads), None)
