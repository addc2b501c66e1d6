"""Rules for the config of a run on Databricks that need no workspace."""

import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sgpu_decl.backends.databricks.bases import base_named
from sgpu_decl.backends.databricks.launching.experiment import (
    EXPERIMENT_VARIABLE,
    LONGEST_NAME,
    experiment_of,
)
from sgpu_decl.backends.databricks.launching.submit import (
    LONGEST,
    base_of,
    ended_early,
    lowest_version,
    retries_of,
)
from sgpu_decl.backends.databricks.planning.machines import (
    Machines,
    is_unlisted,
    machines_of,
    refusal_of,
    refuse_type,
)
from sgpu_decl.backends.databricks.planning.pools import check_priority
from sgpu_decl.backends.remote.remote_survey import entrypoint_findings, unsupported_findings
from sgpu_decl.backends.secret_resolution import secret_field, secret_name
from sgpu_decl.config.run import RunConfig
from sgpu_decl.config.run_blocks import Permission
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.package_lists.base_conflicts import check_python
from sgpu_decl.model.desired import Interpreter
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.permission_names import PLATFORM_LEVELS

Places = Mapping[str, Place]

_PRIORITIES = ("BEST_EFFORT", "NORMAL")
_DBFS = re.compile(r"(?<![\w.])/dbfs/")
_WEEK = f"{LONGEST // 86400}d"

_UNSUPPORTED = {
    "max_parallel": (
        "runs on Databricks wait for GPUs only: nothing there counts `max_parallel`",
        "leave it out here: `max_parallel: null` in the target",
    ),
    "code.link": (
        "`code.link` names data of this machine, which nodes do not see",
        "copy it to a volume (`databricks fs cp -r … dbfs:/Volumes/…`) and read it there",
    ),
    "mlflow.tracking_uri": (
        "the platform tracks runs in the MLflow of the workspace",
        "leave `mlflow.tracking_uri` out here: `null` in the target",
    ),
    "mlflow.enabled": (
        "the platform makes an MLflow run for every run: it cannot be turned off",
        "leave `mlflow.enabled` out here: `true` in the target",
    ),
    "mlflow.system_metrics": (
        "the platform decides which metrics of nodes it records: no field of a run turns them off",
        "leave `mlflow.system_metrics` out here: `true` in the target",
    ),
}

_REMOTE_LOCATION = re.compile(r"/Volumes/[^/]+/[^/]+/[^/]+|(?!file:)[A-Za-z][A-Za-z0-9+.-]*:/")
"""What the platform takes: a volume, or a URI of any scheme but `file:` (evidence: B)."""


def config_findings(
    config: RunConfig,
    places: Places,
    folder: Path,
    python: Interpreter | None,
    *,
    called: bool,
) -> Iterator[Diagnostic]:
    """Findings about fields that do not work on the platform.

    Args:
        folder: what paths in the config start from.
        python: what a declared environment is made from.
        called: the run is a function of this process.
    """
    yield from _machines(config, places)
    yield from _base(config, places)
    yield from _limits(config, places)
    yield from unsupported_findings(config, places, _UNSUPPORTED, called=called)
    yield from _fields(config, places)
    yield from _ray(config, places)
    yield from _tracking(config, places)
    yield from _secrets(config, places)
    yield from entrypoint_findings(config, places, folder)
    yield from _paths(config, places)
    yield from _python(config, places, python, called=called)


def _machines(config: RunConfig, places: Places) -> Iterator[Diagnostic]:
    machines = machines_of(config)
    unlisted = is_unlisted(config.type)
    if machines is None or (unlisted and config.type.node is None):
        summary, hint = refusal_of(config)
        offered = refuse_type(config.type) is None
        yield Diagnostic(
            code="bad_gpu_count" if offered else "no_such_machines",
            summary=summary,
            place=places.get("gpus" if offered else "type"),
            hint=hint,
        )
    elif unlisted:
        yield Diagnostic(
            code="unknown_accelerator",
            severity=Severity.WARNING,
            summary=f"sgpu knows no nodes `{machines.accelerator}` of serverless GPU compute: the "
            "name is sent as it is, and the workspace decides",
            place=places.get("type"),
            hint="nothing has to be done if the workspace has them",
        )
    elif config.type.name == "GPU":
        yield Diagnostic(
            code="gpus_here",
            severity=Severity.INFO,
            summary=f"`type: GPU` is `{machines.accelerator}` on serverless GPU compute",
            place=places.get("type"),
            hint="name the type for another one",
        )
    elif machines.accelerator == "GPU_8xH100" and machines.nodes > 1:
        yield Diagnostic(
            code="multi_node_preview",
            severity=Severity.INFO,
            summary=f"{machines.nodes} nodes of 8 H100: several such nodes are a preview of the "
            "platform, and not every workspace has it",
            place=places.get("gpus"),
        )


