"""The Ray clusters of what is launched, in words."""

from collections.abc import Iterator, Sequence

from sgpu_decl.diagnostics.amounts import size
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.model.desired import DesiredRun
from sgpu_decl.model.ray_size import RaySize
from sgpu_decl.planner.plan_checks import place_of


def ray_checks(launched: Sequence[DesiredRun]) -> tuple[Diagnostic, ...]:
    """Return one check for each kind of cluster: the first run that gets one, and how many others
    do. Each of them has a cluster of its own."""
    runs: dict[RaySize, list[DesiredRun]] = {}
    for run in launched:
        if run.ray is not None:
            runs.setdefault(run.ray, []).append(run)
    return tuple(
        Diagnostic(
            code="ray_cluster",
            severity=Severity.INFO,
            address=str(first.address),
            summary=_words(cluster, len(others)),
            place=place_of(first.places, "ray"),
        )
        for cluster, (first, *others) in runs.items()
    )


def _words(cluster: RaySize, others: int) -> str:
    parts = ", ".join(_parts(cluster)) or "its size is known on its nodes only"
    version = f"; Ray {cluster.version}" if cluster.version else ""
    more = f"; one as large for each of {others:,} more runs" if others > 1 else ""
    if others == 1:
        more = "; one as large for 1 more run"
    return f"Ray cluster: {parts}{version}{more}"


def _parts(cluster: RaySize) -> Iterator[str]:
    nodes = cluster.nodes
    for amount, unit in ((nodes, "node"), (cluster.gpus, "GPU"), (cluster.cpus, "CPU")):
        if amount:
            yield f"{amount:,} {unit}" + ("s" if amount > 1 else "")
    if cluster.object_store_memory is not None:
        each = f"{nodes} × " if nodes is not None and nodes > 1 else ""  # noqa: RUF001
        yield f"object store {each}{size(cluster.object_store_memory)}"
