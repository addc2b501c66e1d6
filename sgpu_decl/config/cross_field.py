"""Diagnostics between the fields of a run that are each valid by themselves."""

from collections.abc import Collection, Container, Iterable, Iterator, Sequence

from sgpu_decl.config.gpu_type import GpuType
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.gpu import GPUType
from sgpu_decl.model.ray_size import reserved_for_ray


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFields:
    """The fields of a run that are compared with each other; `None` if a field may not be valid.
    `environment` holds those of `ORIGINS` that are set, `ray_fields` and `launch` the names of the
    fields in these blocks."""

    gpus: int | None
    type: GpuType | None
    entrypoint: bool
    command: bool
    args: bool
    parameters: bool
    per_node: bool
    warm_modules: bool
    redacted: bool
    variables: Iterable[str]
    secrets: Collection[str]
    environment: Collection[str]
    ray: bool = False
    ray_gpus: int | None = None
    drives_existing: bool = False
    ray_fields: Iterable[str] = ()
    launch: Container[str] = ()


_PARAMETERS = "HYPERPARAMETERS_PATH"

_OF_DRIVER = frozenset({"cluster", "num_cpus", "num_gpus", "resources"})
"""The fields of `ray` that mean something where the run starts no cluster."""

# What gives the packages, in the order of how much it says: only one can.
ORIGINS = ("snapshot", "lock", "requirements", "dependencies")


def contradictions(run: ComparedFields) -> tuple[Diagnostic, ...]:
    """Findings with the path of their field in the run, and without a place."""
    findings: list[Diagnostic] = []
    if run.type is not None and run.gpus is not None and run.gpus > 0:
        refused = run.type.refuse(run.gpus)
        if refused is not None:
            findings.append(
                Diagnostic(
                    path=("gpus",), code="bad_gpu_count", summary=refused[0], hint=refused[1]
                )
            )
    if run.drives_existing:
        findings += _of_driver(run)
    elif run.gpus == 0:
        findings.append(
            Diagnostic(
                path=("gpus",),
                code="out_of_range",
                summary="`gpus` must be at least 1, not `0`",
                hint="`type: CPU` is for ranks without GPUs; `gpus: 0` is for the driver of a Ray "
                "cluster that is there, `ray: {cluster: existing}`",
            )
        )
    if run.entrypoint and run.command:
        findings.append(
            Diagnostic(
                path=("command",),
                code="two_entrypoints",
                summary="a run has either `entrypoint` or `command`, not both",
                hint="remove one of them; a target that changes it sets the other one to `null`",
                of_key=True,
            )
        )
    elif not run.entrypoint and not run.command:
        findings.append(
            Diagnostic(
                path=(),
                code="no_entrypoint",
                summary="the run has neither `entrypoint` nor `command`",
                hint="add `entrypoint: train.py`, or `command: [...]`",
            )
        )
    elif run.command and run.args:
        findings.append(
            Diagnostic(
                path=("args",),
                code="args_of_command",
                summary="`args` belongs to `entrypoint`; a command has its own arguments",
                hint="write them into `command`",
                of_key=True,
            )
        )
    if run.ray:
        findings += _beside_ray(run)
    if run.per_node and run.entrypoint and not run.command and not run.ray:
        findings.append(
            Diagnostic(
                path=("launch", "per"),
                code="node_needs_command",
                summary="`launch.per: node` needs a `command` that starts its own ranks",
                hint="use `command`, or remove `per`",
            )
        )
    if run.warm_modules and run.command:
        findings.append(
            Diagnostic(
                path=("launch", "warm"),
                code="warm_of_command",
                summary="`launch.warm` names modules, and a command is not forked from Python",
                hint="remove it, or start the file as an `entrypoint`",
            )
        )
    if run.redacted and run.command:
        findings.append(
            Diagnostic(
                path=("logs", "redact"),
                code="redact_of_command",
                summary="`logs.redact` masks what Python ranks write, and a command writes its log "
                "by itself",
                hint="remove it, or start the file as an `entrypoint`; sgpu masks what it shows "
                "in any case",
            )
        )
    if run.parameters and _PARAMETERS in run.variables:
        findings.append(
            Diagnostic(
                path=("env", "variables", _PARAMETERS),
                code="parameters_said_twice",
                summary=f"`parameters` sets `{_PARAMETERS}`, and `env.variables` does, too",
                hint="keep one of them",
                of_key=True,
            )
        )
    findings += _two_origins([item for item in ORIGINS if item in run.environment])
    findings += [
        Diagnostic(
            path=("env", "variables", name),
            code="variable_and_secret",
            summary=f"`{name}` is both a variable and a secret",
            hint="keep it in `env.secrets` alone",
            of_key=True,
        )
        for name in run.variables
        if name in run.secrets
    ]
    return tuple(findings)


