"""The program that stands above a node's command: starts it, stops it, and leaves nothing behind.

    server ──stdin: spec, then words──▶ keeper ──▶ bash command.sh ──▶ whatever it starts
           ◀──report: one JSON object──          (all of it a descendant of the keeper)

Words are `stop` (SIGTERM to the command's process group), `kill` (SIGKILL to everything) and `die`
(the same without a report, as a machine that is gone). The end of stdin is the end of the server:
`die`. Standard library and the agent's view of processes alone, so that a node starts quickly.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import sys
from contextlib import suppress

from sgpu_decl.agent.system import processes
from sgpu_decl.agent.system.process_tree import ProcessTree
from sgpu_decl.testing.refused_calls import refuse
from sgpu_decl.testing.workspace.executing.namespace import enter

__all__ = ["main"]

_LOOK = 0.05  # seconds between two looks at processes whose end the kernel does not tell


def main(arguments: list[str]) -> int:
    """`keeper REPORT` runs the spec that comes on stdin and writes how it ended to the descriptor;
    `keeper --probe ROOT FOLDER` says whether a node can have a root of its own: exit code 0 or
    1."""
    if arguments[0] == "--probe":
        return _probe(*arguments[1:])
    report = int(arguments[0])
    # Its end is the end of this process, whoever outlives it.
    os.set_inheritable(report, False)  # noqa: FBT003  it takes no keyword
    words = _Words()
    spec = json.loads(words.line())
    processes.become_subreaper()
    try:
        if spec["root"] is not None:
            enter(spec["root"], spec["folders"], spec["read_only"])
        command = _start(spec)
        tree = ProcessTree(frozenset({spec["mark"].encode()}))
        tree.start(os.getpid())
    except OSError as error:
        _tell(report, {"error": str(error)})
        return 1
    if not _watch(command, tree, words):
        return 1
    status = _clear(command, tree)
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
    argv, environment, refused = spec["argv"], spec["environment"], spec["refused"]
    if not (isinstance(argv, list) and isinstance(environment, dict) and isinstance(refused, list)):
        raise TypeError("a spec has `argv`, `environment` and `refused`")
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
        os.chdir(str(spec["cwd"]))
        if refused:
            refuse(dict.fromkeys(refused, errno.EPERM))
        os.execvpe(argv[0], argv, environment)  # noqa: S606  the user's command, on purpose
    except OSError as error:
        os.write(1, f"cannot start `{argv[0]}`: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _watch(command: int, tree: ProcessTree, words: _Words) -> bool:
    """Wait until the command has ended, doing as we are told; False to leave without a word."""
    handle = processes.open_process(command)
    watched, pause = ([handle, 0], None) if handle >= 0 else ([0], _LOOK)
    while True:
        ready = [0] if words.waiting else select.select(watched, [], [], pause)[0]
        if handle in ready or (not ready and processes.start_time(command) is None):
            return True
        if not ready:
            continue
        word = words.line()
        if word == "stop":
            with suppress(ProcessLookupError):
                os.killpg(command, signal.SIGTERM)
        elif word == "kill":
            with suppress(ProcessLookupError):
                os.killpg(command, signal.SIGKILL)
        else:
            _clear(command, tree)
            return False


def _clear(command: int, tree: ProcessTree) -> int:
    """Kill all that is left below this process, and return the command's status."""
    found = 0
    while True:
        left = tree.pids()
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            if tree.adopts or not left:
                return found
            processes.until_one_ends(left, _LOOK)
            continue
        if pid == command:
            found = status


def _tell(report: int, ending: dict[str, object]) -> None:
    os.write(report, json.dumps(ending).encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
