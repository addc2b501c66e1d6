"""The Ray cluster of a run: its size, the version of Ray, and what stands in its way.

The version comes from the list of packages that ranks find. Nothing imports Ray.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from sgpu_decl.agent.ray.ray_object_store import refuses_store
from sgpu_decl.diagnostics.amounts import size
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.package_lists.base_checks import packages_on_base
from sgpu_decl.environments.package_lists.base_environments import base_named
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.backend_kinds import kind_named
from sgpu_decl.model.environment import PackageList
from sgpu_decl.model.ray_size import FIRST_RAY_WITH_TOKENS, OLDEST_RAY, NodeShape, RaySize

if TYPE_CHECKING:
    from sgpu_decl.config.ray import Ray
    from sgpu_decl.config.run import RunConfig

# Of the extra `default`; its dashboard does not start without any of them either.
_METRICS_AGENT = ("aiohttp", "aiohttp-cors", "opencensus", "prometheus-client")


@dataclass(frozen=True, slots=True, kw_only=True)
class RayPackages:
    """`versions` maps the packages that ranks find to their versions. Where it is not `complete`,
    there may be more."""

    versions: Mapping[str, str]
    complete: bool

    @property
    def ray(self) -> str | None:
        """The version of Ray, if it is known to be there."""
        return self.versions.get("ray")


def ray_packages(config: "RunConfig", installed: PackageList | None, folder: Path) -> RayPackages:
    """Return the packages that Ray's processes would find.

    Args:
        installed: those of the run's environment or interpreter, as far as that is known.
        folder: where the path of a requirements file begins.
    """
    packages = installed.packages if installed is not None else ()
    complete = installed is not None
    bases = kind_named(config.backend.kind).bases()
    if bases:  # what is declared is installed on top of one of them
        base = base_named(config.env.base or "", bases)
        # Requirements are installed there, and what they need is not known here.
        complete = base is not None and base.environment.complete
        complete = complete and (installed is not None or not config.env.origins)
        packages = (*packages_on_base(config.env, base, folder), *packages)
    if "PYTHONPATH" in config.env.variables:
        complete = False  # it may lead to any package
    return RayPackages(versions=dict(packages), complete=complete)


def ray_facts(
    config: "RunConfig",
    ray: "Ray",
    place: Callable[[str], Place | None],
    *,
    shape: NodeShape | None,
    packages: RayPackages,
) -> tuple[RaySize | None, Iterator[Diagnostic]]:
    """Return the cluster that a run with `ray` starts, if it starts one, and what stands in the way
    of its driver; `place` gives that of a dotted field path."""
    if config.drives_existing:
        return None, driver_findings(config, place, shape=shape, packages=packages)
    findings = ray_findings(ray, place, shape=shape, packages=packages)
    return ray_cluster(ray, shape, packages), findings


def ray_cluster(ray: "Ray", shape: NodeShape | None, packages: RayPackages) -> RaySize:
    """Return the cluster that a run would get; `shape` is that of its nodes, if it is known."""
    store = ray.object_store_memory.bytes if ray.object_store_memory is not None else None
    if shape is None:
        return RaySize(object_store_memory=store, version=packages.ray)
    if store is None:
        store = shape.store
    gpus = shape.gpus if ray.num_gpus is None else ray.num_gpus
    cpus = shape.cpus if ray.num_cpus is None else ray.num_cpus
    return RaySize(
        nodes=shape.nodes,
        gpus=shape.nodes * gpus,
        cpus=None if cpus is None else shape.nodes * cpus,
        object_store_memory=store,
        version=packages.ray,
    )


def driver_findings(
    config: "RunConfig",
    place: Callable[[str], Place | None],
    *,
    shape: NodeShape | None,
    packages: RayPackages,
) -> Iterator[Diagnostic]:
    """Say what stands in the way of a driver of a cluster that is there, and what its tasks lack.
    Drivers need the very version of their cluster (`check_version_info` in
    `ray/_private/utils.py`)."""
    there = shape.ray if shape is not None else None
    declared = bool(config.env.origins)
    if declared and packages.ray is None and packages.complete:
        yield from _missing(place("ray"))
    elif declared and there and packages.ray is not None and packages.ray != there:
        yield Diagnostic(
            code="ray_differs",
            summary=f"the environment of the run has Ray {packages.ray}, and the cluster {there}: "
            "the driver could not join",
            place=place("env"),
            hint=f"declare `ray=={there}`",
        )
    if declared:
        yield Diagnostic(
            code="tasks_without_environment",
            severity=Severity.WARNING,
            summary="the driver has the environment of the run, and its tasks have the Python of "
            "the nodes",
            place=place("env"),
            hint='name what tasks import: `ray.init(runtime_env={"uv": [...]})`; or install it on '
            "the nodes",
        )
    if config.env.secrets:
        names = ", ".join(f"`{name}`" for name in sorted(config.env.secrets))
        yield Diagnostic(
            code="secrets_of_driver",
            severity=Severity.INFO,
            summary=f"the driver has {names}, and its tasks do not: Ray shows their variables to "
            "whoever may list jobs",
            place=place("env.secrets"),
            hint="give a task the value as an argument",
        )


def ray_findings(
    ray: "Ray",
    place: Callable[[str], Place | None],
    *,
    shape: NodeShape | None,
    packages: RayPackages,
) -> Iterator[Diagnostic]:
    """Say what stands in the way of the cluster; `place` gives that of a dotted field path."""
    if packages.ray is not None:
        yield from _of_version(packages.ray, place("ray"), nodes=shape.nodes if shape else 1)
        lacking = [name for name in _METRICS_AGENT if name not in packages.versions]
        if lacking and packages.complete and ray.dashboard:
            yield Diagnostic(
                code="ray_without_dashboard",
                summary=f"Ray has no dashboard without `{lacking[0]}`, and would not start",
                place=place("ray.dashboard"),
                hint="install `ray[default]`, or remove `dashboard`",
            )
        if lacking and packages.complete:
            yield Diagnostic(
                code="ray_metrics_off",
                severity=Severity.INFO,
                summary=f"Ray measures nothing without `{lacking[0]}`: its nodes have no metrics",
                place=place("ray"),
                hint="install `ray[default]`",
            )
    elif packages.complete:
        yield from _missing(place("ray"))
    yield from _beyond_run(ray, shape, place)
    yield from _shared_memory(ray, shape, place)


def _missing(place: Place | None) -> Iterator[Diagnostic]:
    yield Diagnostic(
        code="ray_missing",
        summary="the environment of the run has no `ray`",
        place=place,
        hint="install `ray[default]`, or declare it in `env.dependencies`",
    )


def _beyond_run(
    ray: "Ray", shape: NodeShape | None, place: Callable[[str], Place | None]
) -> Iterator[Diagnostic]:
    """GPUs that a node lacks are an error: tasks would be given devices of others, or none.
    Processors may be shared."""
    if shape is None:
        return
    if ray.num_gpus is not None and ray.num_gpus > shape.gpus:
        there = f"{shape.gpus} GPUs" if shape.gpus != 1 else "1 GPU"
        yield Diagnostic(
            code="ray_beyond_run",
            summary=f"`ray.num_gpus: {ray.num_gpus}` is more than the run has on a node ({there})",
            place=place("ray.num_gpus"),
            hint="leave it out for the GPUs that the run has on each node",
        )
    if ray.num_cpus is not None and shape.cpus is not None and ray.num_cpus > shape.cpus:
        there = f"{shape.cpus} CPUs" if shape.cpus != 1 else "1 CPU"
        yield Diagnostic(
            code="ray_beyond_run",
            severity=Severity.WARNING,
            summary=f"`ray.num_cpus: {ray.num_cpus}` is more than the run has on a node "
            f"({there}): more tasks would run at once than there are CPUs",
            place=place("ray.num_cpus"),
            hint="leave it out for the CPUs that the run has on each node",
        )


def _shared_memory(
    ray: "Ray", shape: NodeShape | None, place: Callable[[str], Place | None]
) -> Iterator[Diagnostic]:
    if shape is None or shape.shm is None:
        return
    written = ray.object_store_memory
    store = shape.store if written is None else written.bytes
    if store is None or store <= shape.shm:
        return
    refused = refuses_store(store, shape.shm, ray.env)
    then = "Ray would not start" if refused else "Ray would keep it on a disk, which is slow"
    yield Diagnostic(
        code="ray_shm_small",
        severity=Severity.ERROR if refused else Severity.WARNING,
        summary=f"the object store of {size(store)} does not fit into /dev/shm, which has "
        f"{size(shape.shm)} free: {then}",
        place=place("ray" if written is None else "ray.object_store_memory"),
        hint="make /dev/shm larger (in a container: `--shm-size`), or declare a smaller "
        "`object_store_memory`",
    )


def _of_version(text: str, place: Place | None, *, nodes: int) -> Iterator[Diagnostic]:
    try:
        version = Version(text)
    except InvalidVersion:
        return
    if version < Version(OLDEST_RAY):
        yield Diagnostic(
            code="ray_too_old",
            summary=f"Ray {text} is too old: sgpu starts clusters of Ray {OLDEST_RAY} and newer",
            place=place,
            hint=f"install `ray[default]>={OLDEST_RAY}`",
        )
    elif version < Version(FIRST_RAY_WITH_TOKENS) and nodes > 1:
        yield Diagnostic(
            code="ray_without_token",
            severity=Severity.WARNING,
            summary=f"Ray {text} has no authentication: whoever reaches a port of the cluster can "
            "run code on its nodes",
            place=place,
            hint=f"install `ray[default]>={FIRST_RAY_WITH_TOKENS}`",
        )
