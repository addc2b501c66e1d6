"""The commands that submit jobs: https://slurm.schedmd.com/sbatch.html"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import ceil
from typing import TYPE_CHECKING

from sgpu_decl.agent.retry_rule import new_nodes
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.slurm.job.launch_files import JOB_LOG, SCRIPT
from sgpu_decl.backends.slurm.slurm_placement import SlurmPlacement, options_of, planned_placement
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.rendering.spec import RetrySpec

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

_SBATCH = ("sbatch", "--parsable")
_PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(14, 9, -1)))
_UPLOAD = 30  # seconds beyond the grace in which nodes bring back what ranks left
_START = 180  # seconds for the start of nodes, and because Slurm signals up to 60 s early


def task_of(job: str) -> str | None:
    """The id of a job that is a task of an array; None of one that is alone."""
    return job if "_" in job else None


def job_name(record: LaunchRecord) -> str:
    """The name of a launch's job: that of its run, and what no other launch has."""
    return f"{record.ref.address.name}-{record.token[:32]}"


def submission(
    request: LaunchRequest,
    folder: str,
    launch: Mapping[str, Json],
    behind: Sequence[str],
    longest: int | None = None,
) -> list[str]:
    """The command that submits the job of a launch.

    Args:
        launch: what the job is told.
        behind: the jobs that must have ended before. Slurm takes one that it has forgotten for one
            that has ended, and waits for one that it starts again.
        longest: the seconds that its partition and all other limits give a job at most.
    """
    words = {
        "job-name": job_name(request.record),
        "comment": f"sgpu {request.ref} {request.record.token}",
        "chdir": folder,
        "output": f"{folder}/{JOB_LOG}",
    }
    asked, arguments = _asked(request, behind, longest)
    text = json.dumps(launch, separators=(",", ":"))
    return [*_SBATCH, *_options(words), *asked, f"{folder}/{SCRIPT}", text, *arguments]


def array_submission(
    requests: Sequence[LaunchRequest],
    folders: Sequence[str],
    behind: Sequence[str],
    longest: int | None = None,
) -> list[str]:
    """The command that submits several launches as one array, which ask for the same
    (`array_key`): https://slurm.schedmd.com/job_array.html"""
    first = requests[0]
    most = first.config.max_parallel
    words = {
        "job-name": array_name(requests),
        "comment": f"sgpu {first.ref.address.name} {array_name(requests)}",
        "array": f"0-{len(requests) - 1}" + (f"%{most}" if most is not None else ""),
        "chdir": "/",
        "output": "/dev/null",
    }
    asked, arguments = _asked(first, behind, longest)
    script = f"{folders[0]}/{SCRIPT}"
    return [*_SBATCH, *_options(words), *asked, script, "", *arguments, "--", *folders]


def array_name(requests: Sequence[LaunchRequest]) -> str:
    """The name of an array: that of the run, and what no other array has."""
    tokens = hashlib.sha256(" ".join(one.record.token for one in requests).encode())
    return f"{requests[0].ref.address.name}-{tokens.hexdigest()[:32]}"


def array_key(request: LaunchRequest) -> str:
    """What launches have in common that one array can start."""
    options = options_of(request.config)
    where = [options.login, options.storage]
    name, after = request.ref.address.name, sorted(str(one.ref) for one in request.after)
    return canonical([name, *where, list[Json](after), *map(list[Json], _asked(request, ()))])


def _asked(
    request: LaunchRequest, behind: Sequence[str], longest: int | None = None
) -> tuple[list[str], list[str]]:
    """The options of sbatch, and the arguments of the script, that do not name the launch."""
    config, options = request.config, options_of(request.config)
    words = {
        "signal": f"B:TERM@{lead(config)}",
        "dependency": "afterany:" + ":".join(behind) if behind else None,
        "open-mode": "append",
        "export": "NONE",
    }
    # In a container, `python` is that of the image.
    own = options.python if options.container is None else None
    asked = [
        *_options(words),
        "--requeue" if may_start_again(config) else "--no-requeue",
        *resource_options(config, planned_placement(request), longest),
    ]
    return asked, [*options.modules, "--", *((own,) if own else _PYTHONS)]


def resource_options(
    config: "RunConfig", placement: SlurmPlacement, longest: int | None = None
) -> list[str]:
    """The options of sbatch that decide where and when a job may run. A job of a chain has the
    `longest` seconds that all limits give it at most."""
    options, seconds = options_of(config), time_limit(config)
    if seconds is not None and longest is not None and options.chain > 1:
        seconds = min(seconds, longest)
    words = {
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "nodes": placement.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": placement.cpus,
        "gres": placement.gres,
        "constraint": placement.constraint,
        "time": ceil(seconds / 60) if seconds is not None else None,
    }
    exclusive = ["--exclusive"] if options.exclusive else []
    return [*_options(words), *exclusive, *options.options]


def _options(words: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in words.items() if value is not None]


def time_limit(config: "RunConfig") -> int | None:
    """The seconds that Slurm gives a job; None for what the partition gives. The agent ends ranks
    at their `timeout` long before."""
    if config.timeout is None:
        return None
    return ceil(config.timeout.seconds) + lead(config) + _START


def link_seconds(config: "RunConfig", longest: int) -> int:
    """How long ranks run in each link of a chain whose jobs have so many seconds."""
    return max(0, longest - lead(config) - _START)


def lead(config: "RunConfig") -> int:
    """Seconds before the end at which a job is asked to stop."""
    return ceil(config.grace.seconds) + _UPLOAD


def may_start_again(config: "RunConfig") -> bool:
    """Whether Slurm may start the job again."""
    covered = new_nodes(asdict(RetrySpec.of(config.retry))) > 0
    return covered or options_of(config).chain > 1
