"""Whether a cluster has room for a placement at all, and what it lacks, as its driver counts."""

from typing import Any

import pytest

from sgpu_decl.backends.ray.cluster.cluster_room import has_room, need, shortage


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


GPUS = {"CPU": 32.0, "GPU": 8.0, "memory": 64e9}
TYPE = "accelerator_type:A10"
MIXED: list[dict[str, Any]] = [
    {"NodeID": "a", "Alive": True, "Resources": {**GPUS, "ssd": 2.0}, "Labels": {"type": "H100"}},
    {"NodeID": "b", "Alive": True, "Resources": GPUS, "Labels": {"type": "H100"}},
    {
        "NodeID": "c",
        "Alive": True,
        "Resources": {**GPUS, TYPE: 1.0},
        "Labels": {"type": "A10"},
    },
    {"NodeID": "d", "Alive": True, "Resources": {"CPU": 64.0}, "Labels": {}},
    {"NodeID": "e", "Alive": False, "Resources": {}, "Labels": {"type": "H100"}},
]
ALL_FREE = {str(node["NodeID"]): node["Resources"] for node in MIXED}


@pytest.mark.parametrize(
    ("bundle", "labels", "used", "expected"),
    [
        # GPUs of other types, and those of nodes that are gone, do not count.
        ({"GPU": 4}, {"type": "H100"}, {"a": {"GPU": 6}}, "2 x 4 GPU; 10 of 16 free"),
        (
            {"GPU": 8, TYPE: 0.001},
            {},
            {"c": {"GPU": 8}},
            "2 x 8 GPU; 0 of 8 free",
        ),
        # Neither do GPUs count where they are not what is short.
        (
            {"GPU": 4, "CPU": 16},
            {"type": "H100"},
            {"a": {"CPU": 30}, "b": {"CPU": 20}},
            "2 x 16 CPU; 14 of 64 free",
        ),
        (
            {"GPU": 4, "memory": 48e9},
            {"type": "H100"},
            {"a": {"memory": 32e9}},
            "2 x 48.0 GB memory; 96.0 GB of 128.0 GB free",
        ),
        ({"CPU": 1, "ssd": 0.5}, {}, {"a": {"ssd": 1.7}}, "2 x 0.5 ssd; 0.3 of 2 free"),
        ({"CPU": 48}, {}, {"d": {"CPU": 32}}, "2 x 48 CPU; 128 of 160 free"),
        ({"CPU": 1, "tape": 1}, {}, {}, "2 x 1 tape; 0 of 0 free"),
        # Ray is about to place it.
        ({"GPU": 4, "CPU": 4}, {"type": "H100"}, {}, "2 x 4 GPU; 16 of 16 free"),
    ],
)
def test_a_placement_waits_for_what_is_short_on_nodes_that_count_for_it(
    bundle: dict[str, float],
    labels: dict[str, str],
    used: dict[str, dict[str, float]],
    expected: str,
) -> None:
    placement = {"nodes": 2, "bundle": bundle, "strategy": "spread", "labels": labels}
    free = {
        node: {name: amount - used.get(node, {}).get(name, 0) for name, amount in have.items()}
        for node, have in ALL_FREE.items()
    }
    words = shortage(placement, MIXED, free).replace("\N{MULTIPLICATION SIGN}", "x")
    assert words == expected


@pytest.mark.parametrize(
    ("bundle", "expected"),
    [({"GPU": 9}, "2 x 9 GPU"), ({"GPU": 1, "memory": 65e9}, "2 x 65.0 GB memory")],
)
def test_what_a_cluster_never_has_is_named(bundle: dict[str, float], expected: str) -> None:
    placement = {"nodes": 2, "bundle": bundle, "strategy": "spread", "labels": {}}
    assert need(placement, MIXED).replace("\N{MULTIPLICATION SIGN}", "x") == expected
