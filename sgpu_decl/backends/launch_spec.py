"""The spec of an attempt: what the node agent and `_air.py` read of it, on every backend.

Of a called function, also the pickles in the folder of its attempt.
"""

import os
import secrets
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.preimports import warm_call, warm_start
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.call import Call, Pickled
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.run_outputs import with_folders
from sgpu_decl.rendering import spec
from sgpu_decl.rendering.spec import (
    Entry,
    IdleSpec,
    LaunchSpec,
    OnFinishSpec,
    PreflightSpec,
    RaySpec,
    RetrySpec,
    Warm,
    WebhookSpec,
)
from sgpu_decl.rendering.templates import declared_entry

if TYPE_CHECKING:
    from sgpu_decl.config.on_finish import OnFinish
    from sgpu_decl.config.ray import Ray
    from sgpu_decl.config.run import RunConfig


def render_parameters(parameters: Mapping[str, Json]) -> str:
    """Return the text of the file, with sorted keys.

    Readers of YAML 1.1 (PyYAML) and of 1.2 (ruamel, OmegaConf) find the same values: text that one
    of them would take for a number or for a yes is quoted, and floats have a point (`1.0e-05`).
    """
    import yaml

    class ParametersDumper(yaml.SafeDumper):
        pass

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        # PyYAML loses some line breaks of Unicode (U+0085) where they are not escaped.
        style = '"' if _is_number(value) or not value.isprintable() else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    ParametersDumper.add_representer(str, text)
    return yaml.dump(dict(parameters), Dumper=ParametersDumper, allow_unicode=True)


def _is_number(text: str) -> bool:
    """Whether YAML 1.2 may take a text for a number; 1.1 is PyYAML's own matter."""
    try:
        float(text)
    except ValueError:
        return text.lower().startswith(("0x", "0o"))
    return True


ALIGNED = 64  # bytes; what vector instructions like best


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecFolders:
    """Folders of an attempt where its ranks run; relative ones are below the run's folder on each
    node. `source` is the folder that `code` is a copy of; empty if it is on another machine."""

    project: str = ""
    run: str = ""
    output: str = "output"
    code: str = "code"
    source: str = ""


def with_outputs(request: LaunchRequest, folder_of: Callable[[AttemptRef], str]) -> LaunchRequest:
    """The launch with the folder of each output that it reads in the place of its reference."""
    spec = with_folders(request.inputs.spec, folder_of)
    if spec is request.inputs.spec:
        return request
    inputs = replace(request.inputs, spec=spec)
    return replace(request, record=replace(request.record, inputs=inputs))


