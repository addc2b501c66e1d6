"""What a launch asks a cluster for, so that its ranks get the type of GPU that the run names."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from sgpu_decl.backends.ray.cluster.bundle_counts import TYPE_RESOURCE
from sgpu_decl.backends.ray.placement import RayPlacement, Strategy
from sgpu_decl.backends.ray.planning.cluster_nodes import NODE_LABEL, TYPE_LABEL, ClusterState
from sgpu_decl.backends.ray.planning.group_shape import (
    Fit,
    bundle_of,
    has_labels,
    is_gpu_run,
    options_of,
    scales,
)
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.gpu import GPUType

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

_TYPE_SHARE = 0.001  # of the resource that stands for a type: any number of groups finds room
_TELLS_WORKSTATION_CARDS = (2, 60)  # the oldest Ray known to; 2.49 calls them `RTX` and `G`

_OWN = {  # names that are not made of ours
    GPUType.A10: ("A10", "A10G"),
    GPUType.T4: ("T4", "T4G"),
    GPUType.MI60: (),
    GPUType.MI250: ("AMD-Instinct-MI250X-MI250",),
    GPUType.MI300X: ("AMD-Instinct-MI300X-OAM", "AMD-Instinct-MI300X-HF"),
    GPUType.MI308X: ("AMD-Instinct-MI308X-OAM", "AMD-Instinct-MI308X"),
    GPUType.MI325X: ("AMD-Instinct-MI325X-OAM",),
    GPUType.MI350X: ("AMD-Instinct-MI350X-OAM",),
    GPUType.MI355X: ("AMD-Instinct-MI355X-OAM",),
}
_WORKSTATION = re.compile(r"(QUADRO|TITAN|RTX|GTX)_")
_SHARED = re.compile(r"QUADRO_|.+_ADA$")  # `RTX-6000` is both a Quadro and an Ada
_PART = re.compile(r"_([0-9]+G)B$")


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeTerms:
    """What holds ranks on nodes of their type.

    Attributes:
        names: those of the type that new nodes may have; empty where nodes that are there count.
        by_hand: Ray gives no node such a name by itself.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, float] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    by_hand: bool = False


def placement_of(config: "RunConfig", state: ClusterState, fit: Fit) -> RayPlacement:
    """What the launch asks the cluster for."""
    options = options_of(config)
    terms = type_terms(config, state, fit) if is_gpu_run(config) else TypeTerms()
    return RayPlacement(
        nodes=fit.groups,
        ranks_per_node=fit.ranks,
        strategy=Strategy(options.strategy),
        bundle={**bundle_of(config, fit.ranks), **terms.resources},
        labels={**options.labels, **terms.labels},
        scales=scales(config, state),
    )


def type_terms(config: "RunConfig", state: ClusterState, fit: Fit) -> TypeTerms:
    """The first of these that holds ranks on nodes of their type, and on no other node with GPUs
    and the labels of the run: the label of these nodes, their resource, their identities; the name
    of the type where such nodes have to come first."""
    own = {node.id for node in fit.nodes}
    labelled = (node for node in state.nodes if has_labels(node, options_of(config).labels))
    others = [node for node in labelled if node.gpus and node.id not in own]
    named = _by_name(config, state)
    if not own:
        return named
    growing = scales(config, state)
    values = {node.labels.get(TYPE_LABEL) for node in fit.nodes}
    taken = {node.labels.get(TYPE_LABEL) for node in others}
    if None not in values and not values & taken:
        also = {*named.names} - taken if growing and not named.by_hand else set[str]()
        return TypeTerms(labels={TYPE_LABEL: _either({*filter(None, values), *also})})
    resources = {node.type_resources for node in fit.nodes}
    only = resources.pop() if len(resources) == 1 else ()
    if len(only) == 1 and not any(only[0] in node.total for node in others):
        return TypeTerms(resources={only[0]: _TYPE_SHARE})
    if not others and not (growing and named.names):
        return TypeTerms()
    if growing and not fit.in_all:
        return named
    return TypeTerms(labels={NODE_LABEL: _either(own)})


def _by_name(config: "RunConfig", state: ClusterState) -> TypeTerms:
    """Terms for nodes that are not there yet. A resource has one name, and is what Ray's own option
    `accelerator_type` becomes, so clusters know it best; a label may have one of several."""
    kind = config.type.kind
    if kind is GPUType.GPU:
        return TypeTerms()
    version = tuple(map(int, re.findall(r"\d+", state.ray)[:2]))
    names = names_of_type(kind, version)
    if len(names) > 1:
        return TypeTerms(labels={TYPE_LABEL: _either({*names})}, names=names)
    by_hand = not names
    names = names or (given_name(kind),)
    resources = {f"{TYPE_RESOURCE}{names[0]}": _TYPE_SHARE}
    return TypeTerms(resources=resources, names=names, by_hand=by_hand)


def _either(values: set[str]) -> str:
    """A label selector for one of several values."""
    texts = sorted(values)
    return texts[0] if len(texts) == 1 else f"in({','.join(texts)})"


def names_of_type(kind: GPUType, ray: Sequence[int]) -> tuple[str, ...]:
    """The names that Ray itself gives to nodes with GPUs of a type, and to no others; none if it
    has no such name. They are those of the label `ray.io/accelerator-type` and of the resource
    `accelerator_type:X`; a cluster that has no node of a type yet can only be asked by name. Ray
    makes them from what the driver calls the device (`ray._private.accelerators`), which leaves
    out the size of the memory.

    Args:
        ray: the major and minor version of Ray.
    """
    if kind in _OWN:
        return _OWN[kind]
    if _PART.search(kind.name) or kind is GPUType.H100_NVL or _SHARED.match(kind.name):
        return ()
    if _WORKSTATION.match(kind.name) and tuple(ray) < _TELLS_WORKSTATION_CARDS:
        return ()
    return (given_name(kind),)


def given_name(kind: GPUType) -> str:
    """The name of a type in Ray's way of writing, which whoever starts a node may give to it, as
    Ray's documentation says of `A100-80G`."""
    name = _PART.sub(r"_\1", kind.name)
    if kind.name.startswith("MI"):
        name = f"AMD-Instinct-{name}"
    elif re.match(r"[RG]TX_[0-9]{4}(_(TI|SUPER|D))*$", name):
        name = f"GeForce-{name.replace('_TI', '_Ti')}"
    return name.replace("_ADA", "_Ada").replace("_", "-")
