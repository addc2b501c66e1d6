"""The attempts that a launch comes after: its job waits for them before its nodes begin.

Slurm starts the job after those of its upstreams. But it is not asked for one that was forgotten,
and somebody may have changed that.
"""

from __future__ import annotations

import os
import subprocess
import time

from sgpu_decl.agent.attempt.attempt_files import say
from sgpu_decl.agent.attempt.upstreams import listed, refusal
from sgpu_decl.agent.node.earlier_output import UpstreamFailed, await_output, copy_output
from sgpu_decl.agent.system.folder_files import delete_path
from sgpu_decl.agent.system.plain_command import run_command
from sgpu_decl.backends.slurm.job.launch_files import CLAIM, NOTE, read_file, write_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from sgpu_decl.backends.slurm.job.launch_files import JobLaunch, Upstream

_POLL = 2.0  # seconds between two looks
_VISIBLE = 60.0  # seconds until this node sees what others wrote last


def await_upstreams(
    launch: JobLaunch, note: Mapping[str, Any], stopped: Callable[[], bool]
) -> None:
    """Wait until all have ended, and as they must; bring the outputs that ranks read. Return at
    once when the launch is `stopped`.

    Raises:
        UpstreamFailed: one has not succeeded, or its output is gone.
    """
    waiting = [_Upstream(one) for one in launch["upstreams"] if one["waits"]]
    noted: list[str] = []
    while not stopped():
        states = {one: one.look() for one in waiting}
        for one, state in states.items():
            if one.must_succeed and state not in (None, "succeeded"):
                raise UpstreamFailed("upstream_failed", refusal(one.name, str(state)))
        waiting = [one for one, state in states.items() if state is None]
        if not waiting:
            break
        names = [one.name for one in waiting]
        if names != noted:
            words = {"state": "waiting", "waiting_for": listed(names)}
            write_file(launch["folder"], NOTE, {**note, **words})
            noted = names
        time.sleep(_POLL)
    for upstream in launch["upstreams"]:
        name, back, output = upstream["name"], upstream["back"], upstream["output"]
        if output is None or os.path.exists(output):
            continue  # an earlier start has brought it
        if not await_output(
            name, back, nodes=upstream["nodes"], stopped=stopped, wait=time.sleep, say=say
        ):
            return
        draft = f"{output}.{os.environ['SLURM_JOB_ID']}"
        delete_path(draft)
        copy_output(name, back, draft)
        os.rename(draft, output)


class _Upstream:
    """One of them, by what its job wrote, and by what Slurm says of that."""

    def __init__(self, upstream: Upstream) -> None:
        self.name = upstream["name"]
        self.must_succeed = upstream["must_succeed"]
        self._upstream = upstream
        self._gone_since: float | None = None

    def look(self) -> str | None:
        """The state that it has ended in; None while it goes on, or if that is not known."""
        goes_on = None if self._end() else self._goes_on()
        note = self._end()  # it is written before the job ends
        if note:
            if note["stop"] is None:
                return "failed" if note["code"] else "succeeded"
            return "cancelled" if note["stop"] in ("cancelled", "signal") else "failed"
        if goes_on is not False:
            self._gone_since = None
            return None
        if not read_file(self._upstream["folder"], CLAIM):
            return "cancelled"  # before it began
        self._gone_since = self._gone_since or time.monotonic()
        return "lost" if time.monotonic() - self._gone_since > _VISIBLE else None

    def _end(self) -> dict[str, Any]:
        note = read_file(self._upstream["folder"], NOTE)
        return note if note.get("state") == "ended" else {}

    def _goes_on(self) -> bool | None:
        """Whether Slurm has a job of it that has not ended; None if Slurm does not answer."""
        job, task = self._upstream["job"], self._upstream["task"]
        words = ["squeue", "--noheader", "--array", f"--name={job}", "--format=%i"]
        try:
            code, said, _ = run_command(words, 60.0)
        except (OSError, subprocess.TimeoutExpired):
            return None
        jobs = said.split()
        if code:
            return None
        return task in jobs if task is not None else bool(jobs)