def launch_spec(
    request: LaunchRequest,
    *,
    root: Path,
    code: Path | None,
    folders: SpecFolders,
    python: str,
    nodes: int = 1,
    processors: int | None = None,
) -> LaunchSpec:
    """Return the spec of an attempt on machines that nothing else uses: a backend adds what ranks
    share with other runs of their machine. Secrets are references; durations are in seconds.

    Args:
        root: the folder that the entrypoint is relative to.
        code: a folder with the code as it is pinned, to read what ranks can import once; None for
            no warm start.
        python: the interpreter of the ranks.
        nodes: how many nodes share the ranks evenly.
        processors: those that the run has on each node; None for those that it finds there.
    """
    call, config = request.call, request.config
    entry = call_entry(call) if call else _entry(config, root)
    return LaunchSpec(
        token=request.record.token,
        lineage=request.record.lineage,
        git=request.git,
        address=str(request.ref.address),
        name=request.ref.address.label,
        attempt=request.ref.number,
        project_dir=folders.project,
        run_dir=folders.run,
        output_dir=folders.output,
        code_dir=folders.code,
        code_root=folders.source if call is None else None,
        world_size=config.ranks,
        per=config.launch.per if config.ray is None else "node",
        entry=entry,
        python=python,
        env=dict(config.env.variables),
        secrets=dict(config.env.secrets),
        timeout=config.timeout.seconds if config.timeout else None,
        grace=config.grace.seconds,
        startup_timeout=config.startup_timeout.seconds if config.startup_timeout else None,
        progress_timeout=config.progress_timeout.seconds if config.progress_timeout else None,
        idle=IdleSpec.of(config.idle) if config.idle is not None else None,
        preflight=PreflightSpec() if config.preflight else None,
        hang_after=config.hang_after.seconds if config.hang_after != "auto" else None,
        hang=config.hang,
        flight_recorder=config.launch.flight_recorder == "on",
        retry=RetrySpec.of(config.retry),
        resume=config.resume is not None,
        master_port=config.launch.master_port,
        warm=_warm(request, entry, code, config.ranks // nodes),
        redact_logs=config.logs.redact,
        parameters=render_parameters(config.parameters) if config.parameters else None,
        control_key=(request.control_key or secrets.token_hex(32)) if nodes > 1 else None,
        ray=_ray(config.ray, config, nodes, processors)
        if config.ray is not None and not config.drives_existing
        else None,
        ray_driver=config.drives_existing,
        on_finish=_on_finish(config.on_finish) if config.on_finish is not None else None,
    )


def _on_finish(on_finish: "OnFinish") -> OnFinishSpec | None:
    """What the agent tells; mail is the platform's matter."""
    command, hook = on_finish.command, on_finish.webhook
    if command is None and hook is None:
        return None
    url = None if hook is None or hook.url.is_secret else str(hook.url)
    return OnFinishSpec(
        entry=declared_entry({"command": command}) if command is not None else None,
        webhook=WebhookSpec(url=url, on=hook.on) if hook is not None else None,
        secrets=on_finish.secrets,
    )


def _ray(ray: "Ray", config: "RunConfig", nodes: int, processors: int | None) -> RaySpec:
    gpus = 0 if config.type.name == "CPU" else config.gpus // nodes
    store = ray.object_store_memory
    return RaySpec(
        num_gpus=gpus if ray.num_gpus is None else ray.num_gpus,
        num_cpus=processors if ray.num_cpus is None else ray.num_cpus,
        resources=dict(ray.resources),
        object_store_memory=store.bytes if store is not None else None,
        temp_dir=ray.temp_dir,
        port=ray.port,
        dashboard=ray.dashboard,
        metrics_export_port=ray.metrics_export_port,
        metrics_interval=ray.metrics_interval.seconds if config.mlflow.enabled else None,
        head_startup_timeout=ray.head_startup_timeout.seconds,
        worker_join_timeout=ray.worker_join_timeout.seconds,
        env=dict(ray.env),
    )


def _warm(request: LaunchRequest, entry: Entry, code: Path | None, ranks: int) -> Warm | None:
    if request.config.ray is not None:
        return None
    setting = request.config.launch.warm
    call = request.call
    if call is not None:
        return warm_call(call.loads, setting=setting, ranks=ranks, kept=call.keep_warm > 0)
    return warm_start(entry, code, setting=setting, ranks=ranks) if code is not None else None


def _entry(config: "RunConfig", root: Path) -> Entry:
    """What ranks run; a file's path is relative to the code where it lies inside `root`, else
    absolute."""
    entry = declared_entry({"command": config.command, "entrypoint": config.entrypoint})
    if config.command is not None:
        return entry
    args: Mapping[str, Json] | tuple[Json, ...] | None
    args = tuple(config.args) if isinstance(config.args, (list, tuple)) else config.args
    return replace(entry, path=None if entry.path is None else _locate(entry.path, root), args=args)


def _locate(path: str, root: Path) -> str:
    whole = (root / path).resolve()
    base = root.resolve()
    return str(whole.relative_to(base)) if whole.is_relative_to(base) else str(whole)


def write_call(folder: Path, call: Call) -> None:
    """Write the pickles; buffers go from the caller's memory into their file.

    Raises:
        OSError: the disk is full.
    """
    for name, pickled in (("func", call.function), ("inputs", call.inputs)):
        _write(folder / f"{name}.pkl", [pickled.stream])
        if pickled.buffers:
            _write(folder / f"{name}.bin", _padded(pickled.buffers))


def call_entry(call: Call) -> spec.Entry:
    """What the spec says of a call."""
    return spec.Entry(
        kind="pickle",
        function=call.name,
        call=spec.CallSpec(
            name=call.name,
            python=call.python,
            cloudpickle=call.cloudpickle,
            path=call.path,
            fill=call.fill,
            group=call.group,
            function_crc=zlib.crc32(call.function.stream),
            inputs_crc=zlib.crc32(call.inputs.stream),
            function_buffers=tuple(_layout(call.function)),
            inputs_buffers=tuple(_layout(call.inputs)),
        ),
    )


def _layout(pickled: Pickled) -> Iterator[tuple[int, int]]:
    offset = 0
    for buffer in pickled.buffers:
        yield offset, buffer.nbytes
        offset += buffer.nbytes + -buffer.nbytes % ALIGNED


def _padded(buffers: Sequence[memoryview]) -> Iterator[memoryview | bytes]:
    for buffer in buffers:
        yield buffer
        yield bytes(-buffer.nbytes % ALIGNED)


def _write(path: Path, parts: "Sequence[bytes] | Iterator[memoryview | bytes]") -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb", 0) as file:
        for part in parts:
            rest = memoryview(part)
            while rest:
                rest = rest[file.write(rest) :]
