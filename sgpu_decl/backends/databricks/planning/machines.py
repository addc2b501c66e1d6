"""The machines of serverless GPU compute: which types of GPU in which numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sgpu_decl.config.gpu_type import GpuType
from sgpu_decl.config.run import RunConfig
from sgpu_decl.errors import BackendError
from sgpu_decl.model.gpu import GPUType

ACCELERATORS: Mapping[str, tuple[GPUType, int]] = MappingProxyType(
    {
        "GPU_1xA10": (GPUType.A10, 1),
        "GPU_1xH100": (GPUType.H100, 1),
        "GPU_8xH100": (GPUType.H100, 8),
        "GPU_8xB300": (GPUType.B300, 8),
    }
)
"""The platform's names of its kinds of nodes, each with the type and how many GPUs it has."""

_MOST = 8  # GPUs of a node
_TOGETHER = frozenset({"GPU_1xA10", "GPU_8xH100", "GPU_8xB300"})  # several make one run


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """`accelerator` is the platform's name of the kind of node; `gpus` are those of all nodes."""

    accelerator: str
    gpus: int
    nodes: int


def machines_of(config: RunConfig) -> Machines | None:
    """The nodes that a run gets; `None` if the platform has no fitting ones. `type: GPU` gets the
    kind of node that comes in any number."""
    if is_unlisted(config.type):
        node = _MOST if config.gpus % _MOST == 0 else config.gpus
        if node > _MOST or config.type.node not in (None, node):
            return None
        name = f"GPU_{node}x{config.type.name}"
        return Machines(accelerator=name, gpus=config.gpus, nodes=config.gpus // node)
    fitting = [
        (name, per_node)
        for name, per_node in _offered(config.type).items()
        if config.gpus % per_node == 0 and (config.gpus == per_node or name in _TOGETHER)
    ]
    if not fitting:
        return None
    largest = max(fitting, key=lambda node: node[1])
    name, per_node = fitting[0] if config.type.name == "GPU" else largest
    return Machines(accelerator=name, gpus=config.gpus, nodes=config.gpus // per_node)


def offered() -> list[tuple[GPUType, str]]:
    """Each type, and in words the numbers of GPUs that a run can have of it."""
    numbers: dict[GPUType, list[str]] = {}
    for name, (kind, per_node) in ACCELERATORS.items():
        if name not in _TOGETHER:
            words = str(per_node)
        else:
            words = "any number" if per_node == 1 else f"a multiple of {per_node}"
        numbers.setdefault(kind, []).append(words)
    return [(kind, ", or ".join(words)) for kind, words in numbers.items()]


def is_unlisted(gpu_type: GpuType) -> bool:
    """Whether the platform may have nodes with this type though the table lacks it. What is kept of
    a run is the type and not the name of the node: it has eight GPUs where the run has a multiple
    of eight, else those of the run."""
    kind = gpu_type.kind
    return bool(kind.memory) and not any(
        kind.covers(listed) or kind.family is listed for listed, _ in ACCELERATORS.values()
    )


def node_of(gpu_type: GpuType) -> str:
    """The kind of node that a job's notebook runs on; one GPU where only the type was named.

    Raises:
        BackendError: the platform has no such node.
    """
    offered = _offered(gpu_type)
    node = next((name for name, gpus in offered.items() if gpus == (gpu_type.node or 1)), None)
    if node is None and is_unlisted(gpu_type):
        node = gpu_type.accelerator
    if node is not None:
        return node
    nodes = [name for name, (kind, _) in ACCELERATORS.items() if gpu_type.kind.covers(kind)]
    summary, hint = refuse_type(gpu_type) or (
        f"serverless GPU compute has no node with one {gpu_type.name}", None
    )  # fmt: skip
    if nodes:
        hint = f"use {', '.join(f'`type: {name}`' for name in nodes)}"
    raise BackendError(summary, hint=hint, code="no_such_machines", field="type")


def refuse_type(gpu_type: GpuType) -> tuple[str, str] | None:
    """Why the platform does not have a type, with the way out, or `None`."""
    if _offered(gpu_type):
        return None
    kinds = dict.fromkeys(kind.name for kind, _ in ACCELERATORS.values())
    listed = ", ".join(f"`type: {name}`" for name in kinds)
    if gpu_type.accelerator is not None and gpu_type.name in kinds:
        return (
            f"serverless GPU compute has no nodes `{gpu_type.accelerator}`",
            f"use `type: {gpu_type.name}`: the number of GPUs decides",
        )
    what = "ranks without a GPU" if gpu_type.name == "CPU" else gpu_type.name
    hint = f"use {listed} there, or a target with another backend"
    if is_unlisted(gpu_type):
        hint += f". If a workspace has it, name the node, such as `type: GPU_8x{gpu_type.name}`"
    return f"serverless GPU compute has no {what}", hint


def refusal_of(config: RunConfig) -> tuple[str, str]:
    """Why `machines_of` a config is `None`, with the way out."""
    gpu_type, gpus = config.type, config.gpus
    if refusal := refuse_type(gpu_type):
        return refusal
    offered = _offered(gpu_type)
    joined = [per_node for name, per_node in offered.items() if name in _TOGETHER]
    if not joined:
        node = f"several nodes `{gpu_type.accelerator}`"
        summary = f"{node} cannot form one run: `gpus: {gpus}` is too many"
        return summary, f"use `type: {gpu_type.name}`, or `gpus: 1`"
    step = max(joined)
    single = min(offered.values()) == 1
    below, above = gpus // step * step or int(single), -(-gpus // step) * step
    ways = " or ".join(f"`gpus: {count}`" for count in (below, above) if count)
    counts = f"{'as 1 or ' if single else ''}in multiples of {step}"
    summary = f"serverless GPU compute has {gpu_type.name} GPUs {counts}, not {gpus}"
    return summary, f"use {ways}"


def _offered(gpu_type: GpuType) -> Mapping[str, int]:
    """The kinds of nodes with a type, and how many GPUs each has; only one if the type names a kind
    of node."""
    return {
        name: per_node
        for name, (kind, per_node) in ACCELERATORS.items()
        if gpu_type.kind.covers(kind) and gpu_type.node in (None, per_node)
    }
