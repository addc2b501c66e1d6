"""A rank, from its first line to its exit code.

_air.py ─▶ run_rank ─▶ spec ─▶ streams, hooks ─▶ the user's code ─▶ output or error record
              └─ in a warm parent: imports ─▶ fork_server ─▶ here again, in each rank

`_air.py` puts the package in `rank.zip` into `sys.modules` as `sgpu_decl.rank`, even if ranks have
another sgpu or none, and adds nothing to `sys.path`.

The time to the user's first line counts. So modules of this room import little, and late. They do
not import `__future__`: annotations that need it are quoted.
"""

import os
import sys

from sgpu_decl.rank.attempt_folder import AttemptFolder
from sgpu_decl.rank.import_hooks import on_import
from sgpu_decl.rank.streams import close_indices, wrap_streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType
    from typing import Any

    from sgpu_decl.rank.error_record import ErrorRecord

_WARM = ("FD", "DIR", "KEPT")
# Above SIGRTMIN: the signals on which all stacks are written, after a hang and for `sgpu stacks`.
_STACKS = {"fault.log": 8, "stacks.log": 9}
_ARGUMENTS = slice(45, 47)  # arg_start and arg_end, counted from the field after the name
_LONGEST_NAME = 15  # bytes of the name of a thread


def run_rank(path: str, spec_sha256: str) -> None:
    """Be a rank of the attempt in the folder `path`, or the warm parent that forks its ranks, or a
    node of its Ray cluster, or the monitor of that."""
    ray = os.environ.pop("SGPU_RAY_FD", None)
    if ray is not None:
        from sgpu_decl.rank.ray_node import be_ray_node

        be_ray_node(int(ray))
    if os.environ.pop("SGPU_RAY_METRICS", None) is not None:
        from sgpu_decl.rank.ray_metrics import monitor_ray

        monitor_ray()
        return
    folder = AttemptFolder(path, spec_sha256)
    channel, logs, kept = (os.environ.pop(f"SGPU_WARM_{name}", None) for name in _WARM)
    import_output = ("", "")
    if channel is not None and logs is not None:
        arm_faulthandler(logs)
        wrap_streams(None)
        if kept is not None:
            from sgpu_decl.rank.kept_imports import serve_calls

            folder, import_output = serve_calls(folder, int(channel), logs, kept)
            path = folder.path
        else:
            import_output = _be_warm_parent(folder, int(channel), logs)
    forked = channel is not None
    errors = os.environ["TORCHELASTIC_ERROR_FILE"]
    secrets: dict[str, str] = {}
    spec = None

    def record() -> "ErrorRecord":
        close_indices()  # what follows opens files, which may be what this rank can no longer do
        from sgpu_decl.rank.error_record import ErrorRecord

        return ErrorRecord(folder, errors, spec, secrets)

    try:
        spec = folder.read_spec()
        names = [*spec["secrets"], *(spec["tracker"] or {}).get("secrets", ())]
        secrets = {name: os.environ[name] for name in names if name in os.environ}
        logs = os.path.dirname(errors)
        arm_faulthandler(logs)
        wrap_streams(logs, os.environ.pop("SGPU_REDACT", None))
        sys.stdout.write(import_output[0])
        sys.stderr.write(import_output[1])
        sys.path[0] = spec["code_dir"]
        _add_hooks(path, spec)
        _say_ready()
        rank = os.environ["RANK"]
        _show_as_rank(rank)
        for name in filter(None, os.environ.pop("SGPU_REMOVED", "").split(",")):
            os.environ.pop(name, None)
        if forked and spec["entry"]["kind"] == "pickle":
            from sgpu_decl.rank.process_exit import leave_imports_alone

            leave_imports_alone()
        _run(folder, spec, rank, record, secrets)
    except SystemExit as error:
        if not (error.code is None or isinstance(error.code, int)):
            record().leave(error)
        raise
    except BaseException as error:  # noqa: BLE001 - whatever the user's code raises
        record().fail(error)
        sys.exit(1)


def _run(
    folder: AttemptFolder,
    spec: "Mapping[str, Any]",
    rank: str,
    record: "Callable[[], ErrorRecord]",
    secrets: "Mapping[str, str]",
) -> None:
    entry = spec["entry"]
    if entry["kind"] == "script":
        from sgpu_decl.rank.user_entry import run_script

        run_script(spec["code_dir"], entry["path"], entry.get("args") or [])
        return
    from sgpu_decl.rank.output import forget_output, write_output

    target = f"{folder.path}/ranks/{rank}"
    forget_output(target)
    if entry["kind"] == "pickle":
        from sgpu_decl.rank.pickled_call import make_call

        make_call(folder, entry["call"], target, record, secrets)
    else:
        from sgpu_decl.rank.user_entry import call_function

        write_output(folder, target, call_function(spec), secrets)