def _base(config: RunConfig, places: Places) -> Iterator[Diagnostic]:
    """Whether tasks can choose the base environment, and whether it has drivers for the GPUs."""
    base = base_named(base_of(config))
    if base is None:
        return  # a finding of the checks of environments
    place = places.get("env.base")
    if not base.for_tasks:
        yield Diagnostic(
            code="base_not_for_tasks",
            summary=f"runs cannot choose the base environment `{base.name}`: only notebooks can",
            place=place,
            hint="use `gpu-4`, or a later one; `sgpu env bases` lists them",
        )
    elif (lowest := lowest_version(config)) and (base.version or lowest) < lowest:
        yield Diagnostic(
            code="base_without_gpu",
            summary=f"`{base.name}` has no support for {config.type.name} GPUs",
            place=place,
            hint=f"use `base: gpu-{lowest}`, or a later one",
        )


def _limits(config: RunConfig, places: Places) -> Iterator[Diagnostic]:
    if config.timeout is not None and config.timeout.seconds > LONGEST:
        yield Diagnostic(
            code="timeout_too_long",
            summary=f"`timeout: {config.timeout}` is more than the 7 days that the platform gives",
            place=places.get("timeout"),
            hint=f"save checkpoints, use `timeout: {_WEEK}`, and go on from the last one with "
            "`sgpu apply --rerun`",
        )
    yield from _retries(config, places)


def _retries(config: RunConfig, places: Places) -> Iterator[Diagnostic]:
    """What the platform's own attempts may cost: prices are not known, so in attempts and time."""
    machines, again = machines_of(config), retries_of(config)
    if machines is None or not again:
        return
    most = f"at most {1 + again} attempts"
    if config.timeout is not None:
        hours = config.timeout.seconds / 3600 * config.gpus * (1 + again)
        most += f" of {config.timeout} each, {hours:,.4g} GPU hours in all"
    times = "once more" if again == 1 else f"up to {again} more times"
    hint = (
        "if your code fails while sgpu follows the run, sgpu cancels it, and no further attempt is "
        "made"
    )
    if not ended_early(config):
        hint = (
            "if your code fails, each further attempt gets its nodes and ends at once; without "
            "`on_finish.failure` the run would be cancelled, and a cancelled run sends no such mail"
        )
    if "retry.backoff" in places:
        hint += f"; `retry.backoff: {config.retry.backoff}` is for restarts on nodes that are "
        hint += "there, and the platform brings new ones as soon as it has some"
    yield Diagnostic(
        code="retry_cost",
        severity=Severity.INFO,
        summary=f"with `retry`, the platform may start {_nodes(machines)} {times}: {most}; each "
        "new start waits for GPUs again",
        place=places.get("retry.max") or places.get("retry"),
        hint=hint,
    )


def _nodes(machines: Machines) -> str:
    if machines.nodes == 1:
        return f"a node `{machines.accelerator}`"
    return f"{machines.nodes} nodes `{machines.accelerator}`"


def _fields(config: RunConfig, places: Places) -> Iterator[Diagnostic]:
    if config.priority is not None and config.priority.upper() not in _PRIORITIES:
        yield Diagnostic(
            code="unknown_priority",
            severity=Severity.WARNING,
            summary=f"sgpu knows no priority `{config.priority}`: the platform decides",
            place=places.get("priority"),
            hint=f"it knows {' and '.join(f'`{item}`' for item in _PRIORITIES)}",
        )
    yield from unknown_levels(config.permissions, places)
    yield from check_priority(config, places)
    declared = [name for name in ("base", *config.env.origins) if getattr(config.env, name)]
    if config.image is not None and declared:
        yield Diagnostic(
            code="image_and_environment",
            summary=f"`image` brings its own packages: it does not go with `env.{declared[0]}`",
            place=places.get("image"),
            hint="keep one of them",
        )
    if config.env.base is None and config.image is None:
        yield Diagnostic(
            code="default_base",
            severity=Severity.INFO,
            summary=f"nodes have the base environment `{base_of(config)}`",
            place=places.get("backend.kind") or places.get("backend"),
            hint="choose with `env.base`; `sgpu env bases` lists them",
        )


def unknown_levels(permissions: Sequence[Permission], places: Places) -> Iterator[Diagnostic]:
    """Warnings about levels of `permissions` that are not among those that sgpu knows."""
    for number, permission in enumerate(permissions):
        level = permission.level
        if level in PLATFORM_LEVELS or level in PLATFORM_LEVELS.values():
            continue
        near = nearest(level, PLATFORM_LEVELS.values())
        known = ", ".join(f"`{item}`" for item in PLATFORM_LEVELS.values())
        paths = (f"permissions.{number}.level", f"permissions.{number}", "permissions")
        yield Diagnostic(
            code="unknown_level",
            severity=Severity.WARNING,
            summary=f"sgpu knows no permission `{level}`: the platform decides",
            place=next((places[path] for path in paths if path in places), None),
            hint=f"did you mean `{near}`?" if near else f"it knows {known}",
        )


