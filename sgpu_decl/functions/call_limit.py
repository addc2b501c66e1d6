"""The limit of remote calls at once, for backends without a queue: callers wait here."""

import time
from typing import TYPE_CHECKING

from sgpu_decl.functions.call_follower import say
from sgpu_decl.model.backend_kinds import kind_named
from sgpu_decl.model.plan import Change, Plan
from sgpu_decl.views.terminal import count

if TYPE_CHECKING:
    from sgpu_decl.api import Session

MOST_CALLS = 5
REST = 1.0  # seconds between two looks


def await_room(session: "Session", plan: Plan, limit: int | None) -> bool:
    """Wait until fewer calls are active on the backend of a plan than its `max_parallel` says, or
    `limit` if it has none.

    Returns:
        Whether it had to wait, which makes the plan old.
    """
    (launch,) = (change for change in plan.changes if change.launches)
    backend = launch.backend
    most = _declared(launch) or limit
    if most is None or kind_named(backend).capabilities.queues:
        return False
    waited = False
    while (active := session.runs.active_calls(backend)) >= most:
        if not waited:
            say(f"waiting: {count(active, 'call')} active, of {most} at once")
        waited = True
        time.sleep(REST)
    return waited


def _declared(change: Change) -> int | None:
    """The `max_parallel` of what is launched."""
    limit = change.launch.inputs.spec.fields.get("max_parallel") if change.launch else None
    return limit if isinstance(limit, int) else None
