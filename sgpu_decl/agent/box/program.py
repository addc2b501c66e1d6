"""`python agent.zip box ROOT`: answers requests on stdin until it ends; see `wire`.

ROOT is the folder for all that is kept here: `agents/`, `code/`, `environments/`, `packs/`,
`states/`; or one that nodes of a cluster share (`file_requests`). Each request is whole in itself
and may be sent again, unless its operation says otherwise: whoever lost an answer asks once more.
So the program may end at any moment, and does when its connection ends.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading

from sgpu_decl.agent.box.wire import BoxRefusal, RequestContent, frame_head, read_head
from sgpu_decl.agent.system import host_locks, processes
from sgpu_decl.agent.system.marked_answer import MARK

_ENDS = 5.0  # seconds in which a stream that has ended is closed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Operation = Callable[[str, dict[str, Any], RequestContent], tuple[dict[str, Any], bytes]]


def main(arguments: Sequence[str]) -> int:
    """Answer until the stream ends. What the operations and their programs print goes to stderr."""
    root = os.path.abspath(os.path.expanduser(arguments[1]))
    os.umask(0o077)
    stream = os.fdopen(os.dup(0), "rb")
    answers = os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    ending = threading.Thread(target=_end_with, args=(stream.fileno(),), daemon=True)
    ending.start()
    _write(answers, f"{MARK}{json.dumps(_hello(root))}\n".encode())
    operations = _operations()  # loaded while the other side reads that
    try:
        while (head := read_head(stream.read)) is not None:
            message, size = head
            content = RequestContent(stream, size)
            answer, data = _answer(operations.get(message.get("do", "")), root, message, content)
            content.skip()
            _write(answers, frame_head(answer, len(data)) + data)
    except (EOFError, BrokenPipeError):
        pass
    ending.join(_ENDS)  # it ends programs that were started here, too
    return 0


def _end_with(connection: int) -> None:
    """End this program, and those that it waits for, once nobody is left who waits for its answer.
    Supervisors have sessions of their own."""
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    ended = select.poll()
    ended.register(connection, select.POLLRDHUP)
    ended.poll()
    os.killpg(0, signal.SIGKILL)


def _hello(root: str) -> dict[str, Any]:
    """What launches need to know of a box: the same for as long as it is up."""
    os.makedirs(root, 0o700, exist_ok=True)
    return {
        "root": root,
        "python": sys.executable,
        "path": os.environ.get("PATH", os.defpath),
        "gpu_locks": host_locks.host_lock_folder("gpus"),
        "shared_gpu_locks": host_locks.shared_gpu_locks(),
        "port_locks": host_locks.host_lock_folder("ports"),
        "processors": len(os.sched_getaffinity(0)),
        "boot": processes.boot_id(),
        "address": _own_address(),
    }


def _own_address() -> str:
    """The address at which this login has reached this machine, behind any jump host. Source:
    `SSH_CONNECTION` in https://man.openbsd.org/ssh#ENVIRONMENT"""
    words = os.environ.get("SSH_CONNECTION", "").split()
    return words[2] if len(words) == 4 else ""


def _operations() -> dict[str, Operation]:
    from sgpu_decl.agent.box import (
        attempt_requests,
        box_facts,
        code_requests,
        command_requests,
        environment_requests,
        file_requests,
        reach_requests,
        store_requests,
    )

    return {
        **box_facts.OPERATIONS,
        **code_requests.OPERATIONS,
        **command_requests.OPERATIONS,
        **file_requests.OPERATIONS,
        **environment_requests.OPERATIONS,
        **reach_requests.OPERATIONS,
        **attempt_requests.OPERATIONS,
        **store_requests.OPERATIONS,
    }


def _answer(
    operation: Operation | None, root: str, message: dict[str, Any], content: RequestContent
) -> tuple[dict[str, Any], bytes]:
    if operation is None:
        return {"error": {"code": "unknown_request", "text": f"{message.get('do')!r}"}}, b""
    try:
        return operation(root, message, content)
    except BoxRefusal as refusal:
        return {"error": {"code": refusal.code, "text": str(refusal)}}, b""
    except OSError as error:
        where = os.fsdecode(error.filename) if error.filename is not None else None
        return {"error": {"errno": error.errno, "text": error.strerror or f"{error}",
                          "path": where}}, b""  # fmt: skip


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
