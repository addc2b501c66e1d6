"""What the node agent and `_air.py` are told about an attempt on nodes of the platform.

Folders are relative: below the run's folder on each node, wherever that is.
"""

from dataclasses import replace
from pathlib import Path

from sgpu_decl.backends.base import Launching
from sgpu_decl.backends.calling import call_entry
from sgpu_decl.backends.specifying import entry_of, retry_of
from sgpu_decl.backends.warming import warm_call, warm_start
from sgpu_decl.config.run import RunConfig
from sgpu_decl.rendering.spec import Gpus, LaunchSpec

__all__ = ["specify"]


def specify(
    launching: Launching,
    config: RunConfig,
    *,
    root: Path,
    nodes: int,
    code: Path | None,
    tree: bool,
) -> LaunchSpec:
    """Return the spec of one attempt; see `node.node_files`.

    What belongs to this machine is not in it: no GPU of a node is anybody else's, earlier attempts
    are waited for here, and nobody's end on this machine is seen there.

    Args:
        tree: whether ranks have a declared environment; else the node's own Python is theirs.
    """
    call = launching.call
    # The caller's folders are not on any node.
    entry = call_entry(replace(call, path=())) if call else entry_of(config, root=root)
    ranks = config.gpus // nodes
    warm = None
    if call is not None:
        warm = warm_call(call.loads, setting=config.launch.warm, ranks=ranks)
    elif code is not None:
        warm = warm_start(entry, code, setting=config.launch.warm, ranks=ranks)
    return LaunchSpec(
        token=launching.token,
        lineage=launching.lineage,
        address=str(launching.ref.address),
        name=launching.ref.address.label,
        attempt=launching.ref.number,
        project_dir="",
        run_dir="",
        output_dir="output",
        code_dir="code",
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
    )
