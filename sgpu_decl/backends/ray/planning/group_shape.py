"""The shape of a run on a cluster: how many rank groups of how many ranks, on which nodes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from sgpu_decl.backends.launch_request import foreign_config
from sgpu_decl.backends.ray.cluster.bundle_counts import (
    HEAD_RESOURCE,
    bundles_in,
    divisors,
    launches_at_once,
)
from sgpu_decl.backends.ray.placement import Strategy
from sgpu_decl.backends.ray.planning.cluster_nodes import TYPE_LABEL, ClusterNode, ClusterState
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.gpu import GPUType

if TYPE_CHECKING:
    from sgpu_decl.backends.ray.options import RayOptions
    from sgpu_decl.config.run import RunConfig


def options_of(config: "RunConfig") -> "RayOptions":
    """The options of a run on this backend. Raises BackendError: they are another backend's."""
    if str(config.backend.kind) != "ray":
        raise foreign_config("a Ray cluster")
    return cast("RayOptions", config.backend)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A shape, and how much room a cluster has for it.

    Attributes:
        nodes: those with the type of GPU and the labels.
        model: what their GPUs are called; None where nothing tells.
        in_all: how many such launches the cluster holds when nothing else runs there.
        now: how many of them it has room for now.
    """

    groups: int
    ranks: int
    bundle: Mapping[str, float]
    nodes: tuple[ClusterNode, ...]
    model: str | None
    in_all: int
    now: int


def has_equal_groups(config: "RunConfig") -> bool:
    """Whether `ranks_per_node` divides `gpus`. Without that, a run has no shape."""
    return config.ranks % (options_of(config).ranks_per_node or 1) == 0


def is_gpu_run(config: "RunConfig") -> bool:
    return config.type.kind is not GPUType.CPU


def fit_of(config: "RunConfig", state: ClusterState) -> Fit:
    """The shape that a run gets: the largest rank groups for which the cluster has enough nodes in
    all, so that it does not change with the load. Of several types of GPU that would do, the one
    with the most room is taken. If nothing fits, the shape is the one that comes nearest."""
    options = options_of(config)
    fit = _first_fit(config, state, options.ranks_per_node, options.strategy)
    if fit is not None:
        return fit
    models, ranks = list(_models(config, state)), _sizes(config, options.ranks_per_node)
    most = max((int(node.gpus) for _, nodes in models for node in nodes), default=0)
    number = next((item for item in ranks if item <= most), ranks[-1 if most else 0])
    fits = [_fit(config, nodes, model, number, options.strategy) for model, nodes in models]
    return max(fits, key=_nearness, default=_fit(config, (), None, number, options.strategy))


def change_that_fits(config: "RunConfig", state: ClusterState) -> str | None:
    """What to change in a run that never fits as it is written, and its shape then; None if the
    cluster has not enough for its ranks, however they are spread over nodes."""
    options = options_of(config)
    pack = "write `strategy: pack` in `backend`"
    ways = (
        (None, options.strategy, "leave `ranks_per_node` out"),
        (options.ranks_per_node, Strategy.PACK, pack),
        (None, Strategy.PACK, f"{pack}, and leave `ranks_per_node` out"),
    )
    for ranks, strategy, change in ways:
        fit = _first_fit(config, state, ranks, strategy)
        if fit is not None:
            return f"{change}: {in_words(fit, strategy)}"
    return None


def _sizes(config: "RunConfig", ranks_per_node: int | None) -> Sequence[int]:
    """The sizes that rank groups may have."""
    return [ranks_per_node] if ranks_per_node else divisors(config.ranks)


def _first_fit(
    config: "RunConfig", state: ClusterState, ranks_per_node: int | None, strategy: Strategy
) -> Fit | None:
    """The largest rank groups that fit; None if none do."""
    models = list(_models(config, state))
    for number in _sizes(config, ranks_per_node):
        fits = [_fit(config, nodes, model, number, strategy) for model, nodes in models]
        if any(fit.in_all for fit in fits):
            return max(fits, key=lambda fit: (bool(fit.in_all), fit.now, fit.in_all))
    return None


def bundle_of(config: "RunConfig", ranks: int) -> dict[str, int | float]:
    """What Ray sets aside for a rank group, or for the driver of the cluster. One that asks for
    nothing runs on the head node, as that of `ray job submit` does."""
    if config.ray is not None and config.drives_existing:
        own = {"CPU": config.ray.num_cpus, "GPU": config.ray.num_gpus, **config.ray.resources}
        return {name: amount for name, amount in own.items() if amount} or {HEAD_RESOURCE: 0.001}
    amounts = {name: each * ranks for name, each in options_of(config).rank_resources.items()}
    return {**amounts, "GPU": ranks} if is_gpu_run(config) else amounts


def scales(config: "RunConfig", state: ClusterState) -> bool:
    """Whether nodes may come: what the run says, else what the cluster's nodes tell."""
    written = options_of(config).autoscaling
    return state.scales if written is None else written


