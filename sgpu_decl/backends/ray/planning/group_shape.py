"""The shape of a run on a cluster: how many rank groups of how many ranks, on which nodes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from sgpu_decl.backends.ray.cluster.bundle_counts import bundles_in, divisors, launches_at_once
from sgpu_decl.backends.ray.placement import RayPlacement, Strategy
from sgpu_decl.backends.ray.planning.cluster_nodes import (
    NODE_LABEL,
    TYPE_LABEL,
    TYPE_RESOURCE,
    ClusterNode,
    ClusterState,
)
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.gpu import GPUType

if TYPE_CHECKING:
    from sgpu_decl.backends.ray.options import RayOptions
    from sgpu_decl.config.run import RunConfig

_TYPE_SHARE = 0.001  # of the resource that stands for a type: any number of groups finds room


def options_of(config: "RunConfig") -> "RayOptions":
    """The options of a run on this backend, or their plain values (`config/cached_files.py`)."""
    return cast("RayOptions", config.backend)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A shape, and how much room a cluster has for it.

    Attributes:
        nodes: those with the type of GPU and the labels.
        kind: their type of GPU, where the run takes any; None where nothing tells.
        in_all: how many such launches the cluster holds when nothing else runs there.
        now: how many of them it has room for now.
    """

    groups: int
    ranks: int
    bundle: Mapping[str, float]
    nodes: tuple[ClusterNode, ...]
    kind: GPUType | None
    in_all: int
    now: int


def has_equal_groups(config: "RunConfig") -> bool:
    """Whether `ranks_per_node` divides `gpus`. Without that, a run has no shape."""
    return config.gpus % (options_of(config).ranks_per_node or 1) == 0


def is_gpu_run(config: "RunConfig") -> bool:
    return config.type.kind is not GPUType.CPU


def fit_of(config: "RunConfig", state: ClusterState) -> Fit:
    """The shape that a run gets: the largest rank groups for which the cluster has enough nodes in
    all, so that it does not change with the load. Of several types of GPU that would do, the one
    with the most room is taken. If nothing fits, the shape is the one that comes nearest."""
    options = options_of(config)
    ranks = [options.ranks_per_node] if options.ranks_per_node else divisors(config.gpus)
    kinds = list(_kinds(config, state))
    for number in ranks:
        fits = [_fit(config, nodes, kind, number) for kind, nodes in kinds]
        if any(fit.in_all for fit in fits):
            return max(fits, key=lambda fit: (bool(fit.in_all), fit.now, fit.in_all))
    most = max((int(node.gpus) for _, nodes in kinds for node in nodes), default=0)
    number = next((item for item in ranks if item <= most), ranks[-1 if most else 0])
    fits = [_fit(config, nodes, kind, number) for kind, nodes in kinds]
    return max(fits, key=lambda fit: len(fit.nodes), default=_fit(config, (), None, number))


def bundle_of(config: "RunConfig", ranks: int) -> dict[str, int | float]:
    """What Ray sets aside for a rank group."""
    amounts = {name: each * ranks for name, each in options_of(config).rank_resources.items()}
    return {**amounts, "GPU": ranks} if is_gpu_run(config) else amounts


def placement_of(config: "RunConfig", state: ClusterState, fit: Fit) -> RayPlacement:
    """What the launch asks the cluster for."""
    options = options_of(config)
    bundle = bundle_of(config, fit.ranks)
    labels = dict(options.labels)
    if is_gpu_run(config):
        type_labels, type_resource = _type_terms(config, state, fit.nodes)
        labels |= type_labels
        bundle |= type_resource
    return RayPlacement(
        nodes=fit.groups,
        ranks_per_node=fit.ranks,
        strategy=Strategy(options.strategy),
        bundle=bundle,
        labels=labels,
        scales=scales(config, state),
    )


def scales(config: "RunConfig", state: ClusterState) -> bool:
    """Whether nodes may come: what the run says, else what the cluster's nodes tell."""
    written = options_of(config).autoscaling
    return state.scales if written is None else written


