"""One node of an attempt, seen from the server: its keeper process and the pipes to it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from sgpu_decl.agent.system import processes
from sgpu_decl.testing.workspace.programs import package_home

__all__ = ["NodeProcess", "NodeSpec", "can_have_root"]

_PROGRAM = ("-S", "-m", "sgpu_decl.testing.workspace.executing.node_keeper")
_MARK = "SGPU_WORKSPACE_NODE"
_SIGKILL = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """What a node runs. `folders` says what lies where in a root of its own, built on `root`,
    and `read_only` which of it takes nothing; without a root it runs in the machine's. `refused`
    are system calls that it is not allowed."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: str
    root: Path | None = None
    folders: Mapping[str, str] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()


class NodeProcess:
    """A started node. `output` and `report` are descriptors to read from; both end with the
    node."""

    def __init__(self, spec: NodeSpec) -> None:
        self._mark = uuid4().hex
        self.output, output = os.pipe()
        self.report, report = os.pipe()
        try:
            self._keeper = subprocess.Popen(
                [sys.executable, *_PROGRAM, str(report)],
                stdin=subprocess.PIPE, stdout=output, stderr=output, pass_fds=(report,),
                start_new_session=True, env=_own_environment(), cwd="/",
            )  # fmt: skip
        except OSError:
            os.close(self.output)
            os.close(self.report)
            raise
        finally:
            os.close(output)
            os.close(report)
        self._say(
            json.dumps(
                {
                    "argv": spec.argv, "cwd": spec.cwd, "folders": dict(spec.folders),
                    "root": None if spec.root is None else str(spec.root),
                    "read_only": spec.read_only,
                    "environment": {**spec.environment, _MARK: self._mark},
                    "mark": f"{_MARK}={self._mark}", "refused": spec.refused,
                }
            )
        )  # fmt: skip

    @property
    def keeper(self) -> int:
        """The pid of the process above all others of the node."""
        return self._keeper.pid

    def stop(self) -> None:
        """Ask the command to end: SIGTERM."""
        self._say("stop")

    def kill(self) -> None:
        """End everything on the node now."""
        self._say("kill")

    def lose(self) -> None:
        """Let the node vanish, as a machine that loses power."""
        self._say("die")

    def close(self) -> None:
        """End whatever is left, and wait for the keeper."""
        with suppress(BrokenPipeError):
            if self._keeper.stdin is not None:
                self._keeper.stdin.close()
        if self._keeper.wait() != 0:
            self._sweep()
        os.close(self.output)
        os.close(self.report)

    def _sweep(self) -> None:
        """Kill what a keeper may have left behind that did not end well."""
        entry = f"{_MARK}={self._mark}".encode()
        while left := [
            (pid, started)
            for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
            if processes.carries(pid, entry) and (started := processes.start_time(pid)) is not None
        ]:
            for pid, started in left:
                processes.send_signal(pid, started, _SIGKILL)

    def _say(self, word: str) -> None:
        if self._keeper.stdin is None:
            return
        with suppress(BrokenPipeError):  # it has ended, and its report says how
            self._keeper.stdin.write(word.encode() + b"\n")
            self._keeper.stdin.flush()


def can_have_root(scratch: Path) -> bool:
    """Whether nodes can have a root of their own on this machine; tried out in a process that
    ends."""
    root, folder = scratch / "root", scratch / "folder"
    root.mkdir(parents=True, exist_ok=True)
    folder.mkdir(exist_ok=True)
    tried = subprocess.run(
        [sys.executable, *_PROGRAM, "--probe", str(root), str(folder)],
        env=_own_environment(), cwd="/", capture_output=True, check=False,
    )  # fmt: skip
    return tried.returncode == 0


def _own_environment() -> dict[str, str]:
    """What the keeper itself needs: to find this package."""
    return {**os.environ, "PYTHONPATH": str(package_home())}
