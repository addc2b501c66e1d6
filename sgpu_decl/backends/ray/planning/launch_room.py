"""The room of a cluster that the launches of a plan share."""

from collections.abc import Mapping, Sequence
from dataclasses import field

from sgpu_decl.backends.ray.cluster.bundle_counts import bundles_in, launches_at_once
from sgpu_decl.backends.ray.cluster.cluster_room import has_selected_labels
from sgpu_decl.backends.ray.placement import RayPlacement, Strategy
from sgpu_decl.backends.ray.planning.cluster_checks import head_limit
from sgpu_decl.backends.ray.planning.cluster_nodes import ClusterNode, ClusterState
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.frozen_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RayRoom:
    """See `LaunchRoom`. `nodes` are those of the cluster, of which there is one at a URL."""

    url: str
    nodes: Sequence[ClusterNode] = field(compare=False)
    limit: int | None = field(compare=False)
    beyond: Diagnostic | None = field(compare=False)

    @property
    def name(self) -> str:
        return f"`{self.url}`"

    def fitting(self, launches: Mapping[str, int]) -> int | None:
        """Exact for launches of one placement. Those of several are placed one after the other,
        the smallest first, each on the nodes that have the least room for it."""
        wanted = [(RayPlacement.from_id(identity), count) for identity, count in launches.items()]
        if any(placement.scales for placement, _ in wanted):
            return None  # nodes may come
        free = [dict(node.free) for node in self.nodes]
        return sum(
            self._place(placement, count, free)
            for placement, count in sorted(wanted, key=lambda item: _size(item[0]))
        )

    def _place(
        self, placement: RayPlacement, launches: int, free: Sequence[dict[str, float]]
    ) -> int:
        """Take room for as many launches as fit; returns how many."""
        counts = {
            number: count
            for number, node in enumerate(self.nodes)
            if has_selected_labels(node.labels, placement.labels)
            and (count := bundles_in(free[number], placement.bundle)) > 0
        }
        groups, strategy = placement.nodes, placement.strategy
        fitting = min(launches, launches_at_once(counts.values(), groups, strategy))
        left = fitting * groups
        for number in sorted(counts, key=lambda number: counts[number]):
            # A node of a spread launch has one of its rank groups.
            most = counts[number] if strategy is Strategy.PACK else min(counts[number], fitting)
            taken = min(left, most)
            left -= taken
            for name, amount in placement.bundle.items():
                free[number][name] -= amount * taken
        return fitting


def room_of(state: ClusterState, url: str) -> RayRoom:
    limit, beyond = head_limit(state)
    return RayRoom(url=url, nodes=state.nodes, limit=limit, beyond=beyond)


def _size(placement: RayPlacement) -> tuple[float, float]:
    """Launches that ask for less come first."""
    bundle, nodes = placement.bundle, placement.nodes
    return bundle.get("GPU", 0) * nodes, bundle.get("CPU", 0) * nodes
