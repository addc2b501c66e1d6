"""Uploads what a run leaves on a node to its launch folder: nothing else outlives the node.

Reports of the agent and the ranks are uploaded without the values of secrets. Results of ranks, and
files in SGPU_OUTPUT_DIR, are not changed. The results of all ranks of a node are at most
`MOST_BYTES`, and so are its files: what is more ends with the node.

If their readers cannot read large files, these are written in parts: `parts/K/J` is part J of the
K-th of them, and `done` has the index of all parts, and the sizes and the SHA-256 of the other
files.

A file is written beside its place and renamed, and `done` is the last one: a node may be lost at
any byte. Without `done`, readers take the outcome alone, and that only if it is a whole JSON
object.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import time
from binascii import crc32
from functools import partial
from io import BytesIO

from sgpu_decl.agent import attempt_files
from sgpu_decl.agent.byte_size import size
from sgpu_decl.agent.node.agent_process import LOG
from sgpu_decl.agent.node.log_forwarding import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, BinaryIO

    from sgpu_decl.agent.node.platform import PlatformTable
    from sgpu_decl.agent.node.stop_request import StopRequest

__all__ = ["DONE", "MOST_BYTES", "OPEN_RUN", "NodeUpload", "await_others", "read_done"]

DONE = "done"
MOST_BYTES = 512_000_000
_WHOLE = size(MOST_BYTES)
_PATIENCE = 30.0  # seconds between tries, for all files together
_PAUSE = 0.5  # seconds, doubled for each try
_NO_RENAME = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EXDEV)
_PERMANENT = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOTDIR, errno.EEXIST)
_LOG_TAIL = 64 << 10
_REPORTS = (attempt_files.OUTCOME, attempt_files.STATUS, attempt_files.EVENTS)
OPEN_RUN = "mlflow_open.json"
_OWN_WORDS = ("state", "class", "by", "event", "status")
_VALUE, _PICKLE = "output.json", "output.pkl"
_SHOWN = "output.shown.json"
_CHUNK = 1 << 20
_NODE_PATIENCE = 20.0  # seconds: another node may be gone, and its files appear here late
_LOOK = 0.1  # seconds between two looks at the other nodes
_PARTS = "parts"
_MOST_INDEX = 256 << 20  # bytes of `done`: the paths of 10,000 files, twice
_PARTIAL = ".partial"  # the file that is being written


class NodeUpload:
    """From the run's folder `run_dir`, with the agent's records in `folder`, to the new folder
    `target`. `hide` removes the values of secrets from a text. A file larger than `part` bytes is
    written in parts of that size; None writes every file whole."""

    def __init__(
        self,
        run_dir: str,
        folder: str,
        target: str,
        hide: Callable[[str], str],
        platform: PlatformTable,
        *,
        part: int | None = None,
    ) -> None:
        self._platform = platform
        self._part = part
        self._parts: dict[str, dict[str, object]] = {}
        self._sizes: dict[str, int] = {}  # of files that are not in parts
        self._digests: dict[str, str] = {}  # of the same
        self._run_dir = run_dir
        self._folder = folder
        self._target = target
        self._hide = hide
        self._patience = _PATIENCE
        self._room = MOST_BYTES  # for results
        self._masked: list[int] = []  # ranks whose results have values of secrets

    def upload(self, output: str) -> list[str]:
        """Upload the reports, the results of ranks, and the files in the folder `output`; return
        the names of those that stay there.

        Raises:
            OSError: the launch folder cannot be written.
        """
        for name in _REPORTS:
            self._report(os.path.join(self._folder, name), name)
        for name in _names(os.path.join(self._folder, attempt_files.OPEN_RUNS)):
            self._report(os.path.join(self._folder, attempt_files.OPEN_RUNS, name), OPEN_RUN)
        for rank in _names(os.path.join(self._run_dir, "ranks")):
            self._rank(os.path.join("ranks", rank))
        log = _tail(os.path.join(self._run_dir, LOG))
        if log:
            self._put(LOG, self._hide(log).encode())
        return self._output(os.path.join(self._run_dir, output))

    def finish(self, **facts: object) -> None:
        """Mark the upload as complete, with the sizes and digests of files, the index of parts, and
        where what is too large can be written. Raises OSError."""
        masked = {"masked": self._masked} if self._masked else {}
        files = {"files": self._sizes, "sha256": self._digests, "parts": self._parts}
        index = attempt_files.encode(
            {"v": 1, **masked, **facts, **files, "large_files": self._platform.large_files}
        )
        self._retry(DONE, lambda path: self._write(path, BytesIO(index), len(index)))

    def _rank(self, folder: str) -> None:
        self._result(folder)
        masked = os.path.join(folder, _SHOWN)
        if os.path.lexists(os.path.join(self._run_dir, masked)):
            self._copy(os.path.join(self._run_dir, masked), masked)
            self._masked.append(int(os.path.basename(folder)))
        for restart in _names(os.path.join(self._run_dir, folder)):
            if restart.isdigit():
                path = os.path.join(folder, restart)
                self._error(os.path.join(self._run_dir, path), path)

    def _result(self, folder: str) -> None:
        """Upload what a rank returned, or say that it is too large."""
        paths = [os.path.join(self._run_dir, folder, name) for name in (_PICKLE, _VALUE)]
        total = sum(os.path.getsize(path) for path in paths if os.path.exists(path))
        if total <= self._room:
            self._room -= total
            for path in paths:
                self._copy(path, os.path.join(folder, os.path.basename(path)))
            return
        rank, large = os.path.basename(folder), size(total)
        say(
            f"what rank {rank} returned ({large}) is not uploaded: the limit is {_WHOLE} for the "
            f"results of a node; write large values to {self._platform.large_files}"
        )
        text = f"<{large}, left on its node: the limit is {_WHOLE} for the results of a node>"
        value = {"pickle": _PICKLE, "repr": text}
        self._put(os.path.join(folder, _VALUE), attempt_files.encode(value))

    def _error(self, source: str, target: str) -> None:
        """Upload the record of a failure. That of torch's `@record` may have secrets."""
        error = attempt_files.read_json(source, "error.json")
        if error is not None:
            hidden = _hidden(error, self._hide)
            self._put(os.path.join(target, "error.json"), json.dumps(hidden).encode())
        self._copy(os.path.join(source, "error.pkl"), os.path.join(target, "error.pkl"))

    def _report(self, source: str, name: str) -> None:
        """Upload a file with one JSON object in each line, after a checksum in the log of
        events."""
        try:
            with open(source, encoding="utf-8", errors="replace") as file:
                self._put(name, b"".join(self._line(line) for line in file))
        except FileNotFoundError:
            return

    def _line(self, line: str) -> bytes:
        start = line.find("{")
        try:
            report = json.loads(line[max(start, 0) :])
        except ValueError:  # cut short when the node ran out of disk
            return self._hide(line).encode()
        body = attempt_files.encode(_hidden(report, self._hide))
        return (b"%08x " % crc32(body) if start > 0 else b"") + body + b"\n"

    def _output(self, folder: str) -> list[str]:
        """Upload the smallest files first, so that the fewest stay."""
        room, most, rest, over, over_size = MOST_BYTES, self._platform.most_files, [], [], 0
        for number, (length, path) in enumerate(sorted(_files(folder))):
            room -= length
            if room < 0 or number >= most:
                over.append(path)
                over_size += length
                continue
            try:
                self._copy(os.path.join(folder, path), os.path.join("output", path))
            except OSError as error:
                say(f"`{path}` of SGPU_OUTPUT_DIR cannot be uploaded: {error.strerror}")
                rest.append(path)
        if over:
            say(
                f"{len(over):,} files of SGPU_OUTPUT_DIR ({size(over_size)})"
                f" are not uploaded, such as `{over[-1]}`: the limit is {most:,} files of"
                f" {_WHOLE} in all; write large ones to {self._platform.large_files}"
            )
        return rest + over

    def _copy(self, source: str, target: str) -> None:
        if os.path.exists(source):
            with open(source, "rb") as file:
                self._store(target, file, os.fstat(file.fileno()).st_size)

    def _put(self, target: str, data: bytes) -> None:
        self._store(target, BytesIO(data), len(data))

    def _store(self, target: str, file: BinaryIO, size: int) -> None:
        """Write a file, in parts where it is large."""
        if self._part is None or size <= self._part:
            digest = self._retry(target, lambda path: self._write(path, file, size))
            self._sizes[target], self._digests[target] = size, digest
            return
        digests: list[str] = []
        folder = os.path.join(_PARTS, str(len(self._parts)))
        for number, start in enumerate(range(0, size, self._part)):
            length = min(self._part, size - start)
            write = partial(self._write, file=file, size=length, start=start)
            digests.append(self._retry(os.path.join(folder, str(number)), write))
        index = {"bytes": size, "part": self._part, "folder": folder, "sha256": digests}
        self._parts[target] = index

    def _retry(self, target: str, make: Callable[[str], str]) -> str:
        """Make a file, and try again after errors: the launch folder is on a remote file system.
        Permanent errors are raised at once, since GPUs are paid for. Returns what `make` does."""
        path = os.path.join(self._target, target)
        pause = _PAUSE
        while True:
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                return make(path)
            except OSError as error:
                if self._patience < pause or error.errno in _PERMANENT:
                    raise
                time.sleep(pause)
                self._patience -= pause
                pause *= 2

    def _write(self, path: str, file: BinaryIO, size: int, start: int = 0) -> str:
        """Write `size` bytes of `file` from `start` on, all of them or none; return their
        SHA-256."""
        partial = os.path.join(self._target, _PARTIAL)
        digest = _copy_bytes(partial, file, size, start)
        try:
            os.replace(partial, path)
        except OSError as error:
            if error.errno not in _NO_RENAME:
                raise
            # Nobody promises that the mount of a platform renames files.
            os.unlink(partial)
            return _copy_bytes(path, file, size, start)
        return digest


