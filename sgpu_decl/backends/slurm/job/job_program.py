"""The program of a job, in place of its script: it takes the launch, waits for what that comes
after, and has a program start on each node. Its note, `launch_files.NOTE`, has

    job, name     as the claim has them
    state         waiting, started, again (Slurm starts the job once more) or ended
    waiting_for   in words, while it waits
    restart       how often Slurm had started the job before
    links, spent  how often the time of the job was over, and for how many seconds nodes ran
    started_at    when nodes began for the first time
    ended_at      when it ended, with `code`, that of its nodes; `stop`, why it was stopped, in one
                  of the words of `job_end`; `why` or `refused`, that in a sentence; and `class`,
                  that of a failure
"""

from __future__ import annotations

import os
import signal
import time

from sgpu_decl.agent.attempt.attempt_files import say, stamp
from sgpu_decl.agent.host.ports import claim_port
from sgpu_decl.agent.node.earlier_output import UpstreamFailed
from sgpu_decl.agent.system.folder_files import delete_path
from sgpu_decl.agent.system.host_locks import host_lock_folder
from sgpu_decl.backends.slurm.job.awaited_jobs import await_upstreams
from sgpu_decl.backends.slurm.job.job_end import conclude, end_launch
from sgpu_decl.backends.slurm.job.launch_files import (
    NOTE,
    REFUSED,
    VALUES,
    claim,
    is_cancelled,
    read_file,
    write_file,
)
from sgpu_decl.backends.slurm.job.node_step import NodeStep, StopSignal
from sgpu_decl.backends.slurm.job.program_folder import own_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sgpu_decl.backends.slurm.job.launch_files import JobLaunch


def run_job(launch: JobLaunch, run: str) -> int:
    """Run a launch; return the exit code of the job. `run` is the folder of this program."""
    folder, stop = launch["folder"], StopSignal()
    own = {"job": _own_id(), "name": os.environ.get("SLURM_JOB_NAME", "")}
    taken = claim(folder, own)
    if taken != own:
        say(f"nothing to do: job {taken.get('job')} has this launch")
        return 0
    before = read_file(folder, NOTE)
    restart = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    note: dict[str, Any] = {**own, "restart": restart, "links": 0, "spent": 0.0}
    note |= {name: before[name] for name in ("links", "spent", "started_at") if name in before}
    own_folder(run)
    try:
        await_upstreams(launch, note, lambda: bool(stop.asked) or is_cancelled(folder))
    except UpstreamFailed as error:
        say(error.summary)
        note |= {"refused": error.summary, "class": error.failure}
        end_launch(launch, note, 1, "refused")
        return 1
    code, refused, began = 128 + signal.SIGTERM, None, time.time()
    if not stop.asked and not is_cancelled(folder):
        code, refused = _run_nodes(launch, note, stop)
    note["spent"] += time.time() - began
    conclude(launch, note, stop, code, refused)
    return code


def _run_nodes(launch: JobLaunch, note: dict[str, Any], stop: StopSignal) -> tuple[int, str | None]:
    """See `NodeStep.run`."""
    folder, began, seconds = launch["folder"], time.time(), launch["seconds"]
    values = read_file(folder, VALUES)
    if not launch["again"]:
        delete_path(f"{folder}/{VALUES}")
    port, lock = claim_port(host_lock_folder("ports"), int.from_bytes(os.urandom(4), "big"))
    step = NodeStep(launch, port)
    delete_path(f"{folder}/{REFUSED}")  # of an earlier start
    note.setdefault("started_at", stamp(began))
    write_file(folder, NOTE, {**note, "state": "started"})
    try:
        return step.run(stop, values, None if seconds is None else began + seconds - note["spent"])
    finally:
        os.close(lock)


def _own_id() -> str:
    """The id of this job; of a task of an array as squeue shows it."""
    environ = os.environ
    if "SLURM_ARRAY_TASK_ID" not in environ:
        return environ["SLURM_JOB_ID"]
    return f"{environ['SLURM_ARRAY_JOB_ID']}_{environ['SLURM_ARRAY_TASK_ID']}"
