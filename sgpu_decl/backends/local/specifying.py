"""The `spec.json` of an attempt: all that the node agent and `_air.py` know about it."""

import sys
from collections.abc import Sequence
from pathlib import Path

from sgpu_decl.backends.base import Launching
from sgpu_decl.backends.local.layout import Layout, host_lock_folder
from sgpu_decl.config.run import RunConfig
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Json

__all__ = ["specify"]


def specify(
    launching: Launching,
    config: RunConfig,
    *,
    layout: Layout,
    project: Path,
    devices: Sequence[str],
    tracker: dict[str, Json] | None,
) -> dict[str, Json]:
    """Return the spec as JSON values. Secrets are names only; durations are seconds.

    Args:
        devices: what CUDA_VISIBLE_DEVICES may name on this machine.
        tracker: argv and environment of the process that makes the MLflow run, if any.
    """
    folder = layout.attempt(launching.ref)
    code = folder / "code"
    return {
        "v": 1,
        "token": launching.token,
        "lineage": launching.lineage,
        "address": str(launching.ref.address),
        "name": launching.ref.address.label,
        "attempt": launching.ref.number,
        "project_dir": str(project),
        "run_dir": str(folder),
        "output_dir": str(folder / "output"),
        "code_dir": str(code),
        "world_size": config.gpus,
        "per": str(config.launch.per),
        "entry": _entry(config, root=(project / launching.owner).parent / config.code.root),
        "python": sys.executable,
        "env": dict(config.env.variables),
        "secrets": sorted(config.env.secrets),
        "timeout": config.timeout.seconds if config.timeout else None,
        "grace": config.grace.seconds,
        "startup_timeout": config.startup_timeout.seconds if config.startup_timeout else None,
        "progress_timeout": config.progress_timeout.seconds if config.progress_timeout else None,
        "retry": {
            "max": config.retry.max,
            "on": [str(blame) for blame in config.retry.on],
            "backoff": config.retry.backoff.seconds,
        },
        "gpus": {
            "devices": list(devices),
            "need": 0 if config.type.name == "CPU" else config.gpus,
            "lock_dir": str(host_lock_folder("gpus")),
        },
        "parallel": _parallel(launching.ref, config, layout),
        "wait_for": [
            str(layout.attempt(AttemptRef(launching.ref.address, number)))
            for number in launching.wait_for
        ],
        "master_port": config.launch.master_port,
        "port_lock_dir": str(host_lock_folder("ports")),
        "tracker": tracker,
        "log_limit": None,
    }


def _parallel(ref: AttemptRef, config: RunConfig, layout: Layout) -> Json:
    if config.max_parallel is None:
        return None
    return {"lock_dir": str(layout.parallel_locks(ref)), "limit": config.max_parallel}


def _entry(config: RunConfig, *, root: Path) -> dict[str, Json]:
    entry: dict[str, Json] = dict.fromkeys(
        ("kind", "path", "module", "function", "command", "shell")
    )
    entry["args"] = config.args
    if config.command is not None:
        if isinstance(config.command, str):
            return {**entry, "kind": "shell", "shell": config.command}
        return {**entry, "kind": "command", "command": list(config.command)}
    target, _, function = (config.entrypoint or "").partition(":")
    if not target.endswith(".py"):
        return {**entry, "kind": "module_function", "module": target, "function": function}
    kind = "file_function" if function else "script"
    return {**entry, "kind": kind, "path": _locate(target, root), "function": function or None}


def _locate(path: str, root: Path) -> str:
    """Relative inside the snapshot, absolute outside of it."""
    whole = (root / path).resolve()
    base = root.resolve()
    return str(whole.relative_to(base)) if whole.is_relative_to(base) else str(whole)
