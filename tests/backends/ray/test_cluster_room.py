"""Whether a cluster has room for a placement at all, as its driver counts."""

from typing import Any

import pytest

from sgpu_decl.backends.ray.cluster.cluster_room import has_room


def node(cpus: float, *, alive: bool = True, **labels: str) -> dict[str, Any]:
    return {"Alive": alive, "Resources": {"CPU": cpus} if alive else {}, "Labels": labels}


def wanted(nodes: int, cpus: float, strategy: str, **labels: str) -> dict[str, Any]:
    return {"nodes": nodes, "bundle": {"CPU": cpus}, "strategy": strategy, "labels": labels}


TWO = [node(4, zone="a"), node(4, zone="b"), node(9, alive=False, zone="a")]


@pytest.mark.parametrize(
    ("placement", "room"),
    [
        (wanted(2, 4, "spread"), True),
        (wanted(3, 1, "spread"), False),
        (wanted(4, 2, "pack"), True),
        (wanted(5, 2, "pack"), False),  # each of them fits alone
        (wanted(1, 4, "pack", zone="a"), True),
        (wanted(2, 4, "pack", zone="a"), False),
        (wanted(2, 4, "pack", zone="in(a,b)"), True),
        (wanted(1, 1, "pack", zone="in(c,d)"), False),
        (wanted(1, 1, "pack", rack="a"), False),
    ],
)
def test_nodes_hold_a_placement_or_never_will(placement: dict[str, Any], room: bool) -> None:
    assert has_room(placement, TWO) is room
