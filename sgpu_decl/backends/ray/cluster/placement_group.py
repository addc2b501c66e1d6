"""Room for the nodes of an attempt: a placement group of Ray, one bundle for each node."""

from __future__ import annotations

import time

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

from sgpu_decl.backends.ray.cluster.cluster_room import has_room

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
    begun = looked = time.monotonic()
    infeasible_since: float | None = None
    room = True
    while not group.wait(_POLL):
        now = time.monotonic()
        if stopped():
            remove_placement_group(group)
            return None
        state = (placement_group_table(group).get("stats") or {}).get("scheduling_state")
        status.write(state="queued", waiting_for=_described(nodes, bundle))
        if now - looked > _SELDOM:
            room, looked = has_room(wanted, ray.nodes()), now
        if state != "INFEASIBLE" and room:
            infeasible_since = None
        elif infeasible_since is None:
            infeasible_since = now
        elif wanted["infeasible"] is not None and now - infeasible_since > wanted["infeasible"]:
            remove_placement_group(group)
            raise NoRoom("capacity", f"the cluster has no room for {_amount(nodes, bundle)}")
        if patience is not None and now - begun > patience:
            remove_placement_group(group)
            raise NoRoom(
                "capacity",
                f"the cluster had no room for {_amount(nodes, bundle)} within the `startup_timeout`"
                f" of {patience:g} s",
            )
    status.write(waiting_for=None)
    return group


def _described(nodes: int, bundle: Mapping[str, float]) -> str:
    kind = _kind(bundle)
    free = ray.available_resources().get(kind, 0)
    every = ray.cluster_resources().get(kind, 0)
    return f"{_amount(nodes, bundle)}; {free:g} of {every:g} free"


def _amount(nodes: int, bundle: Mapping[str, float]) -> str:
    """In words, as in `2 × 4 GPU`."""  # noqa: RUF002
    kind = _kind(bundle)
    return f"{nodes} × {bundle.get(kind, 0):g} {kind}"  # noqa: RUF001


def _kind(bundle: Mapping[str, float]) -> str:
    return "GPU" if "GPU" in bundle else "CPU"
