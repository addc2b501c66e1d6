"""The Ray clusters of what is launched, in words."""

from collections.abc import Iterator, Sequence

from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.diagnostics.sizes import size
from sgpu_decl.model.desired import Desired
from sgpu_decl.model.plan import Check
from sgpu_decl.model.ray_cluster import RayCluster
from sgpu_decl.planning.unsupported_fields import place_of

__all__ = ["ray_checks"]


def ray_checks(launched: Sequence[Desired]) -> tuple[Check, ...]:
    """Return one check for each kind of cluster, with the first run that gets one."""
    first: dict[RayCluster, Desired] = {}
    for wanted in launched:
        if wanted.ray is not None:
            first.setdefault(wanted.ray, wanted)
    return tuple(
        Check(
            id="ray_cluster",
            severity=Severity.INFO,
            address=wanted.address,
            summary=_words(cluster),
            place=place_of(wanted.places, "ray"),
        )
        for cluster, wanted in first.items()
    )


def _words(cluster: RayCluster) -> str:
    parts = ", ".join(_parts(cluster)) or "its size is known on its nodes only"
    return f"Ray cluster: {parts}" + (f"; Ray {cluster.version}" if cluster.version else "")


def _parts(cluster: RayCluster) -> Iterator[str]:
    nodes = cluster.nodes
    for amount, unit in ((nodes, "node"), (cluster.gpus, "GPU"), (cluster.cpus, "CPU")):
        if amount:
            yield f"{amount:,} {unit}" + ("s" if amount > 1 else "")
    if cluster.object_store_memory is not None:
        each = f"{nodes} × " if nodes is not None and nodes > 1 else ""  # noqa: RUF001
        yield f"object store {each}{size(cluster.object_store_memory)}"
