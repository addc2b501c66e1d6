"""The job of a launch: its script, which is the same for all launches, and what it is told."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from math import ceil
from typing import TYPE_CHECKING

from sgpu_decl.agent.node.platform import PlatformTable
from sgpu_decl.agent.retry_rule import new_nodes
from sgpu_decl.backends.launch_request import LaunchRequest, foreign_config
from sgpu_decl.backends.remote.launching.launch_folder import (
    NodeProgram,
    NodeStart,
    input_folder,
)
from sgpu_decl.backends.remote.launching.remote_launches import RemoteLaunches
from sgpu_decl.backends.remote.staging.remote_layout import BACK, INPUTS, LOGS
from sgpu_decl.backends.slurm.options import SlurmOptions
from sgpu_decl.backends.slurm.slurm_placement import SlurmPlacement
from sgpu_decl.errors import BackendError
from sgpu_decl.model.gpu import GPUType
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.run_outputs import outputs_read
from sgpu_decl.rendering.spec import RetrySpec

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

JOB, SCRIPT = "launch.json", "job.sh"
CLAIM, NOTE = f"{LOGS}/claim.json", f"{LOGS}/job.json"
CANCEL, VALUES = f"{LOGS}/cancel", f"{LOGS}/values.json"
JOB_LOG, ARRAY = f"{LOGS}/job.log", f"{LOGS}/array.json"
"""Files of a launch folder, beside its logs: see `job_program`."""

_PLATFORM = PlatformTable(large_files="a folder that nodes share")
_PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(14, 9, -1)))
_UPLOAD = 30  # seconds beyond the grace in which nodes bring back what ranks left
_START = 180  # seconds for the start of nodes, and because Slurm signals up to 60 s early
# A login shell: the modules and the PATH of the user's jobs, whatever the shell of `apply` has.
# `module` says by its exit status whether it loaded something:
# https://modules.readthedocs.io/en/latest/module.html#exit-status
_SCRIPT = """\
#!/bin/bash -l
# A job of sgpu. Its first argument says which launch; then come modules to load, `--`, and the
# Pythons to try. Of an array come `--` and the launch folders of all its tasks, which say it.
IFS= read -r -d '' program <<'END OF THE PROGRAM'
{program}END OF THE PROGRAM
told=$1
if [ -z "$told" ]; then
  folder=${{@: -$((SLURM_ARRAY_TASK_COUNT - SLURM_ARRAY_TASK_ID)):1}}
  exec >>"$folder/logs/job.log" 2>&1 || exit 0 # the folder is gone: nothing is to be done
  told=$(<"$folder/launch.json") || exit 72
fi
shift
while [ "$1" != -- ]; do
  if ! type module >/dev/null 2>&1; then
    echo "sgpu: a login shell on $HOSTNAME has no command 'module' that could load '$1'" >&2
    exit 72
  elif ! module load "$1"; then
    echo "sgpu: 'module load $1' fails on $HOSTNAME: 'module avail' lists what there is" >&2
    exit 72
  fi
  shift
done
shift
for python in "$@"; do
  if [ "$python" = -- ]; then
    break
  elif "$python" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then
    exec "$python" -I -S -c "$program" job "$told"
  fi
done
echo "sgpu: none of these is a Python 3.10 or newer on $HOSTNAME: $*" >&2
exit 72
"""


def options_of(config: "RunConfig") -> SlurmOptions:
    """The options of a run. Raises BackendError: they are another backend's."""
    if not isinstance(config.backend, SlurmOptions):
        raise foreign_config("a cluster with Slurm")
    return config.backend


def planned_placement(request: LaunchRequest) -> SlurmPlacement:
    """The nodes that the plan chose. Raises BackendError: it did not."""
    try:
        return SlurmPlacement.from_id(request.inputs.placement or "")
    except ValueError:
        error = BackendError(
            f"Slurm did not answer when `{request.ref}` was planned, so its ranks have no place",
            hint="apply again: that plans again; make a saved plan anew",
            code="unavailable",
        )
        error.retryable = True
        raise error from None


class SlurmNodeProgram(NodeProgram):
    """See `NodeProgram`."""

    def __init__(self, launches: RemoteLaunches) -> None:
        self._launches = launches

    def nodes(self, request: LaunchRequest) -> int:
        return planned_placement(request).nodes

    def processors(self, request: LaunchRequest) -> int | None:
        return planned_placement(request).cpus

    def files(self, request: LaunchRequest, start: NodeStart) -> Mapping[str, bytes]:
        config = request.config
        told: dict[str, Json] = {
            "logs": f"{start.launch}/{LOGS}",
            "objects": start.objects,
            "agent": start.agent,
            "arguments": list[Json](start.arguments("RUN", _PLATFORM)),
            "nodes": self.nodes(request),
            "again": _starts_again(config),
            "links": options_of(config).chain,
            "seconds": config.timeout.seconds if config.timeout is not None else None,
            "retry": asdict(RetrySpec.of(config.retry)),
            "back": start.back,
            "lead": _lead(config),
            "keep": list[Json](options_of(config).keep_variables),
            "container": _container(config, start),
            "upstreams": [
                *(self._upstream(request, one, start) for one in request.after),
                *(self._upstream(request, one, start) for one in request.waits_for),
            ],
        }
        return {JOB: canonical(told).encode(), SCRIPT: job_script().encode()}

    def _upstream(
        self, request: LaunchRequest, upstream: LaunchRecord, start: NodeStart
    ) -> dict[str, Json]:
        """An attempt that the launch comes after, waits for, or reads the output of, as
        `job_program` reads it."""
        folder, ref = self._launches.folder(upstream), upstream.ref
        marker = self._launches.marker(upstream) or {}
        older = ref.address == request.ref.address
        read = not older and ref in outputs_read(request.inputs.spec)
        return {
            "name": str(ref),
            "job": marker.get("name") or job_name(upstream),
            "task": task_of(marker.get("job") or ""),
            "logs": f"{folder}/{LOGS}",
            "back": f"{folder}/{BACK}",
            "nodes": self.nodes(LaunchRequest(record=upstream)),
            "waits": older or ref in request.record.after,
            "must_succeed": not older,
            "output": input_folder(f"{start.launch}/{INPUTS}", ref) if read else None,
        }