def _beside_ray(run: ComparedFields) -> list[Diagnostic]:
    """A Ray cluster has one driver, and sgpu gives it the address and the token."""
    findings = [
        Diagnostic(
            path=("launch", field),
            code="launch_of_ray",
            summary=f"`{setting}` does not go with `ray`: the run has one driver, and no ranks",
            hint=f"remove it{way_out}",
            of_key=True,
        )
        for field, setting, way_out in (
            ("per", "launch.per: rank", "; `ray` starts one Ray node on each node"),
            ("warm", "launch.warm", ""),
            ("master_port", "launch.master_port", "; `ray.port` is the port of the head"),
        )
        if field in run.launch and not (field == "per" and run.per_node)
    ]
    most = 0 if run.type is not None and run.type.kind is GPUType.CPU else run.gpus
    if run.drives_existing:
        pass  # `_of_driver`
    elif run.ray_gpus is not None and most is not None and run.type and run.ray_gpus > most:
        amount = "has no GPU" if most == 0 else f"has {most}"
        findings.append(
            Diagnostic(
                path=("ray", "num_gpus"),
                code="ray_beyond_run",
                summary=f"`ray.num_gpus: {run.ray_gpus}` is more than the run has: it {amount}",
                hint="leave it out for the GPUs that the run has on each node",
            )
        )
    return findings + [
        Diagnostic(
            path=("env", block, name),
            code="reserved_variable",
            summary=f"sgpu decides about `{name}` itself, for the Ray cluster of the run",
            hint=f"{way_out}; or remove `ray` to use a cluster of your own",
            of_key=True,
        )
        for block, names in (("variables", run.variables), ("secrets", run.secrets))
        for name in names
        if (way_out := reserved_for_ray(name)) is not None
    ]


def _of_driver(run: ComparedFields) -> Iterator[Diagnostic]:
    """The driver of a cluster that the run does not start: the run has the resources of the driver,
    and Ray gives the program the rest."""
    if run.gpus:
        yield Diagnostic(
            path=("gpus",),
            code="gpus_of_driver",
            summary=f"`gpus: {run.gpus}` does not go with `ray.cluster: existing`: the program "
            "asks Ray for GPUs itself, as in `@ray.remote(num_gpus=1)`",
            hint="write `gpus: 0`; `ray.num_gpus` is for GPUs of the driver alone",
        )
    without = run.type is not None and run.type.kind is GPUType.CPU
    if run.ray_gpus and without:
        yield Diagnostic(
            path=("ray", "num_gpus"),
            code="ray_beyond_run",
            summary=f"`ray.num_gpus: {run.ray_gpus}` is for the driver, and the run has "
            "`type: CPU`",
            hint="write `type: GPU`, or the type that the driver needs",
        )
    elif run.type is not None and not run.ray_gpus and not without:
        yield Diagnostic(
            path=("type",),
            code="gpus_of_driver",
            summary=f"`type: {run.type}` is for GPUs of the driver, and it takes none",
            hint="write `type: CPU`; tasks name a type as in "
            '`@ray.remote(num_gpus=1, accelerator_type="H100")`',
        )
    for field in sorted(set(run.ray_fields) - _OF_DRIVER):
        yield Diagnostic(
            path=("ray", field),
            code="ray_option_of_own_cluster",
            summary=f"`ray.{field}` is an option of a cluster that a run starts, and "
            "`cluster: existing` starts none",
            hint="remove it here, or set it to `null` in the target",
            of_key=True,
        )


def _two_origins(sources: Sequence[str]) -> list[Diagnostic]:
    """Requirements and dependencies are resolved together; everything else is whole by itself."""
    if len(sources) < 2 or set(sources) == {"requirements", "dependencies"}:
        return []
    first, *others = sources
    return [
        Diagnostic(
            path=("env", other),
            code="two_environments",
            summary=f"`env.{first}` is a whole environment, and `env.{other}` asks for another",
            hint="keep one of them; install missing packages before the snapshot is taken, or add "
            "them to the lock",
            of_key=True,
        )
        for other in others
    ]
