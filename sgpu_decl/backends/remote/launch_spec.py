"""The spec of an attempt on nodes: what the node agent and `_air.py` are told of it.

Folders are relative: below the run's folder on each node, wherever that is.
"""

import secrets
from dataclasses import replace
from pathlib import Path

from sgpu_decl.backends.base import Launching
from sgpu_decl.backends.call_files import call_entry
from sgpu_decl.backends.preimports import warm_call, warm_start
from sgpu_decl.backends.spec_parts import entry_of, retry_of
from sgpu_decl.rendering.parameters import render_parameters
from sgpu_decl.rendering.spec import Gpus, LaunchSpec

__all__ = ["launch_spec"]


def launch_spec(
    launching: Launching,
    *,
    root: Path,
    nodes: int,
    code: Path | None,
    tree: bool,
) -> LaunchSpec:
    """Return the spec of one attempt; see `launch_folder.launch_files`.

    What belongs to this machine is not in it: no GPU of a node is anybody else's, earlier attempts
    are waited for here, and nobody's end on this machine is seen there.

    Args:
        tree: whether ranks have a declared environment; else the node's own Python is theirs.
    """
    call, config = launching.call, launching.config
    # The caller's folders are not on any node.
    entry = call_entry(replace(call, path=())) if call else entry_of(config, root=root)
    ranks = config.gpus // nodes
    warm = None
    if call is not None:
        warm = warm_call(call.loads, setting=config.launch.warm, ranks=ranks)
    elif code is not None:
        warm = warm_start(entry, code, setting=config.launch.warm, ranks=ranks)
    return LaunchSpec(
        token=launching.record.token,
        lineage=launching.record.lineage,
        git=launching.git,
        address=str(launching.ref.address),
        name=launching.ref.address.label,
        attempt=launching.ref.number,
        project_dir="",
        run_dir="",
        output_dir="output",
        code_dir="code",
        code_root="" if call is None else None,
        world_size=config.gpus,
        per=config.launch.per,
        entry=entry,
        python="environment/tree/bin/python" if tree else "python3",
        env=dict(config.env.variables),
        secrets=dict(config.env.secrets),
        timeout=config.timeout.seconds if config.timeout else None,
        grace=config.grace.seconds,
        startup_timeout=config.startup_timeout.seconds if config.startup_timeout else None,
        progress_timeout=config.progress_timeout.seconds if config.progress_timeout else None,
        retry=retry_of(config),
        gpus=Gpus(lock_dir=""),
        port_lock_dir="",
        master_port=config.launch.master_port,
        warm=warm,
        redact_logs=config.logs.redact,
        parameters=render_parameters(config.parameters) if config.parameters else None,
        control_key=secrets.token_hex(32) if nodes > 1 else None,
    )
