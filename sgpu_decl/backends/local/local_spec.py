"""What the node agent and `_air.py` are told about an attempt."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.agent.host_locks import host_lock_folder
from sgpu_decl.agent.processes import start_time
from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.base import Launching
from sgpu_decl.backends.call_files import call_entry
from sgpu_decl.backends.preimports import warm_call, warm_start
from sgpu_decl.backends.spec_parts import entry_of, retry_of
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.rendering.parameters import render_parameters
from sgpu_decl.rendering.spec import Gpus, LaunchSpec, Parallel, Tether, TrackerSpec

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

__all__ = ["local_launch_spec"]


def local_launch_spec(
    launching: Launching,
    config: "RunConfig",
    *,
    layout: AttemptLayout,
    project: Path,
    python: str,
    tree: Path | None,
    devices: Sequence[str],
    tracker: TrackerSpec | None,
) -> LaunchSpec:
    """Return the spec of one attempt, whose code is staged.

    Secrets are references only; durations are seconds.

    Args:
        python: the interpreter of the ranks.
        tree: the declared environment that it is of.
        devices: what CUDA_VISIBLE_DEVICES may name on this machine.
        tracker: the process that makes the MLflow run, if any.
    """
    folder = layout.attempt(launching.ref)
    call = launching.call
    if call is not None:
        root, entry, code = None, call_entry(call), call.folder
        warm = warm_call(call.loads, setting=config.launch.warm, ranks=config.gpus)
    else:
        root = Path(os.path.abspath(launching.code_root(project)))
        entry, code = entry_of(config, root=root), folder / "code"
        warm = warm_start(entry, code, setting=config.launch.warm, ranks=config.gpus)
    return LaunchSpec(
        token=launching.record.token,
        lineage=launching.record.lineage,
        git=launching.git,
        address=str(launching.ref.address),
        name=launching.ref.address.label,
        attempt=launching.ref.number,
        project_dir=str(project),
        run_dir=str(folder),
        output_dir=str(folder / "output"),
        code_dir=str(code),
        code_root=str(root) if root is not None else None,
        world_size=config.gpus,
        per=config.launch.per,
        entry=entry,
        python=python,
        env={**_activated(tree, folder), **config.env.variables},
        secrets=dict(config.env.secrets),
        timeout=config.timeout.seconds if config.timeout else None,
        grace=config.grace.seconds,
        startup_timeout=config.startup_timeout.seconds if config.startup_timeout else None,
        progress_timeout=config.progress_timeout.seconds if config.progress_timeout else None,
        retry=retry_of(config),
        gpus=Gpus(
            lock_dir=host_lock_folder("gpus"),
            devices=tuple(devices),
            need=0 if config.type.name == "CPU" else config.gpus,
        ),
        parallel=_parallel(launching, config, layout),
        wait_for=tuple(
            str(layout.attempt(AttemptRef(launching.ref.address, number)))
            for number in launching.record.wait_for
        ),
        master_port=config.launch.master_port,
        port_lock_dir=host_lock_folder("ports"),
        tracker=tracker,
        warm=warm,
        redact_logs=config.logs.redact,
        parameters=render_parameters(config.parameters) if config.parameters else None,
        tether=_tether() if call is not None and call.attended else None,
    )


def _tether() -> Tether | None:
    """This process: who calls a function and waits for it is not outlived by its ranks."""
    start = start_time(os.getpid())
    return Tether(pid=os.getpid(), start=start) if start is not None else None


def _activated(tree: Path | None, folder: Path) -> dict[str, str]:
    """What lets commands find the tree's programs first, and where the attempt may install what it
    wants for itself. An environment that is activated here is none of the ranks' matter: uv would
    install into it, as it would into the tree if that were called one."""
    if tree is None:
        return {}
    path = os.environ.get("PATH", os.defpath)
    return {
        "PATH": f"{tree / 'bin'}{os.pathsep}{path}",
        "SGPU_SITE": str(folder / "site"),
        **{name: "" for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if name in os.environ},
    }


def _parallel(launching: Launching, config: "RunConfig", layout: AttemptLayout) -> Parallel | None:
    limit = config.max_parallel or (launching.call.limit if launching.call else None)
    if limit is None:
        return None
    locks = layout.parallel_locks(launching.ref, called=launching.call is not None)
    return Parallel(lock_dir=str(locks), limit=limit)
