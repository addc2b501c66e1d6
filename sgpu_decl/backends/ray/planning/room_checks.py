"""What a plan says of the room that a cluster has for a run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sgpu_decl.backends.ray.cluster.bundle_counts import bundles_in, launches_at_once
from sgpu_decl.backends.ray.placement import Strategy
from sgpu_decl.backends.ray.planning.cluster_nodes import ClusterNode, ClusterState
from sgpu_decl.backends.ray.planning.group_shape import (
    Fit,
    has_labels,
    has_shape,
    is_gpu_run,
    options_of,
    scales,
)
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.diagnostics.sizes import size
from sgpu_decl.model.gpu import GPUType

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

Places = Mapping[str, Place]
_SHOWN = 4  # nodes in a message


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
        # Warnings about names alone would let a plan pass that has no shape.
        refused = any(finding.severity is Severity.ERROR for finding in unknown)
        if not unknown or not (refused or has_shape(config, state, fit)):
            yield _never_fits(config, places, state, fit)
    elif not fit.now:
        yield _not_now(config, places, fit, holders())


def _never_fits(config: "RunConfig", places: Places, state: ClusterState, fit: Fit) -> Diagnostic:
    name, field = _short_of(config, fit)
    have = _amounts(fit.nodes, name, lambda node: node.total)
    if is_gpu_run(config) and not fit.nodes:
        have = f"the cluster has {_types(state)}"
    summary = f"needs {_need(config, fit, name)}; {have}"
    place = places.get(field) or places.get("gpus")
    if scales(config, state) and not has_shape(config, state, fit):
        amount = _amount(fit.bundle[name] * fit.groups, name)
        return Diagnostic(
            code="ranks_per_node_missing",
            summary=f"needs {amount} {_called(config, name)}; {have}: sgpu cannot know how many "
            "ranks a new node will hold",
            place=place,
            hint="set `ranks_per_node` in `backend`",
        )
    if scales(config, state):
        return Diagnostic(
            code="needs_new_nodes",
            severity=Severity.WARNING,
            summary=f"{summary}: it waits until the cluster starts such nodes",
            place=place,
            hint="`startup_timeout` limits the wait; write `autoscaling: false` in `backend` if no "
            "nodes come",
        )
    return Diagnostic(
        code="never_fits",
        summary=summary,
        place=place,
        hint="ask for less, change `ranks_per_node` or `strategy` of `backend`, or use another "
        "cluster; write `autoscaling: true` in `backend` if the cluster starts nodes",
    )


def _not_now(config: "RunConfig", places: Places, fit: Fit, holders: Sequence[str]) -> Diagnostic:
    name, _ = _short_of(config, fit, free=True)
    free = _amounts(fit.nodes, name, lambda node: node.free)
    held = f"; these attempts run there: {', '.join(holders)}" if holders else ""
    return Diagnostic(
        code="not_now",
        severity=Severity.WARNING,
        summary=f"needs {_need(config, fit, name)}, and has to wait for room; free now: {free}"
        f"{held}",
        place=places.get("gpus"),
        hint="it starts as soon as there is room; `startup_timeout` limits the wait",
    )


def _short_of(config: "RunConfig", fit: Fit, *, free: bool = False) -> tuple[str, str]:
    """The resource that keeps a run from fitting, and the field that asks for it. It is the GPU
    where no resource alone does."""
    first = "GPU" if is_gpu_run(config) else "CPU"
    strategy = options_of(config).strategy
    for name in sorted(fit.bundle, key=lambda item: item != first):
        alone = {name: fit.bundle[name]}
        counts = [bundles_in(node.free if free else node.total, alone) for node in fit.nodes]
        if not launches_at_once(counts, fit.groups, strategy):
            break
    else:
        name = first
    if name == "GPU":
        return name, "gpus" if fit.nodes else "type"
    return name, f"backend.resources_per_rank.{name}"


def _need(config: "RunConfig", fit: Fit, name: str) -> str:
    amount = f"{_amount(fit.bundle[name], name)} {_called(config, name)}"
    plural = "" if fit.groups == 1 else "s"
    if options_of(config).strategy == Strategy.PACK:
        return f"room for {fit.groups} group{plural} with {amount} each"
    return f"{fit.groups} node{plural} with {amount}"


def _called(config: "RunConfig", name: str) -> str:
    if name != "GPU":
        return {"CPU": "CPUs", "memory": "memory"}.get(name, f"`{name}`")
    return "GPUs" if config.type.kind is GPUType.GPU else config.type.name


def _amount(amount: float, name: str) -> str:
    return size(round(amount)) if name == "memory" else f"{round(amount, 4):g}"


def _amounts(
    nodes: Sequence[ClusterNode],
    name: str,
    resources: Callable[[ClusterNode], Mapping[str, float]],
) -> str:
    """What nodes have of a resource, those with the most first: `node-a has 8, node-b 4`."""
    having = sorted(nodes, key=lambda node: -resources(node).get(name, 0.0))
    words = [
        f"{node.name} has {_amount(max(0.0, resources(node).get(name, 0.0)), name)}"
        for node in having[:_SHOWN]
    ]
    if len(having) > _SHOWN:
        words.append(f"{len(having) - _SHOWN} others have no more")
    return ", ".join(words) or "no node has the labels"


def _types(state: ClusterState) -> str:
    """The GPUs of a cluster: `4 A10 (node-b)`."""
    words = []
    for kind in dict.fromkeys(node.kind for node in state.nodes if node.gpus):
        nodes = [node for node in state.nodes if node.gpus and node.kind is kind]
        names = ", ".join(node.name for node in nodes[:_SHOWN])
        called = kind.name if kind else _unnamed(nodes)
        words.append(f"{sum(node.gpus for node in nodes):g} {called} ({names})")
    return ", ".join(words) or "no GPUs"


def _unnamed(nodes: Sequence[ClusterNode]) -> str:
    names = sorted({name for node in nodes for name in node.devices})
    return f"GPUs `{names[0]}`" if names else "GPUs of an unknown type"


def _unknown_names(
    config: "RunConfig", places: Places, state: ClusterState
) -> Iterator[Diagnostic]:
    """Resources and labels that no node of the cluster has."""
    options = options_of(config)
    grows = scales(config, state)
    known = {name for node in state.nodes for name in node.total}
    for name in options.resources_per_rank:
        if name not in known:
            yield Diagnostic(
                code="unknown_resource",
                severity=Severity.WARNING if grows else Severity.ERROR,
                summary=f"no node of the cluster has the resource `{name}`",
                place=places.get(f"backend.resources_per_rank.{name}"),
                hint=_listed(name, (item for item in known if not item.startswith("node:"))),
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
            hint=_listed(value, values) if values else _listed(name, labels),
        )


def _listed(word: str, names: "Iterator[str] | Sequence[str]") -> str:
    known = sorted(set(names))
    near = nearest(word, known)
    if near is not None:
        return f"did you mean `{near}`?"
    return (
        f"there are {', '.join(f'`{item}`' for item in known[:_SHOWN])}" if known else "remove it"
    )
