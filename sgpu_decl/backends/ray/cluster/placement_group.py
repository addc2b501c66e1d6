"""Room for the nodes of an attempt: a placement group of Ray, one bundle for each node."""

from __future__ import annotations

import time

import ray
from ray._private.state import available_resources_per_node
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

from sgpu_decl.backends.ray.cluster.cluster_room import has_room, need, shortage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ray.util.placement_group import PlacementGroup

    from sgpu_decl.backends.ray.cluster.driver_status import DriverStatus


_STRATEGIES = {"spread": "STRICT_SPREAD", "pack": "PACK"}
_POLL = 0.5  # seconds
_SELDOM = 5.0  # seconds between two looks at all nodes


class NoRoom(Exception):
    """The attempt gets no nodes. `outcome` fields: the failure class and the summary."""

    def __init__(self, failure: str, summary: str) -> None:
        super().__init__(summary)
        self.failure = failure
        self.summary = summary


def place(
    wanted: Mapping[str, Any],
    name: str,
    status: DriverStatus,
    *,
    patience: float | None,
    stopped: Callable[[], bool],
) -> PlacementGroup | None:
    """Wait for the nodes of an attempt; None if it was `stopped` meanwhile.

    Args:
        wanted: `nodes`, `bundle`, `strategy` and `labels` of the placement, and `infeasible`, the
            seconds until a cluster is known to have no such nodes; None where it starts nodes.
        name: that of the placement group.
        patience: the seconds after which an attempt without nodes has failed; None for no limit.

    Raises:
        NoRoom: there are none, and there will be none.
    """
    nodes, bundle = int(wanted["nodes"]), dict(wanted["bundle"])
    # A label selector came with Ray 2.49, which is the oldest version for this driver.
    labels = {"bundle_label_selector": [wanted["labels"]] * nodes} if wanted["labels"] else {}
    group = placement_group(
        [bundle] * nodes, strategy=_STRATEGIES[wanted["strategy"]], name=name, **labels
    )
    begun, looked = time.monotonic(), float("-inf")
    infeasible_since: float | None = None
    all_nodes: list[dict[str, Any]] = []
    while not group.wait(_POLL):
        now = time.monotonic()
        if stopped():
            remove_placement_group(group)
            return None
        state = (placement_group_table(group).get("stats") or {}).get("scheduling_state")
        if now - looked > _SELDOM:
            all_nodes, looked = ray.nodes(), now
        waiting_for = shortage(wanted, all_nodes, available_resources_per_node())
        status.write(state="queued", waiting_for=waiting_for)
        if state != "INFEASIBLE" and has_room(wanted, all_nodes):
            infeasible_since = None
        elif infeasible_since is None:
            infeasible_since = now
        elif wanted["infeasible"] is not None and now - infeasible_since > wanted["infeasible"]:
            remove_placement_group(group)
            raise NoRoom("capacity", f"the cluster has no room for {need(wanted, all_nodes)}")
        if patience is not None and now - begun > patience:
            remove_placement_group(group)
            raise NoRoom(
                "capacity",
                f"the cluster had no room within the `startup_timeout` of {patience:g} s for "
                f"{waiting_for}",
            )
    status.write(waiting_for=None)
    return group
