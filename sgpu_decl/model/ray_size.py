"""The Ray cluster of a run, as plans and attempts show it."""

from sgpu_decl.frozen_dataclass import dataclass

OLDEST_RAY = "2.49"
"""The oldest version that sgpu works with: its labels of nodes and its HTTP API are needed."""

FIRST_RAY_WITH_TOKENS = "2.52"
"""The first version whose clusters can ask for a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """The nodes of a run, and what it may use of each: GPUs, processors, free bytes of /dev/shm.
    `store` is the bytes of an object store by default. None where only the node could tell. `ray`
    is the version of a cluster that is there, and whose driver the run is."""

    nodes: int
    gpus: int
    cpus: int | None = None
    store: int | None = None
    shm: int | None = None
    ray: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySize:
    """`gpus` and `cpus` are those of all nodes, `object_store_memory` is the bytes of the store of
    each node, `version` that of Ray; None where it is not known."""

    nodes: int | None = None
    gpus: int | None = None
    cpus: int | None = None
    object_store_memory: int | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RayStatus:
    """The cluster that an attempt has started: the version of Ray, the number of its nodes, the
    address of its dashboard, the file on its first node with the token that the dashboard asks for,
    and the name of that node. The last three are None where there is no dashboard, or it has
    ended."""

    version: str
    nodes: int
    dashboard: str | None = None
    token_file: str | None = None
    host: str | None = None


_RESERVED = {  # each with what to do instead
    "RAY_ADDRESS": "remove it",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "remove it: the cluster of one node listens on loopback",
    "RAY_OVERRIDE_RESOURCES": "use `num_cpus`, `num_gpus` and `resources` of `ray`",
}


def reserved_for_ray(variable: str) -> str | None:
    """What to do instead, if sgpu decides about this environment variable itself in a run with a
    Ray cluster; None for others."""
    return "remove it" if variable.startswith("RAY_AUTH_") else _RESERVED.get(variable)
