"""Uploads what a run leaves on a node to its launch folder: nothing else outlives the node.

First the results of ranks, what they used, and the files in SGPU_OUTPUT_DIR, which are not changed,
then the report (`node_report`), which names them. Reports of the agent and the ranks are without
the values of secrets. The results of all ranks of a node are at most `MOST_BYTES`, and so are its
files: what is more ends with the node.

If their readers cannot read large files, these are written in parts: `parts/K/J` is part J of the
K-th of them. A file is written beside its place and renamed. What cannot be uploaded keeps back
neither the rest nor the report, which says why.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import time
from binascii import crc32
from contextlib import suppress
from functools import partial
from io import BytesIO

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.attempt.monitor_files import SERIES
from sgpu_decl.agent.node.agent_process import LOG
from sgpu_decl.agent.node.log_forwarding import say
from sgpu_decl.agent.node.node_report import REPORT, files_below, read_report, seal
from sgpu_decl.agent.notices.notice_process import read_notices
from sgpu_decl.agent.system.byte_size import size
from sgpu_decl.content.output_pieces import OUTPUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from sgpu_decl.agent.node.platform import PlatformTable
    from sgpu_decl.agent.node.stop_request import StopRequest

NOT_UPLOADED = 74  # sysexits.h: EX_IOERR
MOST_BYTES = 512_000_000
_WHOLE = size(MOST_BYTES)
_PATIENCE = 30.0  # seconds between tries, for all files together
_PAUSE = 0.5  # seconds, doubled for each try
_NO_RENAME = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EXDEV)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_PERMANENT = (*_FULL, errno.EROFS, errno.ENOTDIR, errno.EEXIST)
_LOG_TAIL = 64 << 10
_OWN_WORDS = ("state", "class", "kind", "blame", "by", "event", "status")
_VALUE, _PICKLE = "output.json", "output.pkl"
_SHOWN = "output.shown.json"
_CHUNK = 1 << 20
_NODE_PATIENCE = 20.0  # seconds: another node may be gone, and its files appear here late
_LOOK = 0.1  # seconds between two looks at the other nodes
_PARTS = "parts"
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
        self._files: dict[str, dict[str, object]] = {}
        self._in_parts = 0  # files
        self._left: list[str] = []
        self._incomplete: str | None = None
        self._run_dir = run_dir
        self._folder = folder
        self._target = target
        self._hide = hide
        self._patience = _PATIENCE
        self._room = MOST_BYTES  # for results
        self._masked: list[int] = []  # ranks whose results have values of secrets

    def upload(self, output: str, *, exit_code: int, run_id: str | None = None) -> int:
        """Upload the results of ranks, the files in the folder `output`, and the report; return the
        exit code of this node, which is another one if results could not be uploaded.

        Raises:
            OSError: the report cannot be written.
        """
        for rank in _names(os.path.join(self._run_dir, "ranks")):
            self._try(f"what rank {rank} returned", partial(self._rank, f"ranks/{rank}"))
        self._try("the log of events", self._events)
        self._try("the log of the agent", self._log)
        if self._incomplete is not None:
            exit_code = exit_code or NOT_UPLOADED
        with suppress(OSError):  # nobody needs it to go on
            self._copy(os.path.join(self._folder, SERIES), SERIES)
        self._output(os.path.join(self._run_dir, output))
        outcome = attempt_files.read_json(self._folder, attempt_files.OUTCOME)
        if outcome is not None:
            (outcome.get("first_cause") or {}).pop("stacks", None)  # their files end with the node
            if notices := read_notices(self._folder):
                outcome["notices"] = notices
        self._patience = _PATIENCE
        while True:
            report = seal(
                outcome=_hidden(outcome, self._hide),
                exit_code=exit_code,
                mlflow_run_id=run_id,
                open_run=bool(_names(os.path.join(self._folder, attempt_files.OPEN_RUNS))),
                files=self._files,
                left=self._left,
                incomplete=self._incomplete,
                large_files=self._platform.large_files,
                masked=self._masked,
            )
            try:
                write = partial(self._write, file=BytesIO(report), size=len(report))
                self._retry(REPORT, write)
            except OSError as error:
                if error.errno not in _FULL or not self._give_room():
                    raise
                self._incomplete = self._incomplete or f"the report: {error.strerror}"
            else:
                return exit_code

    def _try(self, name: str, upload: Callable[[], None]) -> bool:
        """Upload something; return whether that was possible."""
        try:
            upload()
        except OSError as error:
            say(f"{name} cannot be uploaded: {error.strerror}")
            self._incomplete = self._incomplete or f"{name}: {error.strerror}"
            return False
        return True

    def _give_room(self) -> bool:
        """Delete the largest file of the output that was uploaded: the report counts for more.
        Return whether there was one."""
        name, file = next(reversed(self._files.items()), ("", {}))
        if not name.startswith(OUTPUT):
            return False
        del self._files[name]
        path = os.path.join(self._target, str(file.get("folder", name)))
        shutil.rmtree(path) if "folder" in file else os.unlink(path)
        self._left.append(name[len(OUTPUT) :])
        return True

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

    def _events(self) -> None:
        """Upload the events: in each line a JSON object, after a checksum."""
        path = os.path.join(self._folder, attempt_files.EVENTS)
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                self._put(attempt_files.EVENTS, b"".join(self._line(line) for line in file))

    def _log(self) -> None:
        log = _tail(os.path.join(self._run_dir, LOG))
        if log:
            self._put(LOG, self._hide(log).encode())

    def _line(self, line: str) -> bytes:
        start = line.find("{")
        try:
            report = json.loads(line[max(start, 0) :])
        except ValueError:  # cut short when the node ran out of disk
            return self._hide(line).encode()
        body = attempt_files.encode(_hidden(report, self._hide))
        return (b"%08x " % crc32(body) if start > 0 else b"") + body + b"\n"

    def _output(self, folder: str) -> None:
        """Upload the smallest files first, so that the fewest stay."""
        room, most, over, over_size = MOST_BYTES, self._platform.most_files, [], 0
        files = sorted(files_below(folder), key=lambda file: file[::-1])  # by size
        for number, (path, length) in enumerate(files):
            room -= length
            if room < 0 or number >= most:
                over.append(path)
                over_size += length
                continue
            copy = partial(self._copy, os.path.join(folder, path), f"{OUTPUT}{path}")
            if not self._try(f"`{path}` of SGPU_OUTPUT_DIR", copy):
                self._left.append(path)
        if over:
            say(
                f"{len(over):,} files of SGPU_OUTPUT_DIR ({size(over_size)})"
                f" are not uploaded, such as `{over[-1]}`: the limit is {most:,} files of"
                f" {_WHOLE} in all; write large ones to {self._platform.large_files}"
            )
        self._left += over

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
            self._files[target] = {"bytes": size, "sha256": digest}
            return
        digests: list[str] = []
        folder = f"{_PARTS}/{self._in_parts}"
        self._in_parts += 1
        try:
            for number, start in enumerate(range(0, size, self._part)):
                length = min(self._part, size - start)
                write = partial(self._write, file=file, size=length, start=start)
                digests.append(self._retry(f"{folder}/{number}", write))
        except OSError:
            shutil.rmtree(os.path.join(self._target, folder), ignore_errors=True)
            raise
        parts = {"part": self._part, "folder": folder}
        self._files[target] = {"bytes": size, **parts, "sha256": digests}

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
        try:
            digest = _copy_bytes(partial, file, size, start)
            os.replace(partial, path)
        except OSError as error:
            with suppress(OSError):
                os.unlink(partial)  # a full disk has room again
            if error.errno not in _NO_RENAME:
                raise
            # Nobody promises that the mount of a platform renames files.
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


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def await_others(target: str, nodes: int, stopping: StopRequest) -> None:
    """Wait until all nodes of an attempt have uploaded, or until this one is asked to stop.

    A platform stops all nodes once the first one fails, so a node that failed waits here.

    Args:
        target: the folder of this node's upload: `…/node_K`.
    """
    above = os.path.dirname(target)
    folders = [os.path.join(above, f"node_{number}") for number in range(nodes)]
    deadline = time.monotonic() + _NODE_PATIENCE
    while not all(map(read_report, folders)):
        if stopping.asked or time.monotonic() > deadline:
            return
        stopping.wait(_LOOK)
