"""The files of a launch on a machine that other runs share: its spec, and `_air.py` and `rank.zip`
beside it."""

import contextlib
import hashlib
import marshal
import os
import sys
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any

from sgpu_decl.agent.attempt.relocation import HIDDEN
from sgpu_decl.agent.system.processes import start_time
from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.backends.archives import rank_zip
from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.launch_spec import SpecFolders, launch_spec, with_outputs
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.rendering.spec import Gpus, LaunchSpec, Parallel, Tether, TrackerSpec, render_spec
from sgpu_decl.rendering.templates import render_air


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSite:
    """The machine that an attempt is launched on, and what its runs share there.

    Attributes:
        layout: where attempts lie there.
        folder_of: gives the folder there of a launch that was recorded; None if it is not known.
        gpu_locks, shared_gpu_locks, port_locks: folders of locks.
        processors: gives how many a run has there.
        path: PATH, as its programs have it.
        variables: names of others that they have.
        project: the folder of the project there; empty if it is on another machine.
        source: the folder of the code there; the same.
        callers: processes that use GPUs for this launch.
        tether: the process that ranks shall not outlive.
    """

    layout: AttemptLayout
    folder_of: Callable[[LaunchRecord], Path | None]
    gpu_locks: str
    shared_gpu_locks: str
    port_locks: str
    processors: Callable[[], int]
    path: str
    variables: Collection[str] = ()
    project: str = ""
    source: str = ""
    callers: tuple[int, ...] = ()
    tether: Tether | None = None


def host_launch_spec(
    request: LaunchRequest,
    site: HostSite,
    *,
    root: Path,
    code: Path | None,
    python: str,
    tree: Path | None,
    devices: Sequence[str],
    share_gpus: bool,
    tracker: TrackerSpec | None,
    nodes: int = 1,
) -> LaunchSpec:
    """Return the spec of an attempt whose code is staged; see `launch_spec`.

    Args:
        root: the folder here that the entrypoint is relative to.
        code: the code as it is pinned, on this machine.
        tree: the declared environment of the interpreter.
        devices: what CUDA_VISIBLE_DEVICES may name there.
        share_gpus: whether ranks get devices that other programs use.
        tracker: the process that makes the MLflow run, if any.
        nodes: how many machines share the ranks; see `supervision.host_node` of the agent.
    """
    layout = site.layout
    request = with_outputs(request, lambda ref: str(earlier_folder(ref, request, site) / "output"))
    config, call = request.config, request.call
    folder = layout.attempt(request.ref)
    folders = SpecFolders(
        project=site.project,
        run=str(folder),
        output=str(layout.output(request.ref)),
        code=str(call.folder if call is not None and site.project else folder / "code"),
        source=site.source,
    )
    spec = launch_spec(request, root=root, code=code, folders=folders, python=python, nodes=nodes)
    others: dict[str, Any] = {}
    if not share_gpus and config.type.name != "CPU":
        others = {"shared_lock_dir": site.shared_gpu_locks, "callers": site.callers}
    return replace(
        spec,
        env={**_activated(tree, folder, site), **spec.env},
        gpus=Gpus(
            lock_dir=site.gpu_locks,
            devices=tuple(devices),
            need=0 if config.type.name == "CPU" else config.gpus,
            **others,
        ),
        parallel=_parallel(request, site),
        wait_for=tuple(
            str(earlier_folder(AttemptRef(request.ref.address, number), request, site))
            for number in request.record.wait_for
        ),
        after={str(ref): str(earlier_folder(ref, request, site)) for ref in request.record.after},
        port_lock_dir=site.port_locks,
        tracker=tracker,
        tether=site.tether if call is not None and call.attended else None,
    )


def earlier_folder(ref: AttemptRef, request: LaunchRequest, site: HostSite) -> Path:
    """The folder of an attempt that a launch waits for, or whose output it reads. It may lie in
    another checkout, or have lain elsewhere before its run was renamed."""
    known = {one.ref: one for one in (*request.waits_for, *request.after)}
    found = site.folder_of(known[ref]) if ref in known else None
    return found or site.layout.attempt(ref)


