"""The record that a failed rank left, written by `rank/` or by torch's `@record`, and checked here.

A record that is missing, truncated, huge, not UTF-8 or of another form is ignored: the verdict then
comes from the exit status. If NCCL's watchdog aborted the rank, its stderr is read; so is that of a
command which was the driver of a Ray cluster.
"""

from __future__ import annotations

import os

from sgpu_decl.agent.attempt.attempt_files import TRACKED, read_json
from sgpu_decl.agent.system.safe_files import regular_opener

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_LIMIT = 1 << 20
_SUMMARY = 2_000
_TRACEBACK = 65_536
_STACK = 16_384  # characters of one rank: nodes send it to each other, and one report holds all
_CLASSES = frozenset({"exception", "exit_code", "launch_failed_user", "oom"})

# Exceptions that a rank raises because a peer is gone.
_COLLATERAL = frozenset(
    {
        "BrokenPipeError",
        "ConnectionAbortedError",
        "ConnectionRefusedError",
        "ConnectionResetError",
        "DistBackendError",
        "DistNetworkError",
        "DistStoreError",
        "EOFError",
    }
)

# torch's ProcessGroupNCCL.cpp writes one of these before it aborts a process because of a peer: its
# own timeout, NCCL's error for a lost peer, and a dump that the timeout of a peer caused. It also
# aborts for errors of this rank's own GPU.
_NCCL = b"ProcessGroupNCCL"
_OF_PEERS = (
    b"Watchdog caught collective operation timeout",
    b"ncclRemoteError",
    b"due to collective timeout or exception",
)
_OTHER_VALUE = "Changing param values is not allowed"
_BEFORE_ITS_NAME = ("Param with key='", "'key': '")
_FRAME = '  File "'
_RANK = "sgpu_decl/rank"  # the folder of files in the bytecode of `rank/`
# What a thread of ours is in, in each rank with torch; `rank.zip` is that of a node.
_ANSWERS = tuple(f'/{one}/collective_answers.py", line ' for one in ("rank", "rank.zip"))
_OF_ITS_OWN = b"terminated with exception: CUDA error"

# What Python writes before the exception that ends it, and how it names that of Ray's memory
# monitor: raised by a task that the driver waits for, or by one that this task waits for.
_UNCAUGHT = "Traceback (most recent call last):"
_OUT_OF_MEMORY = (
    "ray.exceptions.OutOfMemoryError: ",
    "ray.exceptions.RayTaskError(OutOfMemoryError): ",
)


def read_error(folder: str) -> dict[str, Any] | None:
    """Return a rank's error: class, summary, traceback, time_ns (or None) and collateral."""
    record = read_json(folder, "error.json", limit=_LIMIT)
    if record is None:
        return None
    return _ours(record) if "v" in record else _torch(record)


def shared_run_named(
    error: dict[str, Any], spec: Mapping[str, Any], restart: int
) -> dict[str, Any]:
    """Return an error that says before MLflow's own words that ranks share one MLflow run, if two
    of them, or two starts, logged a parameter of that run with different values.

    MLflow has no code of its own for that refusal, so its text is looked at, which stands in
    `mlflow/store/tracking/sqlalchemy_store.py` and in `file_store.py` beside it.
    """
    if _OTHER_VALUE not in error["summary"] or (spec["world_size"] == 1 and not restart):
        return error
    run_id = (read_json(spec["run_dir"], TRACKED) or {}).get("run_id")
    if not run_id or run_id not in error["summary"]:
        return error
    kind, _, message = error["summary"].partition(": ")
    names = (message.partition(before)[2].partition("'")[0] for before in _BEFORE_ITS_NAME)
    name = next(filter(None, names), None)
    param = f"`{name}`" if name else "a parameter"
    who, way = "ranks", "in rank 0 alone, or with the rank in its name"
    if spec["world_size"] == 1:
        who, way = "restarts", "as a metric, or with the restart in its name"
    why = f"{who} share one MLflow run, in which {param} has another value already: log it {way}"
    return {**error, "summary": shortened(f"{kind}: {why}. {message}", _SUMMARY)}


def read_abort(folder: str) -> dict[str, Any] | None:
    """Return the error of a rank that died by SIGABRT, if NCCL's watchdog aborted it for its peers.

    No handler runs then, so the end of its stderr is read.
    """
    tail = end_of_stderr(folder)
    if _NCCL not in tail or _OF_ITS_OWN in tail or not any(words in tail for words in _OF_PEERS):
        return None
    return {
        "class": "signal_self",
        "summary": "NCCL's watchdog aborted it, which waited in vain for its peers",
        "traceback": None,
        "time_ns": None,
        "collateral": True,
    }


