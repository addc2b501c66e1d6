"""Which run, job, task and environment of a project uses which."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum

from sgpu_decl.config.loaded import Loaded
from sgpu_decl.frozen_dataclass import dataclass, written_as
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.plan import Action, Plan


class Relation(StrEnum):
    USES = "uses"
    """A run has the environment."""
    AFTER = "after"
    """A run starts when the other one has succeeded."""
    LAUNCHES = "launches"
    """A job, or a task of one, starts the run."""
    HAS = "has"
    """A job has the task, whose address is that of the job and the name of the task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """A run with all cells of its matrix, a job or an environment. `actions` counts those of a
    plan, and is empty without one."""

    address: Address
    cells: int = 1
    actions: Mapping[Action, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphEdge:
    """`source` needs `needed`."""

    source: Address = field(metadata=written_as("from"))
    needed: Address = field(metadata=written_as("to"))
    relation: Relation


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectGraph:
    """Nodes in the order of the file, environments first; edges in the order of their sources."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]

    def planned(self, plan: Plan) -> "ProjectGraph":
        """The graph with the actions of a plan, and with what that would remove."""
        counts: dict[Address, Counter[Action]] = {}
        for change in plan.changes:
            address = Address(change.address.kind, change.address.name)
            counts.setdefault(address, Counter())[change.action] += 1
        known = {node.address for node in self.nodes}
        removed = [
            GraphNode(address=address, cells=sum(actions.values()))
            for address, actions in counts.items()
            if address not in known and address.kind is not Kind.ENVIRONMENT
        ]
        nodes = tuple(
            replace(node, actions=dict(sorted(counts.get(node.address, {}).items())))
            for node in (*self.nodes, *removed)
        )
        return replace(self, nodes=nodes)


def graph_of(loaded: Loaded) -> ProjectGraph:
    """The graph of what a file declares. Environments are those that runs share by name."""
    runs = Counter(run.config.name for run in loaded.runs)
    edges: dict[GraphEdge, None] = {}  # each once, however many cells of a matrix have it
    environments: dict[Address, None] = {}
    for run in loaded.runs:
        source = Address.run(run.config.name)
        if (name := run.config.env.use) is not None:
            environment = Address(Kind.ENVIRONMENT, name)
            environments[environment] = None
            edges[GraphEdge(source=source, needed=environment, relation=Relation.USES)] = None
        for upstream in run.config.after:
            edge = GraphEdge(source=source, needed=Address.run(upstream), relation=Relation.AFTER)
            edges[edge] = None
    for job in loaded.jobs:
        tasks = job.config.tasks
        for key, task in tasks.items():
            own = replace(job.address, key=key)
            for name in task.after:
                before = replace(job.address, key=name.partition(".")[0])
                edges[GraphEdge(source=own, needed=before, relation=Relation.AFTER)] = None
            if task.run is not None:
                needed = Address.run(task.run)
                edges[GraphEdge(source=own, needed=needed, relation=Relation.LAUNCHES)] = None
            edges[GraphEdge(source=job.address, needed=own, relation=Relation.HAS)] = None
        if job.config.run is not None:
            needed = Address.run(job.config.run)
            edges[GraphEdge(source=job.address, needed=needed, relation=Relation.LAUNCHES)] = None
    nodes = (
        *(GraphNode(address=address) for address in environments),
        *(GraphNode(address=Address.run(name), cells=cells) for name, cells in runs.items()),
        *(
            GraphNode(address=address)
            for job in loaded.jobs
            for address in (
                job.address,
                *(replace(job.address, key=key) for key in job.config.tasks),
            )
        ),
    )
    return ProjectGraph(nodes=nodes, edges=tuple(edges))
