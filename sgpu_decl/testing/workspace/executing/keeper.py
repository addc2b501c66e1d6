"""The program that stands above a node's command: starts it, stops it, and leaves nothing behind.

    server ──stdin: spec, then words──▶ keeper ──▶ bash command.sh ──▶ whatever it starts
           ◀──report: one JSON object──          (all of it a descendant of the keeper)

Words are `stop` (SIGTERM to the command's process group), `kill` (SIGKILL to everything) and `die`
(the same without a report, as a machine that is gone). The end of stdin is the end of the server:
`die`. Standard library and the agent's view of processes alone, so that a node starts quickly.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from contextlib import suppress

from sgpu_decl.agent import processes
from sgpu_decl.testing.workspace.executing.namespace import enter

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """`keeper REPORT` runs the spec that comes on stdin and writes how it ended to the descriptor;
    `keeper --probe ROOT FOLDER` says whether a node can have a root of its own: exit code 0 or
    1."""
    if arguments[0] == "--probe":
        return _probe(*arguments[1:])
    report = int(arguments[0])
    words = _Words()
    spec = json.loads(words.line())
    processes.become_subreaper()
    try:
        if spec["root"] is not None:
            enter(spec["root"], spec["folders"])
        command = _start(spec)
    except OSError as error:
        _tell(report, {"error": str(error)})
        return 1
    if not _watch(command, words):
        return 1
    status = _clear(command)
    _tell(report, {"status": os.waitstatus_to_exitcode(status)})
    return 0


def _probe(root: str, folder: str) -> int:
    try:
        enter(root, {"/Workspace": folder})
    except OSError as error:
        print(error)  # noqa: T201  for whoever wonders why
        return 1
    return 0


class _Words:
    """Lines of stdin, read without a buffer that select cannot see."""

    def __init__(self) -> None:
        self._held = b""

    def line(self) -> str:
        """The next line; `die` at the end."""
        while b"\n" not in self._held:
            part = os.read(0, 65_536)
            if not part:
                return "die"
            self._held += part
        line, _, self._held = self._held.partition(b"\n")
        return line.decode()

    @property
    def waiting(self) -> bool:
        return b"\n" in self._held


def _start(spec: dict[str, object]) -> int:
    argv, environment = spec["argv"], spec["environment"]
    if not isinstance(argv, list) or not isinstance(environment, dict):
        raise TypeError("a spec has `argv` and `environment`")
    parent = os.getpid()
    child = os.fork()
    if child:
        with suppress(OSError):
            os.setpgid(child, child)  # whoever is first: a `stop` may come at once
        return child
    try:
        os.setpgid(0, 0)
        processes.die_with_parent(parent)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(1, 2)
        os.closerange(3, 1024)
        os.chdir(str(spec["cwd"]))
        os.execvpe(argv[0], argv, environment)  # noqa: S606  the user's command, on purpose
    except OSError as error:
        os.write(1, f"cannot start `{argv[0]}`: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _watch(command: int, words: _Words) -> bool:
    """Wait until the command has ended, doing as we are told; False to leave without a word."""
    handle = os.pidfd_open(command)
    while True:
        ready = [0] if words.waiting else select.select([handle, 0], [], [])[0]
        if handle in ready:
            return True
        word = words.line()
        if word == "stop":
            with suppress(ProcessLookupError):
                os.killpg(command, signal.SIGTERM)
        elif word == "kill":
            with suppress(ProcessLookupError):
                os.killpg(command, signal.SIGKILL)
        else:
            _clear(command)
            return False


def _clear(command: int) -> int:
    """Kill all that is left below this process, and return the command's status."""
    found = 0
    while True:
        for pid in processes.descendants(os.getpid()):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return found
        if pid == command:
            found = status


def _tell(report: int, ending: dict[str, object]) -> None:
    os.write(report, json.dumps(ending).encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
