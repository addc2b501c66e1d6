"""The attempts of the platform at a launch: the number of this one, and what earlier ones settled.

The platform starts a failed command again on new nodes (`max_retries`), and does not tell nodes
that it does, or how often. The uploads of nodes, `back/N/node_K/`, show both. Node 0 takes the next
free number when it begins, by making the folder. The other nodes look for it when their ranks have
ended, long after that: it is the highest number. If they have uploaded to that folder before, the
new one is not visible yet, and it is the next number.

A job launches its run many times from the same folder, one launch after the other, and nodes do not
know their launch. An attempt belongs to the same launch as the one before, unless that was the last
of its launch: it succeeded, it was asked to stop, or the platform had started it as often as it
does. If somebody ended a launch between two attempts, this is wrong: the next launch then has fewer
attempts, but never none.
"""

from __future__ import annotations

import os
import shutil

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.attempt.attempt_files import encode, write_atomic
from sgpu_decl.agent.node.node_report import REPORT, read_report, seal
from sgpu_decl.agent.retry_rule import CANCELLED, why_ended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

KEPT = 20
"""So many attempts of a job are kept, with their uploads."""

_FIRST = "first"


class PlatformAttempts:
    """The attempts whose nodes uploaded to a folder.

    `most` is how often the platform starts a launch, if the launches of a job share the folder;
    None for the folder of one launch.
    """

    def __init__(self, folder: str, *, most: int | None = None) -> None:
        self._folder = folder
        self._most = most

    def look(self) -> tuple[dict[str, Any] | None, int]:
        """Return the outcome of the last attempt, and how often ranks were started in all of them.

        There is no outcome before the first attempt, and if the last one was lost with its node 0.
        A node that looks later than node 0 takes this attempt for a lost one, and goes on, as it
        does if it sees nothing yet.
        """
        outcome, starts = None, 0
        for number in self._of_this_launch():
            outcome = self._outcome(number)
            starts = max(starts, outcome["restart"]) + 1 if outcome else starts + 1
        return outcome, starts

    def claim(self) -> str:
        """Make the folder of this attempt, as node 0; return that of the node in it. Old attempts
        of a job are deleted.

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
            first = {"first": launch[0] if launch else number}
            write_atomic(self._folder_of(number), _FIRST, encode(first))
            for old in self._numbers():
                if old <= number - KEPT:
                    shutil.rmtree(self._folder_of(old), ignore_errors=True)
        return self._path(number, 0)

    def repeat(self, outcome: Mapping[str, Any]) -> None:
        """Record this attempt, as node 0, with the outcome of the one before: the attempts of a
        job's launch are counted.

        Raises:
            OSError: the launch folder cannot be written.
        """
        if self._most is not None:
            folder = self.claim()
            os.makedirs(folder)
            report = seal(outcome=outcome, exit_code=outcome["exit_code"], files={})
            write_atomic(folder, REPORT, report)

    def join(self, node: int) -> str:
        """Return the folder of another node than 0 in this attempt."""
        number = max(self._numbers(), default=0)
        if os.path.exists(self._path(number, node)):
            number += 1
        return self._path(number, node)

    def _of_this_launch(self) -> list[int]:
        """Return the earlier attempts at the launch that starts now."""
        numbers = self._numbers()
        if self._most is None or not numbers:
            return numbers
        marker = attempt_files.read_json(self._folder_of(numbers[-1]), _FIRST) or {}
        launch = [number for number in numbers if number >= marker.get("first", numbers[-1])]
        last = self._outcome(launch[-1])
        over = last is not None and last["state"] in ("succeeded", "cancelled")
        return [] if over or len(launch) >= self._most else launch

    def _outcome(self, number: int) -> dict[str, Any] | None:
        return (read_report(self._path(number, 0)) or {}).get("outcome")

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


def why_settled(
    outcome: Mapping[str, Any] | None, retry: Mapping[str, Any], starts: int
) -> str | None:
    """Return why a run must not start again; None if it may.

    A cancelled run may: the platform itself had stopped it, to give its nodes to somebody else.

    Args:
        outcome: that of the last attempt.
        retry: when ranks start again, and how often.
        starts: how often they were started.
    """
    why = outcome and why_ended(outcome, retry, starts, other_nodes=True)
    return why if why and why != CANCELLED else None