def task_of(job: str) -> str | None:
    """The id of a job that is a task of an array; None of one that is alone."""
    return job if "_" in job else None


def job_script() -> str:
    """The text of the script."""
    program = resources.files(__package__).joinpath("job_program.py").read_text("utf-8")
    return _SCRIPT.format(program=program)


def job_name(record: LaunchRecord) -> str:
    """The name of a launch's job: that of its run, and what no other launch has."""
    return f"{record.ref.address.name}-{record.token[:32]}"


def submission(
    request: LaunchRequest,
    folder: str,
    told: Mapping[str, Json],
    behind: Sequence[str],
    longest: int | None = None,
) -> list[str]:
    """The command that submits the job of a launch: https://slurm.schedmd.com/sbatch.html

    Args:
        told: what the file `JOB` has.
        behind: the jobs that must have ended before. Slurm takes one that it has forgotten for one
            that has ended, and waits for one that it starts again.
        longest: the seconds that its partition gives a job at most.
    """
    words = {
        "job-name": job_name(request.record),
        "comment": f"sgpu {request.ref} {request.record.token}",
        "chdir": folder,
        "output": f"{folder}/{JOB_LOG}",
    }
    asked, arguments = _asked(request, behind, longest)
    text = json.dumps(told, separators=(",", ":"))
    return [*_command(words), *asked, f"{folder}/{SCRIPT}", text, *arguments]


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
    return [*_command(words), *asked, f"{folders[0]}/{SCRIPT}", "", *arguments, "--", *folders]


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


def _command(words: Mapping[str, object]) -> list[str]:
    named = (f"--{name}={value}" for name, value in words.items() if value is not None)
    return ["sbatch", "--parsable", *named]


def _asked(
    request: LaunchRequest, behind: Sequence[str], longest: int | None = None
) -> tuple[list[str], list[str]]:
    """The options of sbatch, and the arguments of the script, that do not name the launch."""
    config, options = request.config, options_of(request.config)
    words = {
        "signal": f"B:TERM@{_lead(config)}",
        "dependency": "afterany:" + ":".join(behind) if behind else None,
        "open-mode": "append",
        "export": "NONE",
    }
    # In a container, `python` is that of the image.
    own = options.python if options.container is None else None
    pythons = (own,) if own else _PYTHONS
    asked = [
        *_command(words)[2:],
        "--requeue" if _starts_again(config) else "--no-requeue",
        *resource_options(config, planned_placement(request), longest),
    ]
    return asked, [*options.modules, "--", *pythons]


def resource_options(
    config: "RunConfig", placement: SlurmPlacement, longest: int | None = None
) -> list[str]:
    """The options of sbatch that decide where and when a job may run. A job of a chain has the
    `longest` seconds of its partition at most."""
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
    return [
        *(f"--{name}={value}" for name, value in words.items() if value is not None),
        *(["--exclusive"] if options.exclusive else []),
        *options.options,
    ]


def _container(config: "RunConfig", start: NodeStart) -> dict[str, Json] | None:
    """How nodes start in an image: `options` of srun, the words of a `command` around theirs, and
    their `python`. It has `storage` under the same path.

    https://github.com/NVIDIA/pyxis/wiki/Usage
    https://apptainer.org/docs/user/main/cli/apptainer_exec.html
    """
    options = options_of(config)
    if options.container is None:
        return None
    storage = start.objects.rpartition("/")[0]
    mounts = [storage, *options.mounts]
    python = options.python or "python3"
    if options.container_runtime == "pyxis":
        both = ",".join(f"{path}:{path}" for path in mounts)
        asked = [f"--container-image={options.container}", f"--container-mounts={both}"]
        return {"options": list[Json](asked), "command": [], "python": python}
    gpus = () if config.type.kind is GPUType.CPU else ("--nv",)
    command = ["apptainer", "exec", *gpus, "--bind", ",".join(mounts), options.container]
    return {"options": [], "command": list[Json](command), "python": python}


def time_limit(config: "RunConfig") -> int | None:
    """The seconds that Slurm gives a job; None for what the partition gives. The agent ends ranks
    at their `timeout` long before."""
    if config.timeout is None:
        return None
    return ceil(config.timeout.seconds) + _lead(config) + _START


def link_seconds(config: "RunConfig", longest: int) -> int:
    """How long ranks run in each link of a chain whose jobs have so many seconds."""
    return max(0, longest - _lead(config) - _START)


def _lead(config: "RunConfig") -> int:
    """Seconds before the end at which a job is asked to stop."""
    return ceil(config.grace.seconds) + _UPLOAD


def _starts_again(config: "RunConfig") -> bool:
    """Whether Slurm may start the job again."""
    covered = new_nodes(asdict(RetrySpec.of(config.retry))) > 0
    return covered or options_of(config).chain > 1