def has_shape(config: "RunConfig", state: ClusterState, fit: Fit) -> bool:
    """Whether a launch knows its rank groups. Nodes that may come can be of any size."""
    return bool(fit.in_all or (scales(config, state) and options_of(config).ranks_per_node))


def in_words(fit: Fit, strategy: Strategy) -> str:
    """`2 nodes × 4 ranks, spread`."""  # noqa: RUF002
    what = "node" if strategy == Strategy.SPREAD else "group"
    groups = f"{fit.groups} {what}{'' if fit.groups == 1 else 's'}"
    ranks = f"{fit.ranks} rank{'' if fit.ranks == 1 else 's'}"
    return f"{groups} \N{MULTIPLICATION SIGN} {ranks}, {strategy}"


def has_labels(node: ClusterNode, labels: Mapping[str, str]) -> bool:
    return all(node.labels.get(name) == value for name, value in labels.items())


def _fit(
    config: "RunConfig", nodes: Sequence[ClusterNode], kind: GPUType | None, ranks: int
) -> Fit:
    groups, strategy = config.gpus // ranks, options_of(config).strategy
    bundle = bundle_of(config, ranks)

    def room(resources: Sequence[Mapping[str, float]]) -> int:
        counts = [bundles_in(item, bundle) for item in resources]
        return launches_at_once(counts, groups, strategy)

    return Fit(
        groups=groups,
        ranks=ranks,
        bundle=bundle,
        nodes=tuple(nodes),
        kind=kind,
        in_all=room([node.total for node in nodes]),
        now=room([node.free for node in nodes]),
    )


def _kinds(
    config: "RunConfig", state: ClusterState
) -> Iterator[tuple[GPUType | None, tuple[ClusterNode, ...]]]:
    """The nodes that ranks may use: in one tuple where the run names a type, else in one for each
    type, since all ranks of a run have the same."""
    labels, wanted = options_of(config).labels, config.type.kind
    nodes = [node for node in state.nodes if has_labels(node, labels)]
    if wanted is GPUType.CPU:
        yield None, tuple(nodes)
        return
    nodes = [node for node in nodes if node.gpus]
    if wanted is not GPUType.GPU:
        yield wanted, tuple(node for node in nodes if node.kind and wanted.covers(node.kind))
        return
    for kind in dict.fromkeys(node.kind for node in nodes):
        yield kind, tuple(node for node in nodes if node.kind is kind)


def _type_terms(
    config: "RunConfig", state: ClusterState, nodes: Sequence[ClusterNode]
) -> tuple[dict[str, str], dict[str, float]]:
    """The labels and the resource that hold ranks on nodes of their type: the first that all of
    these nodes have, and no other node with GPUs and the labels of the run."""
    own = {node.id for node in nodes}
    labelled = (node for node in state.nodes if has_labels(node, options_of(config).labels))
    others = [node for node in labelled if node.gpus and node.id not in own]
    values = {node.labels.get(TYPE_LABEL) for node in nodes}
    resources = {node.type_resources for node in nodes}
    if (
        nodes
        and None not in values
        and not values & {node.labels.get(TYPE_LABEL) for node in others}
    ):
        return {TYPE_LABEL: _either(values)}, {}
    only = resources.pop() if len(resources) == 1 else ()
    if len(only) == 1 and not any(only[0] in node.total for node in others):
        return {}, {only[0]: _TYPE_SHARE}
    if not others and nodes:
        return {}, {}
    if scales(config, state) or not nodes:  # they come when they are asked for
        named = config.type.kind is not GPUType.GPU
        return {}, {f"{TYPE_RESOURCE}{config.type.name}": _TYPE_SHARE} if named else {}
    return {NODE_LABEL: _either({*own})}, {}


def _either(values: set[str | None]) -> str:
    """A label selector for one of several values."""
    texts = sorted(filter(None, values))
    return texts[0] if len(texts) == 1 else f"in({','.join(texts)})"