def _copy_bytes(path: str, file: BinaryIO, size: int, start: int) -> str:
    """Write `size` bytes of `file` from `start` on; return their SHA-256."""
    hashed = hashlib.sha256()
    file.seek(start)
    with open(path, "wb") as target:
        while size and (chunk := file.read(min(size, _CHUNK))):
            hashed.update(chunk)
            target.write(chunk)
            size -= len(chunk)
    return hashed.hexdigest()


def _hidden(value: object, hide: Callable[[str], str]) -> object:
    """Mask the values of a report, but neither its keys nor the words that the agent chooses: a
    password may be `failed`."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, list):
        return [_hidden(one, hide) for one in value]
    if isinstance(value, dict):
        return {
            name: one if name in _OWN_WORDS else _hidden(one, hide) for name, one in value.items()
        }
    return value


def _tail(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_TAIL))
            return file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _files(folder: str) -> Iterator[tuple[int, str]]:
    """Yield sizes and relative paths of regular files. Links may lead anywhere, and are ignored."""
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode):
                yield status.st_size, os.path.relpath(path, folder)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def read_done(folder: str) -> dict[str, Any] | None:
    """Return what a node said last in its folder; None if it has not uploaded all."""
    return attempt_files.read_json(folder, DONE, limit=_MOST_INDEX)


def await_others(target: str, nodes: int, stopping: StopRequest) -> None:
    """Wait until all nodes of an attempt have uploaded, or until this one is asked to stop.

    A platform stops all nodes once the first one fails, so a node that failed waits here.

    Args:
        target: the folder of this node's upload: `…/node_K`.
    """
    above = os.path.dirname(target)
    folders = [os.path.join(above, f"node_{number}") for number in range(nodes)]
    deadline = time.monotonic() + _NODE_PATIENCE
    while not all(read_done(folder) for folder in folders):
        if stopping.asked or time.monotonic() > deadline:
            return
        stopping.wait(_LOOK)
