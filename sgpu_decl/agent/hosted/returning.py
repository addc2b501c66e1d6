"""What a run leaves on a node, brought to its launch folder: that is all that outlives the node.

Values of secrets are left out of what the agent and the ranks report; what ranks return, and what
they put into SGPU_OUTPUT_DIR, is theirs.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import time

from sgpu_decl.agent import records
from sgpu_decl.agent.hosted.attending import LOG
from sgpu_decl.agent.hosted.echoing import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["DONE", "MOST_BYTES", "MOST_FILES", "Returning"]

DONE = "done"
MOST_BYTES = 512 << 20
MOST_FILES = 1_000
_PATIENCE = 30.0  # seconds, spent on waiting between tries, of all files together
_PAUSE = 0.5  # seconds, doubled for each try
_LASTING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOTDIR, errno.EEXIST)
_LOG_TAIL = 64 << 10
_REPORTS = (records.OUTCOME, records.STATUS, records.EVENTS)
_RETURNED = ("output.json", "output.pkl")


class Returning:
    """From the run's folder `run_dir`, with the agent's records in `folder`, to `target`, which is
    made. `hide` takes the values of secrets out of a text."""

    def __init__(self, run_dir: str, folder: str, target: str, hide: Callable[[str], str]) -> None:
        self._run_dir = run_dir
        self._folder = folder
        self._target = target
        self._hide = hide
        self._patience = _PATIENCE

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
        """Say that all is there. Raises OSError."""
        self._put(DONE, records.encode({"v": 1, **facts}))

    def _rank(self, folder: str) -> None:
        for name in _RETURNED:
            self._copy(os.path.join(self._run_dir, folder, name), os.path.join(folder, name))
        for restart in _names(os.path.join(self._run_dir, folder)):
            if restart.isdigit():
                here = os.path.join(folder, restart)
                self._error(os.path.join(self._run_dir, here), here)

    def _error(self, source: str, target: str) -> None:
        """What a rank left of its failure. torch's `@record` writes such a file too, and knows of
        no secrets."""
        error = records.read_json(source, "error.json")
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
            self._bring(target, lambda path: shutil.copyfile(source, path))

    def _put(self, target: str, data: bytes) -> None:
        self._bring(target, lambda path: _write(path, data))

    def _bring(self, target: str, make: Callable[[str], object]) -> None:
        """Make a file, with patience: the launch folder is on a file system far away. What no
        waiting helps against is told at once, while GPUs are paid for."""
        path = os.path.join(self._target, target)
        pause = _PAUSE
        while True:
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                make(path)
            except OSError as error:
                if self._patience < pause or error.errno in _LASTING:
                    raise
                time.sleep(pause)
                self._patience -= pause
                pause *= 2
            else:
                return


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


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
