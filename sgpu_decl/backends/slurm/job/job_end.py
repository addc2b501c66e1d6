"""What becomes of a job once its nodes have ended: Slurm starts it again, or it ends.

| stop | why it did not end by itself |
|---|---|
| None | it did |
| cancelled | sgpu asked it to stop |
| signal | somebody else did, or Slurm, which says why |
| time | its time, or that of all links of its chain, was over |
| killed | the program of a node was killed |
| refused | a node could not begin, or what it comes after has failed |
"""

from __future__ import annotations

import signal
import subprocess
import time

from sgpu_decl.agent.attempt.attempt_files import stamp
from sgpu_decl.agent.node.platform_attempts import PlatformAttempts
from sgpu_decl.agent.retry_rule import starts_left, why_ended
from sgpu_decl.agent.system.folder_files import delete_path
from sgpu_decl.agent.system.plain_command import run_command
from sgpu_decl.backends.slurm.job.bootstrap import PAUSES
from sgpu_decl.backends.slurm.job.launch_files import (
    NOTE,
    VALUES,
    is_cancelled,
    write_file,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from sgpu_decl.backends.slurm.job.launch_files import JobLaunch
    from sgpu_decl.backends.slurm.job.node_step import StopSignal

# Seconds: Slurm may send `--signal` up to 60 s before it is due
# (https://slurm.schedmd.com/sbatch.html#OPT_signal).
_EARLY = 75.0


def conclude(
    launch: JobLaunch, note: dict[str, Any], stop: StopSignal, code: int, refused: str | None
) -> None:
    """Have Slurm start the job again, or end the launch. `code` is the exit code of the nodes,
    `refused` why one could not begin."""
    why = "killed" if code == 128 + signal.SIGKILL else None
    if refused is not None:
        why, note["refused"], note["class"] = "refused", refused, "staging_failed"
    elif stop.over:
        why = "time"
    elif stop.asked or is_cancelled(launch["folder"]):
        why = _why_asked(launch, note["job"], stop.asked)
    if why == "time":
        again = _next_link(launch, note, over=stop.over)
    else:
        again = why not in ("cancelled", "signal") and _starts_again(launch, note, why)
    if again:
        write_file(launch["folder"], NOTE, {**note, "state": "again"})
    if not (again and _requeue(note["job"])):
        end_launch(launch, note, code, why)


def end_launch(launch: JobLaunch, note: Mapping[str, Any], code: int, why: str | None) -> None:
    """Note the end. Slurm itself may start a job again that was stopped by a signal."""
    ended = {"state": "ended", "code": code, "stop": why, "ended_at": stamp()}
    write_file(launch["folder"], NOTE, {**note, **ended})
    if why != "signal" or not launch["again"]:
        delete_path(f"{launch['folder']}/{VALUES}")


def _why_asked(launch: JobLaunch, job: str, asked: float) -> str:
    """Why the job was asked to stop: by sgpu, by its time limit, or by somebody else."""
    if is_cancelled(launch["folder"]):
        return "cancelled"
    words = ["squeue", "--noheader", f"--jobs={job}", "--format=%T|%e"]
    try:
        _, said, _ = run_command(words, 30.0, add={"SLURM_TIME_FORMAT": "%s"})
        state, end = said.strip().split("|")
        due = int(end) - launch["lead"] - _EARLY
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return "signal"  # of a job without a limit, too
    # Slurm says itself why it ends a job that does not run any more.
    return "time" if state == "RUNNING" and asked >= due else "signal"


def _next_link(launch: JobLaunch, note: dict[str, Any], *, over: bool) -> bool:
    """Whether the job has another link, once the time of this one, or of all of them, is over."""
    note["links"] += 1
    if launch["links"] > 1:
        what = "its `timeout` is over" if over else "its job came to its time limit"
        note["why"] = f"{what}, in {note['links']} of {launch['links']} links (`chain`)"
    return not over and note["links"] < launch["links"]


def _starts_again(launch: JobLaunch, note: Mapping[str, Any], why: str | None) -> bool:
    """Whether other nodes may help, and `retry` allows it. Slurm itself does that only if it has
    taken the nodes away."""
    if not launch["again"]:
        return False
    outcome, starts = PlatformAttempts(launch["back"]).look()
    starts = max(starts, note["restart"] - note["links"] + 1)
    if why is not None or outcome is None:  # what its nodes say is not the cause
        return starts_left(launch["retry"], starts)
    return why_ended(outcome, launch["retry"], starts, other_nodes=True) is None


def _requeue(job: str) -> bool:
    """Have Slurm end this job, and start it again: https://slurm.schedmd.com/scontrol.html#OPT_requeue
    A controller that is away is asked again, until Slurm ends the job."""
    for pause in PAUSES:
        time.sleep(pause)
        if subprocess.run(["scontrol", "requeue", job], check=False).returncode == 0:
            return True
        if subprocess.run(["scontrol", "ping"], check=False, capture_output=True).returncode == 0:
            return False  # it refuses
    return False
