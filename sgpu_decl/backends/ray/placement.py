"""What a launch asks a Ray cluster for: the plan decides it, and the launch carries it."""

import json
from collections.abc import Mapping
from enum import StrEnum

from sgpu_decl.frozen_dataclass import dataclass


class Strategy(StrEnum):
    SPREAD = "spread"
    PACK = "pack"


@dataclass(frozen=True, slots=True, kw_only=True)
class RayPlacement:
    """`nodes` rank groups of `ranks_per_node` ranks, each in one bundle of a placement group.

    Attributes:
        bundle: what Ray sets aside for a rank group, by its own names of resources: `CPU`, `GPU`.
        labels: what the nodes must have, as Ray's label selectors.
        scales: whether the cluster starts nodes for what does not fit yet.
        address: the URL of the dashboard of the cluster; None in launches of an older sgpu.
        head: the id of the cluster's head node, which another cluster, and the next session of this
            one, does not have; None if it had no head that was alive.
    """

    nodes: int
    ranks_per_node: int
    strategy: Strategy
    bundle: Mapping[str, int | float]
    labels: Mapping[str, str]
    scales: bool
    address: str | None = None
    head: str | None = None

    @property
    def id(self) -> str:
        """The placement as JSON, as `LaunchInputs.placement` holds it."""
        parts = {
            "nodes": self.nodes,
            "ranks_per_node": self.ranks_per_node,
            "strategy": str(self.strategy),
            "bundle": dict(self.bundle),
            "labels": dict(self.labels),
            "scales": self.scales,
            "address": self.address,
            "head": self.head,
        }
        return json.dumps(parts, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_id(cls, text: str) -> "RayPlacement":
        """Read the JSON again.

        Raises:
            ValueError: the text is not a placement.
        """
        parts = json.loads(text)
        try:
            return cls(**{**parts, "strategy": Strategy(parts["strategy"])})
        except (TypeError, KeyError) as error:
            raise ValueError(f"no placement of a Ray cluster: {text}") from error


def whole_cpus(bundle: Mapping[str, int | float]) -> int:
    """The CPUs that a rank group with that bundle may use: whole ones, and at least one."""
    return max(1, int(round(bundle.get("CPU", 0), 4)))  # 100 times 0.29 is 28.999999999999996
