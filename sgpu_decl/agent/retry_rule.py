"""Whether ranks start again after an attempt has ended, where, and why not: the one rule. Who asks:

supervisor                    ranks on the nodes that are there
node.program                  a command that the platform has started once more, on other nodes
backends/ray/cluster          the driver of a run, which asks for other nodes
backends/remote               the status of a run, whose platform may bring other nodes
backends/databricks           how often the platform is to bring them
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

CAUSES = {
    "exception": ("error", True, True),
    "exit_code": ("error", True, True),
    "signal_self": ("error", True, True),
    "oom": ("error", True, True),
    "timeout": ("error", False, False),  # its time is over
    "hung": ("error", False, False),
    "launch_failed_user": ("error", True, True),
    "killed": ("infra", True, True),
    "launch_failed": ("infra", True, True),
    "node_lost": ("infra", True, True),  # here where a node of Ray is lost, and its machine lives
    "supervisor_lost": ("infra", False, True),
    "staging_failed": ("infra", False, True),  # a node lacks something, which another may have
    "capacity": ("infra", False, True),
    "preempted": ("infra", False, True),
    "platform": ("infra", True, True),
    "upstream_failed": ("infra", False, False),  # the output that it reads is gone, and stays so
}
"""Of each failure class: who is to blame, the user's code or input (`error`) or what it runs on
(`infra`), and whether a start may help on the same nodes, and on others."""

BLAME = {failure: blame for failure, (blame, _, _) in CAUSES.items()}
"""Who is to blame for each failure class. The next plan decides by it, too."""

SUCCEEDED = "it succeeded"
CANCELLED = "it was cancelled"
USELESS = "no further start helps"
NOT_COVERED = "`retry.on` does not cover its failure"
USED_UP = "`retry.max` allows no further start"

_LONGEST = 60.0


def why_ended(
    outcome: Mapping[str, Any], retry: Mapping[str, Any], starts: int = 0, *, other_nodes: bool
) -> str | None:
    """Why ranks do not start again after an outcome; None if they do.

    Other nodes are brought where `retry` covers failures of nodes. Where it covers both, ranks that
    failed by themselves start there, too, if their nodes were lost before they could start again.

    Args:
        outcome: its `state`, its `class` if it failed, and `restart`, how often ranks had been
            started before.
        starts: how often ranks were started, where more is known than the outcome says.
        other_nodes: whether they would start on other nodes.
    """
    if outcome["state"] in ("succeeded", "cancelled"):
        return SUCCEEDED if outcome["state"] == "succeeded" else CANCELLED
    blame, here, elsewhere = CAUSES.get(outcome["class"], ("error", False, False))
    if not (elsewhere if other_nodes else here):
        return USELESS
    if not {blame, "infra" if other_nodes else blame}.issubset(retry["on"]):
        return NOT_COVERED
    left = starts_left(retry, max(starts, int(outcome.get("restart") or 0) + 1))
    return None if left else USED_UP


def starts_left(retry: Mapping[str, Any], starts: int) -> bool:
    """Whether ranks that were started so often may start once more."""
    return bool(starts <= retry["max"])


def new_nodes(retry: Mapping[str, Any]) -> int:
    """How often other nodes may be brought at most."""
    return int(retry["max"]) if "infra" in retry["on"] else 0


def is_of_nodes(failure: str) -> bool:
    """Whether the nodes may be to blame, so that their platform may know more about a failure than
    the agent on them."""
    blame, _, elsewhere = CAUSES.get(failure, ("error", False, False))
    return blame == "infra" and elsewhere


def pause_before(restart: int, retry: Mapping[str, Any]) -> float:
    """Seconds before that restart: `backoff` before the first, doubled for each further one up to a
    minute."""
    first = float(retry["backoff"])
    return min(first * 2.0 ** min(restart - 1, 32), max(first, _LONGEST))