def _be_warm_parent(folder: AttemptFolder, channel: int, logs: str) -> tuple[str, str]:
    """Be the warm parent, with the folder `logs`: import what the spec names, then fork on request.

    Returns in the ranks alone: what the imports printed, for stdout and stderr.
    """
    spec = folder.read_spec()
    early = frozenset(sys.modules)  # what a rank has loaded before it can see the user's code
    from sgpu_decl.rank.fork_server import ForkServer, Imports

    server = ForkServer(channel, spec)
    imports = Imports(early, logs)
    try:
        imports.carry_out(spec)
    except BaseException as error:  # noqa: BLE001 - whatever an import raises
        from sgpu_decl.rank.error_record import ErrorRecord

        ErrorRecord(folder, logs + "/error.json").fail(error)
        sys.exit(1)
    return server.serve(imports)


def arm_faulthandler(folder: str) -> None:
    """Write all stacks to `fault.log` after a crash, and on real-time signals to the logs of
    `_STACKS`."""
    import faulthandler
    from _signal import SIGRTMIN, siginterrupt  # type: ignore[import-not-found]  # loads no enum

    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for name, number in _STACKS.items():
        log = os.open(f"{folder}/{name}", flags, 0o600)
        if name == "fault.log":
            faulthandler.enable(log)
        faulthandler.register(SIGRTMIN + number, log, all_threads=True)
        siginterrupt(SIGRTMIN + number, False)  # noqa: FBT003  system calls are started again


def _add_hooks(folder: str, spec: "Mapping[str, Any]") -> None:
    if spec["tracker"] is not None:
        environ = dict(os.environ)
        on_import("mlflow", before=lambda: _join_run(folder, spec, environ))
    on_import("torch.distributed.rendezvous", after=_keep_store_on_loopback)
    asked_at = os.environ.pop("SGPU_ASKED_AT", None)
    if asked_at is not None:
        on_import("torch.distributed.rendezvous", after=lambda module: _answer(module, asked_at))
    for package in ("pytorch_lightning", "lightning.pytorch"):
        on_import(f"{package}.trainer.trainer", after=_follow_lightning)
    on_import("mlflow.tracking.client", after=_follow_mlflow)


def _join_run(folder: str, spec: "Mapping[str, Any]", environ: "Mapping[str, str]") -> None:
    from sgpu_decl.rank.mlflow_run import join_run

    join_run(folder, spec["env"], environ)


def _keep_store_on_loopback(module: "ModuleType") -> None:
    from sgpu_decl.rank.store_loopback import keep_store_on_loopback

    keep_store_on_loopback(module)


def _answer(module: "ModuleType", asked_at: str) -> None:
    from sgpu_decl.rank.collective_answers import answer_monitor

    answer_monitor(module, f"\0{asked_at}")


def _follow_lightning(module: "ModuleType") -> None:
    from sgpu_decl.rank.progress_file import follow_lightning

    follow_lightning(module)


def _follow_mlflow(module: "ModuleType") -> None:
    from sgpu_decl.rank.progress_file import follow_mlflow

    follow_mlflow(module)


def _say_ready() -> None:
    descriptor = int(os.environ.pop("SGPU_READY_FD", "-1"))
    if descriptor >= 0:
        os.write(descriptor, os.environ["RANK"].encode() + b"\n")
        os.close(descriptor)


def _show_as_rank(rank: str) -> None:
    """Be `sgpu: train#8 rank 3` for `ps`, `top` and `nvidia-smi`. They show what a process has
    written over its arguments (proc(5): `arg_start` and `arg_end` in `/proc/pid/stat`), or the name
    of its main thread. A long name of a run loses its end, since the room is that of the arguments.
    Where the kernel allows neither, the rank keeps the name that it was started with."""
    run = os.environ.get("SGPU_ADDRESS", "").partition(".")[2].encode()
    end = f"#{os.environ.get('SGPU_ATTEMPT', '')} rank {rank}".encode()
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        first, last = map(int, fields[_ARGUMENTS])
        room = last - first
        if first and room > len(end) + len(b"sgpu: "):
            title = b"sgpu: " + _shortened(run, end, room - len(b"sgpu: \0"))
            with open("/proc/self/mem", "r+b", buffering=0) as memory:
                memory.seek(first)
                memory.write(title.ljust(room, b"\0"))
        with open("/proc/self/comm", "wb", buffering=0) as name:
            name.write(_shortened(run, end, _LONGEST_NAME))
    except (OSError, ValueError):
        return


def _shortened(run: bytes, end: bytes, room: int) -> bytes:
    return run[: max(room - len(end), 0)] + end[:room]
