"""What a plan says of the room that a cluster has for a run, and for all launches together."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from sgpu_decl.backends.ray.cluster.bundle_counts import bundles_in, launches_at_once, unit_of
from sgpu_decl.backends.ray.cluster.cluster_room import has_selected_labels
from sgpu_decl.backends.ray.placement import RayPlacement, Strategy
from sgpu_decl.backends.ray.planning.cluster_checks import head_limit
from sgpu_decl.backends.ray.planning.cluster_nodes import TYPE_LABEL, ClusterNode, ClusterState
from sgpu_decl.backends.ray.planning.group_shape import (
    Fit,
    change_that_fits,
    has_labels,
    has_shape,
    is_gpu_run,
    options_of,
    scales,
)
from sgpu_decl.backends.ray.planning.launch_placement import TypeTerms, type_terms
from sgpu_decl.backends.ray.planning.shortage import (
    amount_in_words,
    shortage_in_all,
    shortage_now,
)
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.nearest_names import names_hint
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.gpu import GPUType

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

__all__ = ["RayRoom", "room_of"]

Places = Mapping[str, Place]


def room_findings(
    config: "RunConfig",
    places: Places,
    state: ClusterState,
    fit: Fit,
    holders: Callable[[], Sequence[str]],
) -> Iterator[Diagnostic]:
    """Whether a run never fits, does not fit now, or fits.

    Args:
        holders: gives the attempts that run on the cluster, in words; asked if the run has to wait.
    """
    if not fit.in_all:
        unknown = tuple(_unknown_names(config, places, state))
        yield from unknown
        if not any(finding.severity is Severity.ERROR for finding in unknown):
            yield _never_fits(config, places, state, fit)
    elif not fit.now:
        yield _not_now(config, places, fit, holders())


def _never_fits(config: "RunConfig", places: Places, state: ClusterState, fit: Fit) -> Diagnostic:
    short = shortage_in_all(config, places, state, fit)
    place = places.get(short.field) or places.get("gpus")
    if scales(config, state) and not has_shape(config, state, fit):
        unit = unit_of(fit.bundle)
        what = amount_in_words(config, unit, fit.bundle[unit] * fit.groups)
        return Diagnostic(
            code="ranks_per_node_missing",
            summary=f"needs {what}; {short.has}: sgpu cannot know how many ranks a new node will "
            "hold",
            place=place,
            hint="set `ranks_per_node` in `backend`",
        )
    summary = f"needs {short.needs}; {short.has}"
    if scales(config, state):
        return _new_nodes(config, state, fit, summary, place)
    hint = change_that_fits(config, state) or (
        "ask for less, or use another cluster; write `autoscaling: true` in `backend` if the "
        "cluster starts nodes"
    )
    return Diagnostic(code="never_fits", summary=summary, place=place, hint=hint)


def _new_nodes(
    config: "RunConfig", state: ClusterState, fit: Fit, summary: str, place: Place | None
) -> Diagnostic:
    """The warning of a cluster that starts nodes, with the name by which it is asked for them."""
    hint = (
        "`startup_timeout` limits the wait; write `autoscaling: false` in `backend` if no nodes "
        "come"
    )
    terms = type_terms(config, state, fit) if is_gpu_run(config) else TypeTerms()
    nodes = "such nodes"
    if terms.names and terms.labels:
        labels = " or ".join(f"`{TYPE_LABEL}: {name}`" for name in terms.names)
        nodes = f"nodes with the label {labels}"
    elif terms.names:
        (resource,) = terms.resources
        nodes = f"nodes with the resource `{resource}`"
        if terms.by_hand:
            nodes += ", which Ray gives to no node by itself"
            family = config.type.kind.family
            other = f"`type: {family.name}`, of any size" if family else "`type: GPU`"
            hint = (
                f"start such nodes with `--resources '{{\"{resource}\": 1}}'`, or write {other}; "
                "`startup_timeout` limits the wait"
            )
    elif config.type.kind is GPUType.GPU and not fit.nodes and fit.groups > 1:
        nodes += ", which may have GPUs of several types"
        hint = f"name a `type` of GPU if all ranks need the same; {hint}"
    return Diagnostic(
        code="needs_new_nodes",
        severity=Severity.WARNING,
        summary=f"{summary}: it waits until the cluster starts {nodes}",
        place=place,
        hint=hint,
    )


def _not_now(config: "RunConfig", places: Places, fit: Fit, holders: Sequence[str]) -> Diagnostic:
    short = shortage_now(config, fit)
    held = f"; these attempts run there: {', '.join(holders)}" if holders else ""
    return Diagnostic(
        code="not_now",
        severity=Severity.WARNING,
        summary=f"needs {short.needs}, and has to wait for room; free now: {short.has}{held}",
        place=places.get(short.field),
        hint="it starts as soon as there is room; `startup_timeout` limits the wait",
    )


def _unknown_names(
    config: "RunConfig", places: Places, state: ClusterState
) -> Iterator[Diagnostic]:
    """Resources and labels that no node of the cluster has."""
    options = options_of(config)
    grows = scales(config, state)
    known = {name for node in state.nodes for name in node.total}
    block, asked = "backend.resources_per_rank", list(options.resources_per_rank)
    if config.ray is not None and config.drives_existing:
        block, asked = "ray.resources", list(config.ray.resources)
    for name in asked:
        if name not in known:
            yield Diagnostic(
                code="unknown_resource",
                severity=Severity.WARNING if grows else Severity.ERROR,
                summary=f"no node of the cluster has the resource `{name}`",
                place=places.get(f"{block}.{name}"),
                hint=names_hint(name, (item for item in known if not item.startswith("node:"))),
            )
    for name, value in options.labels.items():
        if any(has_labels(node, {name: value}) for node in state.nodes):
            continue
        values = [node.labels[name] for node in state.nodes if name in node.labels]
        labels = (label for node in state.nodes for label in node.labels)
        yield Diagnostic(
            code="unknown_label",
            severity=Severity.WARNING if grows else Severity.ERROR,
            summary=f"no node of the cluster has the label `{name}: {value}`",
            place=places.get(f"backend.labels.{name}"),
            hint=names_hint(value, values) if values else names_hint(name, labels),
        )


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