def _ray(config: RunConfig, places: Places) -> Iterator[Diagnostic]:
    if config.ray is not None and config.ray.dashboard:
        yield Diagnostic(
            code="ray_dashboard_unseen",
            severity=Severity.WARNING,
            summary="nobody can open Ray's dashboard on Databricks: it listens on loopback of a "
            "node, and the platform shows no address of it",
            place=places.get("ray.dashboard") or places.get("ray"),
            hint="remove it, unless the driver itself asks the dashboard, as `ray.util.state` does",
        )


def _tracking(config: RunConfig, places: Places) -> Iterator[Diagnostic]:
    experiment = experiment_of(config, "")
    if experiment.name != experiment.original:
        yield Diagnostic(
            code="experiment_renamed",
            severity=Severity.WARNING,
            summary=f"the experiment will be called `{experiment.name}`: the platform takes "
            f"letters, digits, `-` and `_`, at most {LONGEST_NAME}, and not "
            f"`{experiment.original}`",
            place=places.get("mlflow.experiment")
            or places.get(f"env.variables.{EXPERIMENT_VARIABLE}"),
            hint="use such a name here, so that runs elsewhere are in the same experiment",
        )
    exported = os.environ.get(EXPERIMENT_VARIABLE)
    if exported and not experiment.configured:
        yield Diagnostic(
            code="experiment_not_exported",
            severity=Severity.WARNING,
            summary=f"`{EXPERIMENT_VARIABLE}` of this machine, `{exported}`, does not count on "
            f"Databricks: the experiment is `{experiment.name}`",
            place=places.get("backend.kind") or places.get("backend"),
            hint=f"write `mlflow: {{experiment: {exported}}}`",
        )
    location = config.mlflow.artifact_location
    if location is not None and not _REMOTE_LOCATION.match(location):
        yield Diagnostic(
            code="bad_artifact_location",
            summary=f"nodes cannot keep artifacts in `{location}`",
            place=places.get("mlflow.artifact_location"),
            hint="name a folder of a volume, `/Volumes/catalog/schema/volume/folder`, or a URI "
            "such as `s3://bucket/folder`",
        )


def _secrets(config: RunConfig, places: Places) -> Iterator[Diagnostic]:
    for name, reference in config.secrets.items():
        if reference.partition(":")[0] != "databricks":
            key = name.lower().removeprefix("sgpu_")
            field = secret_field(name)
            yield Diagnostic(
                code="secret_not_remote",
                summary=f"secret `{secret_name(name)}` refers to `{reference}`, which nodes cannot "
                "resolve",
                place=places.get(field),
                hint=f"put it there with `databricks secrets put-secret SCOPE {key}`, and write "
                f"`{field.rpartition('.')[2]}: databricks:SCOPE/{key}`",
            )


def _paths(config: RunConfig, places: Places) -> Iterator[Diagnostic]:
    values: dict[str, Json] = {"args": config.args, "command": config.command}
    values |= {f"env.variables.{name}": text for name, text in config.env.variables.items()}
    for path, text in _texts(values):
        if _DBFS.search(text):
            yield Diagnostic(
                code="dbfs_path",
                summary=f"`{text[:80]}` is below `/dbfs`, which GPU nodes do not have",
                place=places.get(path) or places.get(path.rpartition(".")[0]),
                hint="move the data to a volume, and read it at `/Volumes/…`",
            )


def _texts(value: Json, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from _texts(inner, f"{path}.{index}")


def _python(
    config: RunConfig, places: Places, source: Interpreter | None, *, called: bool
) -> Iterator[Diagnostic]:
    base = base_named(base_of(config))
    if base is None or config.image is not None:
        return
    version = base.environment.python
    own = platform.python_version_tuple()[:2]
    if called and version is not None and tuple(version.split(".")[:2]) != own:
        yield Diagnostic(
            code="call_python",
            summary=f"functions of Python {'.'.join(own)} cannot be called by the Python {version} "
            f"of `{base.name}`",
            place=places.get("env.base") or places.get("backend"),
            hint=f"call from Python {'.'.join(version.split('.')[:2])}, or use another base",
        )
    python = config.env.python
    if source is not None and config.env.base is None:  # else the checks of bases say it
        yield from check_python(
            base.environment, source.version, places.get("env"), severity=Severity.ERROR
        )
    if python is not None and source is None and "/" not in python:
        yield from check_python(
            base.environment, python, places.get("env.python"), severity=Severity.ERROR
        )