def read_out_of_memory(folder: str) -> dict[str, Any] | None:
    """Return the error of a Python that ended with an exception of Ray's memory monitor.

    A command leaves no record. The end of its stderr has the exception that Python ended with. What
    the command printed itself does not count: the class stands in the first line that is not
    indented after the last head of a traceback.
    """
    lines = end_of_stderr(folder).decode("utf-8", "replace").splitlines()
    heads = [number for number, line in enumerate(lines) if line == _UNCAUGHT]
    if not heads:
        return None
    shown = lines[heads[-1] :]
    raised = next((line for line in shown[1:] if not line.startswith(" ")), "")
    if not raised.startswith(_OUT_OF_MEMORY):
        return None
    return {
        "class": "oom",
        "summary": shortened(raised, _SUMMARY),
        "traceback": shortened("\n".join(shown), _TRACEBACK),
        "time_ns": None,
        "collateral": False,
    }


def end_of_stderr(folder: str, most: int = _TRACEBACK) -> bytes:
    """Return the last bytes that a rank wrote to stderr, at most so many."""
    return end_of_log(folder, "stderr.log", most)


def end_of_log(folder: str, name: str, most: int = _TRACEBACK) -> bytes:
    """Return the last bytes of a log of a rank, at most so many."""
    try:
        path = os.path.join(folder, name)
        with open(path, "rb", buffering=0, opener=regular_opener) as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - most))
            return log.read(most)
    except OSError:
        return b""


def own_frames_left_out(stack: str, spec: Mapping[str, Any]) -> str:
    """Return a stack that names the user's own files instead of the copies, without frames and
    threads of sgpu. Those of a call that was kept warm lie in the folder of the attempt that
    imported."""
    run, copied = f"{_FRAME}{spec['run_dir']}/", f"{_FRAME}{spec['code_dir']}/"
    root = spec["code_root"]
    shown = copied if root is None else f"{_FRAME}{root}/" if root else _FRAME
    threads = (one for one in stack.split("\n\n") if not any(ours in one for ours in _ANSWERS))
    stack = "\n\n".join(threads)
    lines = []
    for line in stack.splitlines(keepends=True):
        if line.startswith(copied):
            lines.append(shown + line.removeprefix(copied))
        elif not line.startswith((run, f"{_FRAME}{_RANK}/")) and '/_air.py", line ' not in line:
            lines.append(line)
    return "".join(lines)


def read_stack(folder: str) -> str | None:
    """Return what faulthandler wrote about a rank that crashed or hangs."""
    try:
        path = os.path.join(folder, "fault.log")
        with open(path, "rb", buffering=0, opener=regular_opener) as log:
            text = log.read(_TRACEBACK).decode("utf-8", "replace")
    except OSError:
        return None
    return shortened(text, _STACK) or None


def shortened(value: object, limit: int) -> str | None:
    """Return a text, without its middle if it is too long; None for what is no text."""
    if not isinstance(value, str):
        return None
    return value if len(value) <= limit else value[: limit // 2] + "\n...\n" + value[-limit // 2 :]


def _ours(record: dict[str, Any]) -> dict[str, Any] | None:
    kind, message = shortened(record.get("type"), 200), shortened(record.get("message"), _SUMMARY)
    if kind is None or message is None:
        return None
    time_ns = record.get("time_ns")
    failure = record.get("class")
    return {
        "class": failure if failure in _CLASSES else "exception",
        "summary": f"{kind}: {message}" if message else kind,
        "traceback": shortened(record.get("traceback"), _TRACEBACK),
        "time_ns": time_ns if type(time_ns) is int else None,
        "collateral": is_collateral(record.get("kinds"), message),
        "missing": shortened(record.get("missing"), _SUMMARY),
    }


def _torch(record: dict[str, Any]) -> dict[str, Any] | None:
    """Read torch's form: `{"message": text}` or `{"message": {"message", "extraInfo": {...}}}`.

    Its timestamp is in whole seconds of the wall clock, which orders nothing: it is not used.
    """
    inner = record.get("message")
    traceback = None
    if isinstance(inner, dict):
        extra = inner.get("extraInfo")
        traceback = (
            shortened(extra.get("py_callstack"), _TRACEBACK) if isinstance(extra, dict) else None
        )
        inner = inner.get("message")
    message = shortened(inner, _SUMMARY)
    if message is None:
        return None
    name = message.partition(":")[0].rpartition(".")[2]
    return {
        "class": "exception",
        "summary": message,
        "traceback": traceback,
        "time_ns": None,
        "collateral": is_collateral([name, "RuntimeError"], message),
    }


def is_collateral(kinds: object, message: str) -> bool:
    """Whether an exception of these classes is one that a lost peer causes."""
    if not isinstance(kinds, list):
        return False
    return any(kind in _COLLATERAL for kind in kinds if isinstance(kind, str)) or (
        "RuntimeError" in kinds and "gloo/transport" in message
    )
