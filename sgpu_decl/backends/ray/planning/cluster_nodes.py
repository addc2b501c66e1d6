"""The nodes of a Ray cluster, as its dashboard shows them."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from sgpu_decl.backends.ray.api.cluster_tables import NODES, has_jobs, list_nodes
from sgpu_decl.backends.ray.api.dashboard import Dashboard
from sgpu_decl.backends.ray.cluster.bundle_counts import TYPE_RESOURCE
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.gpu import GPUType, type_of_device

TYPE_LABEL = "ray.io/accelerator-type"
NODE_LABEL = "ray.io/node-id"
"""Labels that Ray gives to nodes (https://docs.ray.io/en/latest/ray-core/scheduling/labels.html)."""

_METADATA = "/api/v0/cluster_metadata"
_SUMMARY = "/nodes"
_MIB = 1 << 20
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_VERSION = re.compile(r"[0-9]+\.[0-9]+.*")
# A line of `nodeLogicalResources` (`ray.autoscaler._private.util.parse_usage`).
_AMOUNT = r"(-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)([KMGT]i)?B?"
_USAGE = re.compile(
    rf"{_AMOUNT}/{_AMOUNT} (.+?)(?: \({_AMOUNT} used of {_AMOUNT} reserved in placement groups\))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """A node that is alive.

    Attributes:
        name: what people call it: its host, or its address where several nodes have one host.
        total: its resources, by Ray's names.
        used: what of them is reserved by work; None where the cluster does not say.
        kind: the type of its GPUs; None where it has none, or nothing tells.
        devices: the names of its GPUs, as their driver gives them.
        memory: bytes that are free on the machine, whatever Ray counts; None where not known.
    """

    id: str
    name: str
    is_head: bool = False
    total: Mapping[str, float]
    used: Mapping[str, float] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    kind: GPUType | None = None
    devices: tuple[str, ...] = ()
    memory: int | None = None

    @property
    def free(self) -> Mapping[str, float]:
        """What is not reserved, as far as that is known."""
        used = self.used or {}
        return {name: amount - used.get(name, 0.0) for name, amount in self.total.items()}

    @property
    def gpus(self) -> float:
        return self.total.get("GPU", 0.0)

    @property
    def type_resources(self) -> tuple[str, ...]:
        """The resources that stand for a type of GPU."""
        return tuple(name for name in self.total if name.startswith(TYPE_RESOURCE))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """`ray` and `python` are versions, of the head. `scales`: its nodes were started by something
    that starts more of them. `has_jobs`: its dashboard has the Jobs API."""

    ray: str
    python: str
    nodes: tuple[ClusterNode, ...]
    scales: bool
    has_jobs: bool = True

    @property
    def head(self) -> ClusterNode | None:
        return next((node for node in self.nodes if node.is_head), None)

    @property
    def head_id(self) -> str | None:
        return self.head.id if self.head is not None else None


def read_cluster(dashboard: Dashboard) -> ClusterState:
    """Ask a cluster for its versions and nodes, and whether it takes jobs: four requests.

    Raises:
        BackendError: it does not answer as Ray does; see `Dashboard`.
    """
    with_jobs = has_jobs(dashboard)
    answer = dashboard.get(_METADATA)
    ray = _version(dashboard, answer, "data.rayVersion")
    python = _version(dashboard, answer, "data.pythonVersion")
    alive = list_nodes(dashboard, detail=1)
    # Without `nocache` the first answer may be minutes old.
    answer = dashboard.get(_SUMMARY, view="summary", nocache=1)
    machines = dashboard.part(_SUMMARY, answer, "data.summary", list)
    usage = dashboard.part(_SUMMARY, answer, "data.nodeLogicalResources", dict)
    by_id = {
        dashboard.part(_SUMMARY, machine, "raylet.nodeId", str): machine
        for machine in machines
        if isinstance(machine, Mapping) and machine.get("raylet")
    }
    hosts = [_host(dashboard, row, by_id) for row in alive]
    return ClusterState(
        ray=ray,
        python=python,
        nodes=tuple(
            _node(dashboard, row, by_id, usage, alone=hosts.count(host) == 1)
            for row, host in zip(alive, hosts, strict=True)
        ),
        scales=any(machine["raylet"].get("nodeTypeName") for machine in by_id.values()),
        has_jobs=with_jobs,
    )


def _version(dashboard: Dashboard, answer: Any, path: str) -> str:
    """A version, of which the first two numbers are read."""
    text = dashboard.part(_METADATA, answer, path, str)
    if not _VERSION.fullmatch(text):
        raise dashboard.unknown_answer(_METADATA, f"a `{path}` that is no version: {text!r}")
    return text


def _host(
    dashboard: Dashboard, row: Mapping[str, Any], machines: Mapping[str, Mapping[str, Any]]
) -> str:
    machine = machines.get(row["node_id"], {})
    return (
        dashboard.optional_part(_SUMMARY, machine, "hostname", str)
        or dashboard.optional_part(NODES, row, "node_ip", str)
        or row["node_id"][:6]
    )


def _node(
    dashboard: Dashboard,
    row: Mapping[str, Any],
    machines: Mapping[str, Mapping[str, Any]],
    usage: Mapping[str, Any],
    *,
    alone: bool,
) -> ClusterNode:
    identity = row["node_id"]
    total = dashboard.part(NODES, row, "resources_total", dict)
    for name in total:
        if not isinstance(total[name], int | float) or not math.isfinite(total[name]):
            raise dashboard.unknown_answer(NODES, f"no amount of `{name}` in `resources_total`")
    labels = dashboard.optional_part(NODES, row, "labels", dict) or {}
    for name in labels:
        if not isinstance(labels[name], str):
            raise dashboard.unknown_answer(NODES, f"no text of `{name}` in `labels`")
    machine = machines.get(identity, {})
    devices = _devices(dashboard, machine)
    host = _host(dashboard, row, machines)
    reserved = dashboard.optional_part(_SUMMARY, usage, identity, str)
    return ClusterNode(
        id=identity,
        name=host if alone else f"{host} ({identity[:6]})",
        is_head=dashboard.optional_part(NODES, row, "is_head_node", bool) is True,
        total=total,
        used=dict(_used(dashboard, reserved)) if reserved is not None else None,
        labels=labels,
        kind=_kind(labels, total, devices) if total.get("GPU") else None,
        devices=tuple(str(device.get("name")) for device in devices),
        memory=_free_memory(dashboard, machine),
    )


def _devices(dashboard: Dashboard, machine: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The GPUs of a machine, as their driver gives them."""
    devices = dashboard.optional_part(_SUMMARY, machine, "gpus", list) or []
    for device in devices:
        if not isinstance(device, Mapping):
            raise dashboard.unknown_answer(_SUMMARY, f"no GPU in `gpus`: {device!r}")
        dashboard.optional_part(_SUMMARY, device, "name", str)
        dashboard.optional_part(_SUMMARY, device, "memoryTotal", int)
    return devices


def _free_memory(dashboard: Dashboard, machine: Mapping[str, Any]) -> int | None:
    """`mem` begins with the bytes that a machine has, and those that are free."""
    memory = dashboard.optional_part(_SUMMARY, machine, "mem", list) or []
    if not all(isinstance(number, int | float) for number in memory):
        raise dashboard.unknown_answer(_SUMMARY, f"no numbers in `mem`: {memory}")
    return int(memory[1]) if len(memory) > 1 else None


def _kind(
    labels: Mapping[str, Any], total: Mapping[str, float], devices: list[Mapping[str, Any]]
) -> GPUType | None:
    """The type of a node's GPUs: its label, else its resource, else what drivers call them. The
    memory is that of the devices, since Ray's names do not tell 40 from 80 GB."""
    megabytes = {device.get("memoryTotal") for device in devices}
    size = megabytes.pop() if len(megabytes) == 1 else None
    memory = size * _MIB if isinstance(size, int) else None
    resources = [name for name in total if name.startswith(TYPE_RESOURCE)]
    names = [labels.get(TYPE_LABEL), *(name.partition(":")[2] for name in resources)]
    for name in names:
        if isinstance(name, str) and (kind := type_of_device(name, memory)) is not None:
            return kind
    kinds = {type_of_device(str(device.get("name")), memory) for device in devices}
    return kinds.pop() if len(kinds) == 1 else None


def _used(dashboard: Dashboard, text: str) -> Iterator[tuple[str, float]]:
    """What is reserved on a node. What a placement group reserves counts in Ray's text only as far
    as it is used inside of the group."""
    for line in filter(None, text.split("\n")):
        match = _USAGE.fullmatch(line)
        if match is None:
            what = f"a line in `nodeLogicalResources` that cannot be read: {line!r}"
            raise dashboard.unknown_answer(_SUMMARY, what)
        used = _number(match[1], match[2])
        if match[6] is not None:
            used += _number(match[8], match[9]) - _number(match[6], match[7])
        yield match[5], used


def _number(text: str, unit: str | None) -> float:
    return float(text) * _UNITS[f"{unit or ''}B"]
