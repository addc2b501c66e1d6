"""The attempts of other runs that a launch comes after (`after`): its driver waits for them, before
it asks for nodes. Where there is a storage, it copies the outputs that its ranks read there;
otherwise `sent_files` sends them.

What the driver of an upstream wrote counts. One that was killed wrote no outcome: then Ray's job
says that it is gone.
"""

from __future__ import annotations

import time

from ray.exceptions import RaySystemError, RpcError

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.attempt.upstreams import listed, refusal
from sgpu_decl.agent.node.earlier_output import UpstreamFailed, await_output, copy_output
from sgpu_decl.agent.node.platform_attempts import PlatformAttempts
from sgpu_decl.backends.ray.cluster.job_verdict import ACTIVE, final_outcome, judge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Protocol

    from sgpu_decl.backends.ray.cluster.driver_status import DriverStatus

    class Jobs(Protocol):
        """What Ray says of jobs. Both raise RaySystemError or RpcError if it does not answer."""

        def find(self, token: str) -> Mapping[str, Any] | None: ...

        def node_lives(self, node: str) -> bool: ...


_POLL = 0.5  # seconds between two looks at files
_JOBS = 5.0  # seconds between two looks at the job of one that has not ended
_ENDED = ("succeeded", "failed", "cancelled", "lost")


def await_upstreams(
    upstreams: Sequence[Mapping[str, Any]],
    status: DriverStatus,
    jobs: Jobs,
    *,
    stopped: Callable[[], bool],
) -> bool:
    """Wait until all have succeeded, and what is read of them is there; False if the attempt was
    `stopped` meanwhile.

    Args:
        upstreams: of each its `name`, such as `train#8`; the `token` of its launch; `launch` and
            `back`, its folders; how many `nodes` it has; whether the attempt `waits` for it; and
            `output`, the folder that ranks read its output from, None if they do not.

    Raises:
        UpstreamFailed: one has not succeeded, or its output is gone or not whole.
    """
    waiting = [_Upstream(one, jobs) for one in upstreams if one["waits"]]
    while waiting:
        status.write(state="queued", waiting_for=listed([one.name for one in waiting]))
        if stopped():
            return False
        states = {one: one.look() for one in waiting}
        for one, state in states.items():
            if state not in (None, "succeeded"):
                raise UpstreamFailed("upstream_failed", refusal(one.name, str(state)))
        waiting = [one for one, state in states.items() if state is None]
        if waiting:
            time.sleep(_POLL)
    for upstream in upstreams:
        if upstream["output"] is not None and not await_output(
            upstream["name"],
            upstream["back"],
            nodes=upstream["nodes"],
            stopped=stopped,
            wait=time.sleep,
            say=attempt_files.say,
        ):
            return False
    status.write(waiting_for=None)
    return True


def copy_outputs(upstreams: Sequence[Mapping[str, Any]]) -> None:
    """Copy the outputs that are read to their folders, which are new. Raises UpstreamFailed."""
    for upstream in upstreams:
        if upstream["output"] is not None:
            copy_output(upstream["name"], upstream["back"], upstream["output"])


class _Upstream:
    """One attempt that is waited for, by the files of its driver and by its job."""

    def __init__(self, upstream: Mapping[str, Any], jobs: Jobs) -> None:
        self.name = str(upstream["name"])
        self._upstream = upstream
        self._jobs = jobs
        self._due = 0.0

    def look(self) -> str | None:
        """The state that it has ended in; None while it goes on, or if that is not known."""
        status = self._status()
        if status["state"] != "ended":
            if time.monotonic() < self._due:
                return None
            self._due = time.monotonic() + _JOBS
            try:
                status = {"outcome": self._judged()}
            except (RaySystemError, RpcError):
                return None
        state = str(status["outcome"]["state"])
        return state if state in _ENDED else None

    def _judged(self) -> Mapping[str, Any]:
        """What its job says, unless its driver has written an outcome."""
        job = self._jobs.find(self._upstream["token"])
        goes_on = job is not None and job["status"] in ACTIVE
        node = (job or {}).get("driver_node_id")
        alive = not goes_on or not node or self._jobs.node_lives(node)
        status = self._status()  # once more: the driver writes it before it ends
        if status["state"] == "ended":
            return dict(status["outcome"])
        outcome = None
        if not (goes_on and alive):
            brought = PlatformAttempts(self._upstream["back"]).look()[0]
            outcome = final_outcome(brought, status, self._upstream["retry"])
        return judge(job, status, outcome, driver_alive=alive, now=time.time())

    def _status(self) -> dict[str, Any]:
        """What its driver wrote last."""
        folder = self._upstream["launch"]
        return attempt_files.read_json(folder, attempt_files.STATUS) or {"state": "starting"}
