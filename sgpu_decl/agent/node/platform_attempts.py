"""Attempts of the platform at a launch: which this is, and what earlier ones have settled.

The platform starts the command again on new nodes when it failed (`max_retries`), and tells nodes
neither that it does nor how often it did. What nodes brought back tells both: `back/N/node_K/`.
Node 0 takes the next free number when it begins, by making the folder. The other nodes look for it
when their ranks have ended, long after that: it is the highest there is, unless they brought
something back to that one before; then it has not become visible here.

A job launches its run again and again from the same folder, one launch after the other, and nodes
are not told which they are of. An attempt is of the same launch as the one before it unless that
was the last which the platform would have made: it succeeded, it was told to stop, or the platform
had started it as often as it does. A wrong guess, after a launch that somebody ended between two
attempts, costs the next launch its first attempts and never the last.
"""

from __future__ import annotations

import os
import shutil

from sgpu_decl.agent import attempt_files
from sgpu_decl.agent.verdict import blames_the_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["KEPT", "PlatformAttempts", "settled"]

KEPT = 20
"""So many attempts of a job are kept, with what they brought back."""

_FIRST = "first"


class PlatformAttempts:
    """Those whose nodes brought something back to a folder.

    `most` says how often the platform starts a launch, where those of a job share the folder; None
    for the folder of one launch.
    """

    def __init__(self, folder: str, *, most: int | None = None) -> None:
        self._folder = folder
        self._most = most

    def look(self) -> tuple[dict[str, Any] | None, int]:
        """Return the outcome of the last attempt, None if it was lost with its node 0 or if there
        was none; and how often ranks were started in all of them.

        A node that looks later than node 0 takes this attempt itself for a lost one, and goes on;
        as it does where it sees nothing yet. Node 0 alone leaves without a trace.
        """
        outcome, used = None, 0
        for number in self._of_this_launch():
            outcome = attempt_files.read_json(self._path(number, 0), attempt_files.OUTCOME)
            used = max(used, outcome["restart"]) + 1 if outcome else used + 1
        return outcome, used

    def claim(self) -> str:
        """Make the folder of this attempt, as node 0; return that of the node in it. Of a job, old
        ones go.

        Raises:
            OSError: the launch folder cannot be written.
        """
        launch = self._of_this_launch()
        number = max(self._numbers(), default=-1) + 1
        while True:
            try:
                os.makedirs(os.path.join(self._folder, str(number)))
            except FileExistsError:
                number += 1
            else:
                break
        if self._most is not None:
            _write(self._folder_of(number), _FIRST, {"first": launch[0] if launch else number})
            for old in self._numbers():
                if old <= number - KEPT:
                    shutil.rmtree(self._folder_of(old), ignore_errors=True)
        return self._path(number, 0)

    def repeat(self, outcome: Mapping[str, Any]) -> None:
        """Let this attempt, as node 0, count as one that ended as the one before it: of a job the
        attempts of a launch are counted.

        Raises:
            OSError: the launch folder cannot be written.
        """
        if self._most is not None:
            folder = self.claim()
            os.makedirs(folder)
            _write(folder, attempt_files.OUTCOME, outcome)

    def join(self, node: int) -> str:
        """Return the folder of another node than 0 in this attempt."""
        number = max(self._numbers(), default=0)
        if os.path.exists(self._path(number, node)):
            number += 1
        return self._path(number, node)

    def _of_this_launch(self) -> list[int]:
        """The attempts that were made before at what is to be started now."""
        numbers = self._numbers()
        if self._most is None or not numbers:
            return numbers
        said = attempt_files.read_json(self._folder_of(numbers[-1]), _FIRST) or {}
        launch = [number for number in numbers if number >= said.get("first", numbers[-1])]
        last = attempt_files.read_json(self._path(launch[-1], 0), attempt_files.OUTCOME)
        over = last is not None and last["state"] in ("succeeded", "cancelled")
        return [] if over or len(launch) >= self._most else launch

    def _path(self, number: int, node: int) -> str:
        return os.path.join(self._folder_of(number), f"node_{node}")

    def _folder_of(self, number: int) -> str:
        return os.path.join(self._folder, str(number))

    def _numbers(self) -> list[int]:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return sorted(int(name) for name in names if name.isdigit())


def _write(folder: str, name: str, value: Mapping[str, Any]) -> None:
    """The folder is on a file system far away, which need not know links."""
    with open(os.path.join(folder, name), "wb") as file:
        file.write(attempt_files.encode(value))


def settled(outcome: Mapping[str, Any] | None, retry: Mapping[str, Any], used: int) -> int | None:
    """Return the exit code of a run that is not to be started again; None if it is.

    A platform that starts an attempt after one that was told to stop had stopped that itself, to
    give its nodes to somebody else: it is not for us to refuse.

    Args:
        outcome: of the last attempt.
        retry: when ranks are started again, and how often.
        used: how often they were started.
    """
    if outcome is None or outcome["state"] == "cancelled":
        return None
    if outcome["state"] == "succeeded":
        return 0
    kind = "error" if blames_the_user(outcome["class"]) else "infra"
    if kind in retry["on"] and used <= retry["max"]:
        return None
    return int(outcome["exit_code"])
