"""The room that launches share is never said to be larger than it is."""

from itertools import combinations_with_replacement

from hypothesis import given
from hypothesis import strategies as st

from sgpu_decl.backends.ray.placement import RayPlacement, Strategy
from sgpu_decl.backends.ray.planning.cluster_nodes import ClusterNode, ClusterState
from sgpu_decl.backends.ray.planning.room_checks import RayRoom, room_of

LABELS = st.sampled_from([{}, {"zone": "a"}, {"zone": "in(a,b)"}])
PLACEMENTS = st.builds(
    lambda groups, gpus, cpus, strategy, labels: RayPlacement(
        nodes=groups, ranks_per_node=gpus, strategy=strategy, labels=labels, scales=False,
        bundle={"GPU": gpus, "CPU": cpus},
    ),
    st.integers(1, 2), st.integers(1, 3), st.integers(1, 2),
    st.sampled_from(list(Strategy)), LABELS,
)  # fmt: skip
NODES = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from(["a", "b", "c"])), max_size=3
)
Free = tuple[tuple[int, int], ...]


def room(nodes: list[tuple[int, int, str]]) -> RayRoom:
    known = tuple(
        ClusterNode(
            id=str(number), name=str(number), total={"GPU": gpus, "CPU": cpus},
            labels={"zone": zone},
        )
        for number, (gpus, cpus, zone) in enumerate(nodes)
    )  # fmt: skip
    return room_of(ClusterState(ray="2.60.0", python="3.11.7", nodes=known, scales=False), "url")


def most(placements: list[RayPlacement], free: Free, zones: list[str]) -> int:
    """How many launches can be placed, in the best way."""
    best = 0
    for index, placement in enumerate(placements):
        rest = placements[:index] + placements[index + 1 :]
        allowed = {"": "abc", "a": "a", "in(a,b)": "ab"}[placement.labels.get("zone", "")]
        usable = [number for number, zone in enumerate(zones) if zone in allowed]
        for chosen in combinations_with_replacement(usable, placement.nodes):
            if placement.strategy is Strategy.SPREAD and len({*chosen}) < len(chosen):
                continue
            left = tuple(
                (
                    gpus - chosen.count(number) * int(placement.bundle["GPU"]),
                    cpus - chosen.count(number) * int(placement.bundle["CPU"]),
                )
                for number, (gpus, cpus) in enumerate(free)
            )
            if all(min(amounts) >= 0 for amounts in left):
                best = max(best, 1 + most(rest, left, zones))
    return best


@given(NODES, PLACEMENTS, st.integers(1, 4))
def test_launches_of_one_placement_are_counted_exactly(
    nodes: list[tuple[int, int, str]], placement: RayPlacement, launches: int
) -> None:
    free = tuple((gpus, cpus) for gpus, cpus, _ in nodes)
    zones = [zone for _, _, zone in nodes]
    said = room(nodes).fitting({placement.id: launches})
    assert said == most([placement] * launches, free, zones)


@given(NODES, st.lists(PLACEMENTS, min_size=2, max_size=3))
def test_launches_of_several_placements_that_fit_can_be_placed(
    nodes: list[tuple[int, int, str]], placements: list[RayPlacement]
) -> None:
    counts: dict[str, int] = {}
    for placement in placements:
        counts[placement.id] = counts.get(placement.id, 0) + 1
    free = tuple((gpus, cpus) for gpus, cpus, _ in nodes)
    best = most(placements, free, [zone for _, _, zone in nodes])
    said = room(nodes).fitting(counts)
    assert said is not None
    assert (said > 0, said <= best) == (best > 0, True)


def test_nodes_that_may_come_have_no_limit() -> None:
    growing = RayPlacement(
        nodes=1, ranks_per_node=1, strategy=Strategy.SPREAD, bundle={"GPU": 1}, labels={},
        scales=True,
    )  # fmt: skip
    assert room([]).fitting({growing.id: 2}) is None
