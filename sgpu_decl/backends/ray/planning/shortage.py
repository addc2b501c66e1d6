"""What a cluster is short of for a run, in words: what the run needs and what nodes have."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sgpu_decl.backends.ray.cluster.bundle_counts import bundles_in, short_of, unit_of
from sgpu_decl.backends.ray.placement import Strategy
from sgpu_decl.backends.ray.planning.cluster_nodes import ClusterNode, ClusterState
from sgpu_decl.backends.ray.planning.group_shape import (
    Fit,
    gpu_model,
    has_labels,
    has_type,
    is_gpu_run,
    options_of,
)
from sgpu_decl.diagnostics.amounts import size
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.gpu import GPUType

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

Places = Mapping[str, Place]
_SHOWN = 4  # nodes in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceShortage:
    """What a run asks for and does not get, in words, and the field that asks for it."""

    needs: str
    has: str
    field: str


def shortage_in_all(
    config: "RunConfig", places: Places, state: ClusterState, fit: Fit
) -> ResourceShortage:
    """Why a run does not fit, whatever else runs there."""
    labels = options_of(config).labels
    labelled = [node for node in state.nodes if has_labels(node, labels)]
    names = _short_of(config, fit, _total) if fit.nodes else [unit_of(fit.bundle)]
    needs = _need(config, fit, names)
    field = next((item for item in _fields(config, names) if item in places), "gpus")
    models = {gpu_model(node) for node in labelled if node.gpus}
    if fit.nodes and config.type.kind is GPUType.GPU and names == ["GPU"] and len(models) > 1:
        has = f"{_whose(labels)} {_types(labelled)}"
        return ResourceShortage(needs=f"{needs} of one type", has=has, field=field)
    if fit.nodes:
        return ResourceShortage(needs=needs, has=_amounts(config, fit, names, _total), field=field)
    field = "type" if is_gpu_run(config) else "gpus"
    if not state.nodes:
        return ResourceShortage(needs=needs, has="the cluster has no nodes", field=field)
    label = next((f"backend.labels.{name}" for name in labels), field)
    if labels:
        needs += f" and the {_labels_in_words(labels)}"
    if labelled:
        elsewhere = any(has_type(config, node) for node in state.nodes)
        has = f"{_whose(labels)} {_types(labelled)}"
        return ResourceShortage(needs=needs, has=has, field=label if elsewhere else field)
    having = [(node.name, _own_labels(node, labels)) for node in state.nodes]
    words = [f"{name} has {own}" for name, own in having if own]
    return ResourceShortage(needs=needs, has=_first(words, "no node has one"), field=label)


def shortage_now(config: "RunConfig", fit: Fit) -> ResourceShortage:
    """Why a run does not fit beside what runs there."""
    names = _short_of(config, fit, _free)
    needs, has = _need(config, fit, names), _amounts(config, fit, names, _free)
    return ResourceShortage(needs=needs, has=has, field="gpus")


def _whose(labels: Mapping[str, str]) -> str:
    if not labels:
        return "the cluster has"
    return f"the nodes with {'that label' if len(labels) == 1 else 'these labels'} have"


def _own_labels(node: ClusterNode, labels: Mapping[str, str]) -> str:
    """Those of some labels that a node has."""
    return _listed_words(
        f"`{name}: {value}`" for name, value in labels.items() if has_labels(node, {name: value})
    )


def _short_of(
    config: "RunConfig", fit: Fit, resources: Callable[[ClusterNode], Mapping[str, float]]
) -> Sequence[str]:
    nodes = [resources(node) for node in fit.nodes]
    return short_of(nodes, fit.bundle, fit.groups, options_of(config).strategy)


def _total(node: ClusterNode) -> Mapping[str, float]:
    return node.total


def _free(node: ClusterNode) -> Mapping[str, float]:
    return node.free


def _fields(config: "RunConfig", names: Sequence[str]) -> Sequence[str]:
    """The fields that ask for resources, the least usual first."""
    ordered = sorted(names, key=lambda name: (name == "GPU", name == "CPU"))
    if config.drives_existing:
        own = {"GPU": "ray.num_gpus", "CPU": "ray.num_cpus"}
        return [own.get(name, f"ray.resources.{name}") for name in ordered]
    return ["gpus" if name == "GPU" else f"backend.resources_per_rank.{name}" for name in ordered]


def _need(config: "RunConfig", fit: Fit, names: Sequence[str]) -> str:
    amounts = _listed_words(amount_in_words(config, name, fit.bundle[name]) for name in names)
    plural = "" if fit.groups == 1 else "s"
    if options_of(config).strategy == Strategy.PACK:
        return f"room for {fit.groups} group{plural} with {amounts}" + (plural and " each")
    return f"{fit.groups} node{plural} with {amounts}"


def amount_in_words(config: "RunConfig", name: str, amount: float) -> str:
    """`4 H100`, `1 GPU`, `0.5 CPUs`, `16.0 GB memory`."""
    number = _number_of(name, amount)
    if name == "GPU" and config.type.kind is not GPUType.GPU:
        return f"{number} {config.type.name}"
    if name in ("GPU", "CPU"):
        return f"{number} {name}{'' if number == '1' else 's'}"
    return f"{number} {'memory' if name == 'memory' else f'`{name}`'}"


def _number_of(name: str, amount: float) -> str:
    return size(round(amount)) if name == "memory" else f"{round(amount, 4):,.14g}"


def _amounts(
    config: "RunConfig",
    fit: Fit,
    names: Sequence[str],
    resources: Callable[[ClusterNode], Mapping[str, float]],
) -> str:
    """What nodes have of resources, those with the most first: `node-a has 8, node-b has 4`."""
    wanted = {name: fit.bundle[name] for name in names}

    def has(node: ClusterNode, name: str) -> float:
        return max(0.0, resources(node).get(name, 0.0))

    def room(node: ClusterNode) -> tuple[int, float]:
        return -bundles_in(resources(node), wanted), -has(node, names[0])

    def words(node: ClusterNode) -> str:
        if len(names) == 1:
            return _number_of(names[0], has(node, names[0]))
        return _listed_words(amount_in_words(config, name, has(node, name)) for name in names)

    nodes = sorted(fit.nodes, key=room)
    return _first([f"{node.name} has {words(node)}" for node in nodes], "")


def _first(words: Sequence[str], nothing: str) -> str:
    """The first of the words about nodes."""
    shown = list(words[:_SHOWN])
    if len(words) > _SHOWN:
        shown.append(f"and {len(words) - _SHOWN} more")
    return ", ".join(shown) or nothing


def _listed_words(words: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *others, last = [*words] or [""]
    return f"{', '.join(others)} and {last}" if others else last


def _labels_in_words(labels: Mapping[str, str]) -> str:
    listed = _listed_words(f"`{name}: {value}`" for name, value in labels.items())
    return f"label{'' if len(labels) == 1 else 's'} {listed}"


def _types(nodes: Sequence[ClusterNode]) -> str:
    """The GPUs of nodes: `4 A10 (node-b)`."""
    words = []
    by_model: dict[str | None, list[ClusterNode]] = {}
    for node in nodes:
        if node.gpus:
            by_model.setdefault(gpu_model(node), []).append(node)
    for model, having in by_model.items():
        called = _called(model, having)
        names = _first([node.name for node in having], "")
        words.append(f"{sum(node.gpus for node in having):g} {called} ({names})")
    return ", ".join(words) or "no GPUs"


def cluster_in_words(state: ClusterState, *, grows: bool) -> str:
    """`3 nodes, 24 CPUs and 8 H100 (node-a, node-b)`. How far a cluster grows is in the config of
    its autoscaler alone, which no dashboard shows."""
    count = len(state.nodes)
    cpus = sum(node.total.get("CPU", 0.0) for node in state.nodes)
    words = f"{count} node{'' if count == 1 else 's'}, {cpus:g} CPUs and {_types(state.nodes)}"
    return f"{words} now, and starts more nodes for its tasks" if grows else words


def _called(model: str | None, nodes: Sequence[ClusterNode]) -> str:
    if model is None:
        return "GPUs of an unknown type"
    return model if nodes[0].kind else f"GPUs `{model}`"
