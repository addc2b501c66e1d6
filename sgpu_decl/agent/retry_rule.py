"""Whether ranks start again after a failure, and when: the one rule, for the supervisor of ranks,
for the programs that a platform starts once more on other nodes, and for those that watch them."""

from __future__ import annotations

from sgpu_decl.agent.verdict import BLAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["is_final", "pause_before", "starts_again"]

_GONE = "upstream_failed"  # the output that it reads is gone, and stays so
_OF_A_NODE = "staging_failed"  # a node lacks something, which another may have
_LONGEST = 60.0


def starts_again(failure: str, retry: Mapping[str, Any], starts: int, *, other_nodes: bool) -> bool:
    """Whether `retry` covers a failure of this class.

    Args:
        starts: how often ranks were started.
        other_nodes: whether they would start on other nodes.
    """
    if failure == _GONE or (failure == _OF_A_NODE and not other_nodes):
        return False
    return BLAME[failure] in retry["on"] and starts <= retry["max"]


def is_final(failure: str) -> bool:
    """Whether other nodes do not help: the user's code failed, or what it reads is gone."""
    return BLAME[failure] == "error" or failure == _GONE


def pause_before(restart: int, retry: Mapping[str, Any]) -> float:
    """Seconds before that restart: `backoff` before the first, doubled for each further one up to a
    minute."""
    first = float(retry["backoff"])
    return min(first * 2.0 ** min(restart - 1, 32), max(first, _LONGEST))
