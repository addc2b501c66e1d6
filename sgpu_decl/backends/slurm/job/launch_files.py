"""The files of a launch folder in which a launch and its job tell each other how it stands, and
what they hold. `logs/RESTART/NODE.log` beside them is what each node says."""

from __future__ import annotations

import os

from sgpu_decl.agent.attempt.attempt_files import encode
from sgpu_decl.agent.system.fast_stdlib import loads
from sgpu_decl.agent.system.folder_files import create_file, file_draft, put_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, TypedDict

    class Upstream(TypedDict):
        """An attempt that a launch comes after, waits for, or reads the output of: its `name`; the
        name of its `job`, and the id of its `task` in an array; its launch `folder`, and `back`
        there, as `NodeStart` has it, of its `nodes`; whether the launch `waits` for it, and whether
        it `must_succeed`; and the folder that its `output` is read in, if it is."""

        name: str
        job: str
        task: str | None
        folder: str
        back: str
        nodes: int
        waits: bool
        must_succeed: bool
        output: str | None

    class JobLaunch(TypedDict):
        """What a job is told.

        `folder`, `objects`, `back`, `agent` and the `arguments` of the agent are as `NodeStart` has
        them; `RUN` in these is the node's folder. `again`: whether Slurm may start the job once
        more. `links`: how often its time may be over. `seconds`: how long nodes may run in all of
        them. `lead`: so long before its end a job is asked to stop. `keep`: patterns of the
        variables of Slurm that ranks get. `python`: what starts the Python of an image, behind the
        options of srun; empty for that of the job.
        """

        folder: str
        objects: str
        agent: str
        arguments: Sequence[str]
        nodes: int
        again: bool
        links: int
        seconds: float | None
        retry: Mapping[str, Any]
        back: str
        lead: int
        keep: Sequence[str]
        python: Sequence[str]
        upstreams: Sequence[Upstream]


LOGS = "logs"
LAUNCH, SCRIPT = "launch.json", "job.sh"
CLAIM = f"{LOGS}/claim.json"  # which job has the launch, by its `job` and `name`
NOTE = f"{LOGS}/job.json"  # how that job stands: see `job_program`
CANCEL = f"{LOGS}/cancel"  # it is to stop
VALUES = f"{LOGS}/values.json"  # the values of secrets, while they are needed
REFUSED = f"{LOGS}/refused.json"  # why a node cannot begin
JOB_LOG = f"{LOGS}/job.log"
ARRAY = f"{LOGS}/array.json"  # the `name` of an array, and which `task` of it the launch is


def claim(folder: str, own: Mapping[str, str]) -> Mapping[str, str]:
    """Take a launch for the job `own`; return which job has it. `link` is atomic on NFS, too.
    Evidence: E2. Raises OSError: the folder is gone."""
    path = f"{folder}/{CLAIM}"
    create_file(path, file_draft(path, [encode(own)]))
    return read_file(folder, CLAIM)


def write_file(folder: str, name: str, value: Mapping[str, Any]) -> None:
    path = f"{folder}/{name}"
    put_file(path, file_draft(path, [encode(value)]))


def read_file(folder: str, name: str) -> dict[str, Any]:
    """What a file holds; nothing if it is not there. Raises OSError, ValueError."""
    try:
        with open(f"{folder}/{name}", "rb") as file:
            value: dict[str, Any] = loads(file.read())
    except FileNotFoundError:
        return {}
    return value


def node_logs(folder: str) -> str:
    """The folder of what nodes say in this start of the job."""
    return f"{folder}/{LOGS}/{os.environ.get('SLURM_RESTART_COUNT') or 0}"


def is_cancelled(folder: str) -> bool:
    return os.path.exists(f"{folder}/{CANCEL}")
