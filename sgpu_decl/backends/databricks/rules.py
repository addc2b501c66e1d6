"""What a run may not ask of Databricks: rules that need nobody to be asked."""

import platform
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from sgpu_decl.backends.databricks.accelerating import machines_of
from sgpu_decl.backends.databricks.submitting import DEFAULT_BASE, LONGEST
from sgpu_decl.config.env import Env
from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.known.bases import Base, base_named
from sgpu_decl.environments.known.conflicting import check_python
from sgpu_decl.model.desired import Interpreter
from sgpu_decl.model.jsonable import Json

__all__ = ["config_findings"]

Places = Mapping[str, Place]

_PRIORITIES = ("BEST_EFFORT", "NORMAL", "CRITICAL")
_DBFS = re.compile(r"(?<![\w.])/dbfs/")
_WEEK = f"{LONGEST // 86400}d"


def config_findings(
    config: RunConfig,
    places: Places,
    folder: Path,
    interpreter: Callable[[Env, Path], Interpreter | None],
    *,
    called: bool,
) -> Iterator[Diagnostic]:
    """Say what of a config does not go with the platform.

    Args:
        folder: what paths in the config start from.
        interpreter: gives the Python that a declared environment is made from.
        called: the run is a function of this process.
    """
    yield from _machines(config, places)
    yield from _limits(config, places, called=called)
    yield from _fields(config, places)
    yield from _secrets(config, places)
    yield from _paths(config, places, folder)
    yield from _python(config, places, folder, interpreter, called=called)


def _machines(config: RunConfig, places: Places) -> Iterator[Diagnostic]:
    machines = machines_of(config)
    if machines is None:
        yield Diagnostic(
            code="no_such_machines",
            summary=f"serverless GPU compute has no machines for `type: {config.type.name}`",
            place=places.get("type"),
            hint="use A10, H100 or B300, or a target with another backend",
        )
    elif machines.accelerator == "GPU_8xH100" and machines.nodes > 1:
        yield Diagnostic(
            code="multi_node_preview",
            severity=Severity.INFO,
            summary=f"{machines.nodes} nodes of 8 H100: several such nodes are a preview of the "
            "platform, and not every workspace has it",
            place=places.get("gpus"),
        )


def _limits(config: RunConfig, places: Places, *, called: bool) -> Iterator[Diagnostic]:
    if config.timeout is not None and config.timeout.seconds > LONGEST:
        yield Diagnostic(
            code="timeout_too_long",
            summary=f"`timeout: {config.timeout}` is more than the 7 days that the platform gives",
            place=places.get("timeout"),
            hint=f"save checkpoints, use `timeout: {_WEEK}`, and go on from the last one with "
            "`sgpu apply --rerun`",
        )
    if config.max_parallel is not None and not called:  # callers count their calls themselves
        yield Diagnostic(
            code="unsupported_field",
            summary="runs on Databricks wait for GPUs alone: nothing there counts `max_parallel`",
            place=places.get("max_parallel"),
            hint="leave it out here: `max_parallel: null` in the target",
        )


def _fields(config: RunConfig, places: Places) -> Iterator[Diagnostic]:
    if config.priority is not None:
        if config.priority.upper() not in _PRIORITIES:
            yield Diagnostic(
                code="unknown_priority",
                summary=f"there is no priority `{config.priority}`",
                place=places.get("priority"),
                hint=f"use one of {', '.join(f'`{it}`' for it in _PRIORITIES)}",
            )
        if config.pool is None:
            yield Diagnostic(
                code="priority_without_pool",
                summary="`priority` counts inside of a pool, and the run names none",
                place=places.get("priority"),
                hint="add `pool`, or leave `priority` out",
            )
    declared = [name for name in ("base", *config.env.origins) if getattr(config.env, name)]
    if config.image is not None and declared:
        yield Diagnostic(
            code="image_and_environment",
            summary=f"`image` brings its own packages: it does not go with `env.{declared[0]}`",
            place=places.get("image"),
            hint="keep one of them",
        )
    if config.mlflow.tracking_uri is not None:
        yield Diagnostic(
            code="unsupported_field",
            summary="the platform tracks runs in the MLflow of the workspace",
            place=places.get("mlflow.tracking_uri"),
            hint="leave `mlflow.tracking_uri` out here: `null` in the target",
        )
    if config.code.link:
        yield Diagnostic(
            code="unsupported_field",
            summary="`code.link` names data of this machine, which nodes do not see",
            place=places.get("code.link"),
            hint="copy it to a volume (`databricks fs cp -r … dbfs:/Volumes/…`) and read it there",
        )
    if config.env.base is None and config.image is None:
        yield Diagnostic(
            code="default_base",
            severity=Severity.INFO,
            summary=f"nodes have the base environment `{DEFAULT_BASE}`",
            place=places.get("backend.kind") or places.get("backend"),
            hint="choose with `env.base`; `sgpu env bases` lists them",
        )


def _secrets(config: RunConfig, places: Places) -> Iterator[Diagnostic]:
    for name, reference in config.env.secrets.items():
        if reference.partition(":")[0] != "databricks":
            key = name.lower()
            yield Diagnostic(
                code="secret_not_remote",
                summary=f"secret `{name}` refers to `{reference}`, which nodes cannot resolve",
                place=places.get(f"env.secrets.{name}"),
                hint=f"put it there with `databricks secrets put-secret SCOPE {key}`, and write "
                f"`{name}: databricks:SCOPE/{key}`",
            )


def _paths(config: RunConfig, places: Places, folder: Path) -> Iterator[Diagnostic]:
    root = (folder / (config.code.root or ".")).resolve()
    target = (config.entrypoint or "").partition(":")[0]
    if target.endswith(".py") and not (root / target).resolve().is_relative_to(root):
        yield Diagnostic(
            code="entrypoint_outside",
            summary=f"`{target}` lies outside of the code root, and only what is in it is sent",
            place=places.get("entrypoint"),
            hint="move it, or set `code.root` to a folder above it",
        )
    given: dict[str, Json] = {"args": config.args, "command": config.command}
    given |= {f"env.variables.{name}": text for name, text in config.env.variables.items()}
    for path, text in _texts(given):
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
    config: RunConfig,
    places: Places,
    folder: Path,
    interpreter: Callable[[Env, Path], Interpreter | None],
    *,
    called: bool,
) -> Iterator[Diagnostic]:
    base: Base | None = base_named(config.env.base or DEFAULT_BASE)
    if base is None or config.image is not None:
        return
    theirs = base.environment.python
    if called and theirs is not None:
        own = platform.python_version_tuple()[:2]
        if theirs.split(".")[:2] != list(own):
            yield Diagnostic(
                code="call_python",
                summary=f"functions of Python {'.'.join(own)} cannot be called by the Python "
                f"{theirs} of `{base.name}`",
                place=places.get("env.base") or places.get("backend"),
                hint=f"call from Python {'.'.join(theirs.split('.')[:2])}, or use another base",
            )
    made_from = interpreter(config.env, folder)
    if made_from is not None and config.env.base is None:  # else the lints of bases say it
        yield from check_python(
            base.environment, made_from.version, places.get("env"), severity=Severity.ERROR
        )
    if config.env.python is not None and made_from is None:
        yield from check_python(
            base.environment,
            config.env.python if "/" not in config.env.python else None,
            places.get("env.python"),
            severity=Severity.ERROR,
        )
