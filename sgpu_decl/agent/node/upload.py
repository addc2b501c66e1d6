"""What a run leaves on a node, brought to its launch folder: that is all that outlives the node.

Values of secrets are left out of what the agent and the ranks report; what ranks return, and what
they put into SGPU_OUTPUT_DIR, is theirs.

Where whoever fetches them cannot read large files, these are written in parts: `parts/K/J` is
part J of the K-th of them, and `done` has the index of all parts.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import time
from functools import partial
from io import BytesIO

from sgpu_decl.agent import attempt_files
from sgpu_decl.agent.node.agent_process import LOG
from sgpu_decl.agent.node.log_forwarding import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

__all__ = ["DONE", "MOST_BYTES", "MOST_FILES", "NodeUpload"]

DONE = "done"
MOST_BYTES = 512 << 20
MOST_FILES = 1_000
_PATIENCE = 30.0  # seconds, spent on waiting between tries, of all files together
_PAUSE = 0.5  # seconds, doubled for each try
_LASTING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOTDIR, errno.EEXIST)
_LOG_TAIL = 64 << 10
_REPORTS = (attempt_files.OUTCOME, attempt_files.STATUS, attempt_files.EVENTS)
_RETURNED = ("output.json", "output.pkl")
_SHOWN = "output.shown.json"
_CHUNK = 1 << 20
_PARTS = "parts"


class NodeUpload:
    """From the run's folder `run_dir`, with the agent's records in `folder`, to `target`, which is
    made. `hide` takes the values of secrets out of a text. A file larger than `part` bytes is
    written in parts of that size; None writes every file whole."""

    def __init__(
        self,
        run_dir: str,
        folder: str,
        target: str,
        hide: Callable[[str], str],
        *,
        part: int | None = None,
    ) -> None:
        self._part = part
        self._split: dict[str, dict[str, object]] = {}
        self._run_dir = run_dir
        self._folder = folder
        self._target = target
        self._hide = hide
        self._patience = _PATIENCE
        self._masked: list[int] = []  # ranks whose results hold values of secrets

    def bring(self, output: str) -> list[str]:
        """Bring back the reports, what ranks returned, and what lies in the folder `output`;
        return the names of what was left there.

        Raises:
            OSError: the launch folder does not take what ranks returned.
        """
        for name in _REPORTS:
            self._report(os.path.join(self._folder, name), name)
        for rank in _names(os.path.join(self._run_dir, "ranks")):
            self._rank(os.path.join("ranks", rank))
        log = _tail(os.path.join(self._run_dir, LOG))
        if log:
            self._put(LOG, self._hide(log).encode())
        return self._output(os.path.join(self._run_dir, output))

    def finish(self, **facts: object) -> None:
        """Say that all is there, and which files are in parts. Raises OSError."""
        masked = {"masked": self._masked} if self._masked else {}
        done = attempt_files.encode({"v": 1, **masked, **facts, "parts": self._split})
        self._bring(DONE, lambda path: _write(path, BytesIO(done), len(done)))

    def _rank(self, folder: str) -> None:
        for name in _RETURNED:
            self._copy(os.path.join(self._run_dir, folder, name), os.path.join(folder, name))
        shown = os.path.join(folder, _SHOWN)
        if os.path.lexists(os.path.join(self._run_dir, shown)):
            self._copy(os.path.join(self._run_dir, shown), shown)
            self._masked.append(int(os.path.basename(folder)))
        for restart in _names(os.path.join(self._run_dir, folder)):
            if restart.isdigit():
                here = os.path.join(folder, restart)
                self._error(os.path.join(self._run_dir, here), here)

    def _error(self, source: str, target: str) -> None:
        """What a rank left of its failure. torch's `@record` writes such a file too, and knows of
        no secrets."""
        error = attempt_files.read_json(source, "error.json")
        if error is not None:
            hidden = _hidden(error, self._hide)
            self._put(os.path.join(target, "error.json"), json.dumps(hidden).encode())
        self._copy(os.path.join(source, "error.pkl"), os.path.join(target, "error.pkl"))

    def _report(self, source: str, name: str) -> None:
        try:
            with open(source, encoding="utf-8", errors="replace") as file:
                self._put(name, self._hide(file.read()).encode())
        except FileNotFoundError:
            return

    def _output(self, folder: str) -> list[str]:
        """The smallest files first: of those that are too many or too large, the fewest stay."""
        found = sorted(_files(folder))
        room, left, much = MOST_BYTES, [], 0
        for number, (size, path) in enumerate(found):
            room -= size
            if room < 0 or number >= MOST_FILES:
                left.append(path)
                much += size
                continue
            try:
                self._copy(os.path.join(folder, path), os.path.join("output", path))
            except OSError as error:
                say(f"`{path}` of SGPU_OUTPUT_DIR cannot be brought back: {error.strerror}")
                left.append(path)
        if much:
            say(
                f"{len(left)} files of SGPU_OUTPUT_DIR ({much / 1e6:,.0f} MB) are not brought back,"
                f" such as `{left[-1]}`: {MOST_FILES:,} files of {MOST_BYTES >> 20} MiB in all are;"
                " write large ones to /Volumes"
            )
        return left

    def _copy(self, source: str, target: str) -> None:
        if os.path.exists(source):
            with open(source, "rb") as file:
                self._store(target, file, os.fstat(file.fileno()).st_size)

    def _put(self, target: str, data: bytes) -> None:
        self._store(target, BytesIO(data), len(data))

    def _store(self, target: str, file: BinaryIO, size: int) -> None:
        """Write a file, in parts where it is large."""
        if self._part is None or size <= self._part:
            self._bring(target, lambda path: _write(path, file, size))
            return
        digests: list[str] = []
        folder = os.path.join(_PARTS, str(len(self._split)))
        for number, start in enumerate(range(0, size, self._part)):
            length = min(self._part, size - start)
            write = partial(_write, file=file, size=length, start=start)
            digests.append(self._bring(os.path.join(folder, str(number)), write))
        index = {"bytes": size, "part": self._part, "folder": folder, "sha256": digests}
        self._split[target] = index

    def _bring(self, target: str, make: Callable[[str], str]) -> str:
        """Make a file, with patience: the launch folder is on a file system far away. What no
        waiting helps against is told at once, while GPUs are paid for. Returns what `make` does."""
        path = os.path.join(self._target, target)
        pause = _PAUSE
        while True:
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                return make(path)
            except OSError as error:
                if self._patience < pause or error.errno in _LASTING:
                    raise
                time.sleep(pause)
                self._patience -= pause
                pause *= 2


def _write(path: str, file: BinaryIO, size: int, start: int = 0) -> str:
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
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, list):
        return [_hidden(one, hide) for one in value]
    if isinstance(value, dict):
        return {hide(name): _hidden(one, hide) for name, one in value.items()}
    return value


def _tail(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_TAIL))
            return file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _files(folder: str) -> Iterator[tuple[int, str]]:
    """Sizes and relative paths of regular files; links may lead anywhere, and are passed over."""
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            found = os.lstat(path)
            if stat.S_ISREG(found.st_mode):
                yield found.st_size, os.path.relpath(path, folder)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