def has_shape(config: "RunConfig", state: ClusterState, fit: Fit) -> bool:
    """Whether a launch knows its rank groups. Nodes that may come can be of any size."""
    known = options_of(config).ranks_per_node or config.drives_existing
    return bool(fit.in_all or (scales(config, state) and known))


def in_words(fit: Fit, strategy: Strategy) -> str:
    """`2 nodes × 4 ranks, spread`."""  # noqa: RUF002
    what = "node" if strategy == Strategy.SPREAD else "group"
    groups = f"{fit.groups} {what}{'' if fit.groups == 1 else 's'}"
    ranks = f"{fit.ranks} rank{'' if fit.ranks == 1 else 's'}"
    return f"{groups} \N{MULTIPLICATION SIGN} {ranks}, {strategy}"


def has_labels(node: ClusterNode, labels: Mapping[str, str]) -> bool:
    return all(node.labels.get(name) == value for name, value in labels.items())


def has_type(config: "RunConfig", node: ClusterNode) -> bool:
    """Whether a node has GPUs of the type that a run asks for."""
    wanted = config.type.kind
    if wanted is GPUType.GPU:
        return node.gpus > 0
    return node.gpus > 0 and node.kind is not None and wanted.covers(node.kind)


def gpu_model(node: ClusterNode) -> str | None:
    """What the GPUs of a node are called: their type, or what their driver or Ray calls them where
    that is none that we know. None where nothing tells."""
    if node.kind is not None:
        return node.kind.name
    given = [node.labels.get(TYPE_LABEL), *(name.partition(":")[2] for name in node.type_resources)]
    return " and ".join(sorted({*node.devices})) or next(filter(None, given), None)


def _fit(
    config: "RunConfig",
    nodes: Sequence[ClusterNode],
    model: str | None,
    ranks: int,
    strategy: Strategy,
) -> Fit:
    groups = config.ranks // ranks
    bundle = bundle_of(config, ranks)

    def room(resources: Sequence[Mapping[str, float]]) -> int:
        counts = [bundles_in(item, bundle) for item in resources]
        return launches_at_once(counts, groups, strategy)

    return Fit(
        groups=groups,
        ranks=ranks,
        bundle=bundle,
        nodes=tuple(nodes),
        model=model,
        in_all=room([node.total for node in nodes]),
        now=room([node.free for node in nodes]),
    )


def _nearness(fit: Fit) -> tuple[int, int]:
    """Of shapes that fit nowhere, the one with the most room."""
    return sum(bundles_in(node.total, fit.bundle) for node in fit.nodes), len(fit.nodes)


def _models(
    config: "RunConfig", state: ClusterState
) -> Iterator[tuple[str | None, tuple[ClusterNode, ...]]]:
    """The nodes that ranks may use: in one tuple where the run names a type, else in one for each
    model of GPU, since all ranks of a run have the same."""
    labels, wanted = options_of(config).labels, config.type.kind
    nodes = [node for node in state.nodes if has_labels(node, labels)]
    if wanted is GPUType.CPU:
        yield None, tuple(nodes)
        return
    nodes = [node for node in nodes if has_type(config, node)]
    if wanted is not GPUType.GPU:
        yield wanted.name, tuple(nodes)
        return
    for model in dict.fromkeys(map(gpu_model, nodes)):
        yield model, tuple(node for node in nodes if gpu_model(node) == model)
