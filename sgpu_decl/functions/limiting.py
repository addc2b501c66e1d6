"""At most so many remote calls at once: on a backend that has no queue of its own, callers wait."""

import time
from typing import TYPE_CHECKING

from sgpu_decl.functions.following import say
from sgpu_decl.model.plan import Plan
from sgpu_decl.planning.capabilities import TODAY
from sgpu_decl.views.terminal import count

if TYPE_CHECKING:
    from sgpu_decl.api import Session

__all__ = ["MOST_CALLS", "await_room"]

MOST_CALLS = 5
REST = 1.0  # seconds between two looks


def await_room(session: "Session", plan: Plan, limit: int | None) -> bool:
    """Wait until fewer calls than `limit` are active where a plan launches one.

    Returns:
        Whether it had to wait: a plan is old then.
    """
    (backend,) = {change.backend for change in plan.changes if change.launches}
    if limit is None or TODAY[backend].queues:
        return False
    waited = False
    while (active := session.runs.active_calls(backend)) >= limit:
        if not waited:
            say(f"waiting: {count(active, 'call')} active, of {limit} at once")
        waited = True
        time.sleep(REST)
    return waited
