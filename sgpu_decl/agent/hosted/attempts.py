"""Attempts of the platform at one run: which this is, and what earlier ones have settled.

The platform starts the command again on new nodes when it failed (`max_retries`), and tells nodes
neither that it does nor how often it did. What nodes brought back tells both: `back/N/node_K/`.
Node 0 takes the next free number when it begins, by making the folder. The other nodes look for it
when their ranks have ended, long after that: it is the highest there is, unless they brought
something back to that one before; then it has not become visible here.
"""

from __future__ import annotations

import os

from sgpu_decl.agent import records
from sgpu_decl.agent.verdict import blames_the_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["Attempts", "settled"]


class Attempts:
    """Those whose nodes brought something back to a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def look(self) -> tuple[dict[str, Any] | None, int]:
        """Return the outcome of the last attempt, None if it was lost with its node 0 or if there
        was none; and how often ranks were started in all of them.

        A node that looks later than node 0 takes this attempt itself for a lost one, and goes on;
        as it does where it sees nothing yet. Node 0 alone leaves without a trace.
        """
        outcome, used = None, 0
        for number in self._numbers():
            outcome = records.read_json(self._path(number, 0), records.OUTCOME)
            used = max(used, outcome["restart"]) + 1 if outcome else used + 1
        return outcome, used

    def claim(self) -> str:
        """Make the folder of this attempt, as node 0; return that of the node in it.

        Raises:
            OSError: the launch folder cannot be written.
        """
        number = max(self._numbers(), default=-1) + 1
        while True:
            try:
                os.makedirs(os.path.join(self._folder, str(number)))
            except FileExistsError:
                number += 1
            else:
                return self._path(number, 0)

    def join(self, node: int) -> str:
        """Return the folder of another node than 0 in this attempt."""
        number = max(self._numbers(), default=0)
        if os.path.exists(self._path(number, node)):
            number += 1
        return self._path(number, node)

    def _path(self, number: int, node: int) -> str:
        return os.path.join(self._folder, str(number), f"node_{node}")

    def _numbers(self) -> list[int]:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return sorted(int(name) for name in names if name.isdigit())


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
