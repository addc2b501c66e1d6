"""Where the ranks of a run go: the plan decides it, and the launch carries it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from sgpu_decl.backends.launch_request import LaunchRequest, foreign_config
from sgpu_decl.backends.slurm.cluster_state import SlurmNode, gpu_type
from sgpu_decl.backends.slurm.options import SlurmOptions
from sgpu_decl.errors import BackendError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.gpu import GPUType

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmPlacement:
    """`nodes` nodes with `ranks` ranks each. `gres` and `constraint` are what sbatch is asked for,
    `cpus` the processors on each node; None where the site or `options` decides."""

    nodes: int
    ranks: int
    gres: str | None
    constraint: str | None
    cpus: int | None

    @property
    def id(self) -> str:
        """It as JSON, as `LaunchInputs.placement` holds it."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @property
    def resources(self) -> Mapping[str, int]:
        """All that it asks for, by the names that limits have for it
        (https://slurm.schedmd.com/tres.html)."""
        found = {"node": self.nodes}
        if self.cpus is not None:
            found["cpu"] = self.nodes * self.cpus
        if self.gres is not None:
            kind = self.gres.rpartition(":")[0]
            found |= dict.fromkeys(("gres/gpu", f"gres/{kind}"), self.nodes * self.ranks)
        return found

    @classmethod
    def from_id(cls, text: str) -> "SlurmPlacement":
        """Read it again. Raises ValueError: the text is none."""
        try:
            return cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(f"no placement on Slurm: {text}") from error


def options_of(config: "RunConfig") -> SlurmOptions:
    """The options of a run. Raises BackendError: they are another backend's."""
    if not isinstance(config.backend, SlurmOptions):
        raise foreign_config("a cluster with Slurm")
    return config.backend


def planned_placement(request: LaunchRequest) -> SlurmPlacement:
    """The nodes that the plan chose. Raises BackendError: it did not."""
    try:
        return SlurmPlacement.from_id(request.inputs.placement or "")
    except ValueError:
        error = BackendError(
            f"Slurm did not answer when `{request.ref}` was planned, so its ranks have no place",
            hint="apply again: that plans again; make a saved plan anew",
            code="unavailable",
        )
        error.retryable = True
        raise error from None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRoom:
    """How many ranks of a run a node holds when nothing else runs there, and now."""

    node: SlurmNode
    total: int
    now: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuChoice:
    """GPUs that a run can be given: what to ask for, without the number, and the nodes."""

    gres: str | None
    feature: str | None
    nodes: tuple[NodeRoom, ...]

    def fitting(self, ranks: int, *, now: bool = False) -> int:
        """How many nodes hold so many ranks."""
        return sum((room.now if now else room.total) >= ranks for room in self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFit:
    """The choice for a run, with so many ranks on each of so many nodes: the largest groups of
    ranks that fit, or that come nearest. `never` says that they do not, `later` that they do not
    now."""

    choice: GpuChoice
    ranks: int
    groups: int

    @property
    def never(self) -> bool:
        return self.choice.fitting(self.ranks) < self.groups

    @property
    def later(self) -> bool:
        return self.choice.fitting(self.ranks, now=True) < self.groups

    def placement(self, options: SlurmOptions) -> SlurmPlacement:
        """What the launch asks for. Each rank has its share of the processors of its node."""
        asked = (options.constraint, self.choice.feature)
        fitting = [room for room in self.choice.nodes if room.total >= self.ranks]
        shares = [room.node.cpus * self.ranks // room.total for room in fitting]
        own = any(option.startswith("--cpus-per-") for option in options.options)
        return SlurmPlacement(
            nodes=self.groups,
            ranks=self.ranks,
            gres=f"{self.choice.gres}:{self.ranks}" if self.choice.gres else None,
            constraint="&".join(filter(None, asked)) or None,
            cpus=None if own or not shares else max(1, min(shares)),
        )


def fit_of(config: "RunConfig", options: SlurmOptions, nodes: Sequence[SlurmNode]) -> NodeFit:
    """The shape that a run gets on these nodes. It does not change with what runs there."""
    found = tuple(_choices(config, options, nodes)) or (
        GpuChoice(gres=None, feature=None, nodes=()),
    )
    sizes = [size for size in range(config.gpus, 0, -1) if config.gpus % size == 0]
    if options.gpus_per_node is not None:
        sizes = [options.gpus_per_node]
    fits = [
        NodeFit(choice=choice, ranks=size, groups=config.gpus // size)
        for size in sizes
        for choice in found
    ]
    possible = [fit for fit in fits if not fit.never]
    if possible:
        best = [fit for fit in possible if fit.ranks == possible[0].ranks]
        return max(best, key=lambda fit: fit.choice.fitting(fit.ranks, now=True))
    most = max((room.total for one in found for room in one.nodes), default=0)
    return next((fit for fit in fits if fit.ranks <= most), fits[0])


def _choices(
    config: "RunConfig", options: SlurmOptions, nodes: Sequence[SlurmNode]
) -> Iterator[GpuChoice]:
    wanted = config.type.kind
    if wanted is GPUType.CPU:
        free = [(node.cpus - node.cpus_used) * node.works for node in nodes]
        rooms = [
            NodeRoom(node=node, total=node.cpus, now=now)
            for node, now in zip(nodes, free, strict=True)
        ]
        yield GpuChoice(gres=None, feature=None, nodes=tuple(rooms))
        return
    if wanted is GPUType.GPU:
        rooms = [NodeRoom(node=node, total=sum(node.gpus.values()),
                          now=sum(map(node.free, node.gpus))) for node in nodes]  # fmt: skip
        yield GpuChoice(gres="gpu", feature=None, nodes=tuple(room for room in rooms if room.total))
        return
    for name, feature in sorted(_names(wanted, options, nodes)):
        having = [
            node
            for node in nodes
            if name in node.gpus and (not feature or feature in node.features)
        ]
        rooms = [NodeRoom(node=node, total=node.gpus[name], now=node.free(name)) for node in having]
        yield GpuChoice(
            gres=f"gpu:{name}" if name else "gpu", feature=feature or None, nodes=tuple(rooms)
        )


def _names(
    wanted: GPUType, options: SlurmOptions, nodes: Sequence[SlurmNode]
) -> set[tuple[str, str]]:
    """What the cluster calls GPUs of a type: the name of the GRES, or, where that has none, the
    feature that says it (https://slurm.schedmd.com/slurm.conf.html#OPT_Features)."""
    named = {site: GPUType(name) for name, site in options.gpu_names.items()}

    def covers(name: str) -> bool:
        kind = named.get(name) or gpu_type(name)
        return kind is not None and wanted.covers(kind)

    found = set()
    for node in nodes:
        for name in node.gpus:
            if name and covers(name):
                found.add((name, ""))
            elif not name:
                found |= {("", feature) for feature in node.features if covers(feature)}
    return found