def caller_tether() -> Tether | None:
    """This process: it called a function and waits for it, so the ranks shall not outlive it."""
    start = start_time(os.getpid())
    return Tether(pid=os.getpid(), start=start) if start is not None else None


def _activated(tree: Path | None, folder: Path, site: HostSite) -> dict[str, str]:
    """Variables that let commands find the programs of the tree first, and that name a folder which
    the attempt may install into. An environment that is activated there is hidden from ranks: uv
    would install into it, and into the tree if VIRTUAL_ENV named that. So are variables that lead
    to packages which nothing pins."""
    if tree is None:
        return {}
    return {
        "PATH": f"{tree / 'bin'}{os.pathsep}{site.path}",
        "SGPU_SITE": str(folder / "site"),
        **{name: "" for name in HIDDEN if name in site.variables},
    }


def _parallel(request: LaunchRequest, site: HostSite) -> Parallel | None:
    config, call = request.config, request.call
    limit = config.max_parallel or (call.limit if call else None)
    if limit is None and call is not None and call.sweep and config.type.name == "CPU":
        limit = max(1, site.processors() // config.gpus)
    if limit is None:
        return None
    locks = site.layout.parallel_locks(request.ref, called=call is not None)
    return Parallel(lock_dir=str(locks), limit=limit)


def entrypoint_files(spec: LaunchSpec) -> dict[str, bytes]:
    """`_air.py`, and `spec.json`, which is written last."""
    raw = render_spec(spec)
    air = render_air(hashlib.sha256(raw).hexdigest(), spec.entry)
    return {"_air.py": air.encode(), "spec.json": raw}


def write_entrypoint(folder: Path, spec: LaunchSpec, shared: Path) -> None:
    """Write `_air.py` and what it imports, and at last `spec.json`.

    Args:
        shared: a folder on the same file system, for the archive that attempts have in common.

    Raises:
        OSError: the disk is full, or the folder is gone.
    """
    if spec.runs_python:
        ours = os.path.realpath(spec.python) == os.path.realpath(sys.executable)
        _place_archive(folder / "rank.zip", shared, compiled=ours)
        if ours and spec.entry.kind == "script":
            _compile_script(folder / "code", str(spec.entry.path), run_as=Path(spec.code_dir))
    for name, content in entrypoint_files(spec).items():
        write_atomic(folder / name, content)


def _place_archive(path: Path, shared: Path, *, compiled: bool) -> None:
    """Link the archive of this version and interpreter; the first attempt writes it."""
    version = hashlib.sha256(rank_zip(compiled=False) + MAGIC_NUMBER).hexdigest()
    key = f"rank-{version}-{'bytecode' if compiled else 'sources'}.zip"
    try:
        os.link(shared / key, path)
    except OSError:  # there is none yet, no room for another link, or no links at all
        write_atomic(path, rank_zip(compiled=compiled))
        shared.mkdir(mode=0o700, exist_ok=True)
        for other in shared.glob("rank-*.zip"):
            if version not in other.name:  # attempts of that version have links of their own
                other.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # another attempt was first, or there are no links
            os.link(path, shared / key)


def _compile_script(code: Path, script: str, *, run_as: Path) -> None:
    """Write the bytecode of a script where Python looks for that of a module, so that not every
    rank compiles it. A script outside of the code, or one with a warning or an error, is left to
    ranks.

    Args:
        run_as: where the code will lie when it runs; tracebacks name that.
    """
    if not (run_as / script).is_relative_to(run_as):
        return
    path = code / script
    try:
        source, facts = path.read_bytes(), path.stat()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled = compile(source, run_as / script, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError, Warning, RecursionError, MemoryError):
        return
    folder = path.parent / "__pycache__"
    folder.mkdir(mode=0o700, exist_ok=True)
    # PEP 552: a pyc that goes by the time and the size of its source.
    facts_of_source = (0, int(facts.st_mtime), facts.st_size)
    header = MAGIC_NUMBER + b"".join(
        (number & 0xFFFFFFFF).to_bytes(4, "little") for number in facts_of_source
    )
    name = f"{path.stem}.{sys.implementation.cache_tag}.pyc"
    write_atomic(folder / name, header + marshal.dumps(compiled))
