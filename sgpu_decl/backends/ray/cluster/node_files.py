"""What a node has of a launch where the cluster has no storage: the driver sends it, and takes back
what the node program leaves.

Ray sends the class by value: a node has no copy of this package.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading

from sgpu_decl.backends.ray.cluster.content_limit import prune, use
from sgpu_decl.backends.ray.cluster.node_folder import OBJECTS, content_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sgpu_decl.agent.attempt.growing_log import GrowingLog
    from sgpu_decl.agent.node.input_folder import InputFolder

OWN_FILES = ".files"
"""What the folder of a launch's files ends with; the folder of the node program goes before."""

FILLS, SHARES, WAITS = "fills", "shares", "waits"
"""What a node does with a folder of outputs: it needs all files, it shares those that another node
of its machine has, or that node gets them now."""

_MOST_LINES = 4 << 20  # bytes of a log that are sent at once


class NodeFiles:
    """Files of node `number`, whose node program has the folder `run`. Names are relative:
    `objects/…` are kept for all launches, by content; `launch/…` is of this one. `runs/…` is what
    nodes of this launch and of earlier ones leave, below the names of launch folders. Absolute ones
    are files of outputs of other runs, in the folder of `take_inputs`."""

    def __init__(self, run: str, number: int) -> None:
        self._number = number
        self._above = os.path.dirname(run)
        self._own = f"{run}{OWN_FILES}"
        self._guard = threading.Lock()
        self._received: dict[str, int] = {}
        self._log: GrowingLog | None = None
        self._lines = b""  # what was given last
        self._back = "back"
        self._inputs: InputFolder | None = None

    @property
    def log(self) -> str:
        """The file for the output of the node program."""
        return os.path.join(self._own, "log")

    @property
    def folders(self) -> dict[str, str]:
        """What stands for the folders in the arguments of the node program."""
        names = {"LAUNCH": "launch", "OBJECTS": OBJECTS, "BACK": self._back}
        return {word: self._path(name) for word, name in names.items()}

    def missing(self, names: list[str], back: str) -> list[str]:
        """Which files are not here; the others are noted as used. `back` is the name of the folder
        that this launch brings back."""
        # The node program deletes the agent when it ends, and nothing of it can be imported then.
        from sgpu_decl.agent.attempt.growing_log import GrowingLog

        self._log, self._back = GrowingLog(self.log), back
        for name in ("launch", back, OBJECTS):
            os.makedirs(self._path(name), exist_ok=True)
        with content_lock(self._above):
            lacking = [name for name in names if not use(self._path(name))]
            prune(self._path(OBJECTS))
        return lacking

    def take_inputs(self, folders: list[str]) -> str:
        """Use the folder above these, which ranks read outputs of other runs from. Raises OSError,
        which names the node."""
        from sgpu_decl.agent.node.input_folder import InputFolder

        inputs = self._inputs = self._inputs or InputFolder(os.path.dirname(folders[0]))
        try:
            if inputs.take():
                for folder in folders:
                    os.mkdir(folder)
                return FILLS
        except OSError as error:
            raise self._error(error, inputs.path) from error
        return WAITS if inputs.lock is None else SHARES

    def finish_inputs(self) -> None:
        """All outputs are there. Raises OSError, which names the node."""
        assert self._inputs is not None  # noqa: S101  `take_inputs` made it
        try:
            self._inputs.finish()
        except OSError as error:
            raise self._error(error, self._inputs.path) from error

    def receive(self, name: str, offset: int, size: int, data: bytes) -> None:
        """Write a part of a file that has `size` bytes in all. Parts come in any order, and two at
        once. Raises OSError, which names the node."""
        path = partial = self._path(name)
        if not os.path.isabs(name):  # nobody reads outputs before all are there
            partial = os.path.join(self._own, "partial", name)
        try:
            for file in (path, partial):
                os.makedirs(os.path.dirname(file), exist_ok=True)
            _write_at(partial, offset, data)
            with self._guard:
                received = self._received[name] = self._received.get(name, 0) + len(data)
            if received == size:
                os.rename(partial, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(partial)  # a full disk has room again
            raise self._error(error, path) from error

    def follow(self, earlier: list[int]) -> None:
        """Let the node program see `earlier` attempts of the driver."""
        for attempt in earlier:
            os.makedirs(self._path(f"{self._back}/{attempt}/node_{self._number}"), exist_ok=True)

    def new_lines(self, *, last: bool, again: bool = False) -> bytes:
        """Whole lines of the log that are new; with `last` the rest, too. With `again`, those of
        the call before, which did not arrive."""
        log = self._log
        if again or log is None:
            return self._lines
        lines = b""
        while len(lines) < _MOST_LINES:
            part = log.read()
            if not part.size:
                break
            lines += b"" if part.lines is None else part.lines + b"\n"
        if last and not lines:
            rest = log.last().lines
            lines = b"" if rest is None else rest + b"\n"
        self._lines = lines
        return lines

    def brought(self) -> list[tuple[str, int]]:
        """The names and sizes of what the node program left."""
        found = []
        for place, _, names in os.walk(self._path(self._back)):
            for name in names:
                path = os.path.join(place, name)
                found.append((os.path.relpath(path, self._own), os.path.getsize(path)))
        return found

    def read_whole(self, names: list[str]) -> list[bytes]:
        """Small files."""
        contents = []
        for name in names:
            with open(self._path(name), "rb") as file:
                contents.append(file.read())
        return contents

    def read(self, name: str, offset: int, size: int) -> bytes:
        """A part of a file."""
        with open(self._path(name), "rb") as file:
            file.seek(offset)
            return file.read(size)

    def discard(self) -> None:
        """Delete what is of this launch."""
        shutil.rmtree(self._own, ignore_errors=True)
        if self._inputs is not None:
            self._inputs.release()

    def _error(self, error: OSError, path: str) -> OSError:
        words = f"{error.strerror or error} on node {self._number}"
        return OSError(error.errno or errno.EACCES, words, path)

    def _path(self, name: str) -> str:
        kept = name == OBJECTS or name.startswith(f"{OBJECTS}/")
        return os.path.join(self._above if kept else self._own, name)


def _write_at(path: str, offset: int, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        rest, at = memoryview(data), offset
        while rest:
            written = os.pwrite(descriptor, rest, at)
            rest, at = rest[written:], at + written
    finally:
        os.close(descriptor)
