"""The job of a launch: its script, which is the same for all launches, and what it is told."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib import resources
from math import ceil
from typing import TYPE_CHECKING

from sgpu_decl.agent.node.platform import PlatformTable
from sgpu_decl.agent.retry_rule import new_nodes
from sgpu_decl.backends.launch_request import LaunchRequest, foreign_config
from sgpu_decl.backends.remote.launching.launch_folder import NodeProgram, NodeStart
from sgpu_decl.backends.remote.staging.remote_layout import LOGS
from sgpu_decl.backends.slurm.options import SlurmOptions
from sgpu_decl.backends.slurm.slurm_placement import SlurmPlacement
from sgpu_decl.errors import BackendError
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.rendering.spec import RetrySpec

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

JOB, SCRIPT = "launch.json", "job.sh"
CLAIM, NOTE = f"{LOGS}/claim.json", f"{LOGS}/job.json"
CANCEL, VALUES = f"{LOGS}/cancel", f"{LOGS}/values.json"
JOB_LOG = f"{LOGS}/job.log"
"""Files of a launch folder, beside its logs: see `job_program`."""

_PLATFORM = PlatformTable(large_files="a folder that nodes share")
_PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(14, 9, -1)))
_UPLOAD = 30  # seconds beyond the grace in which nodes bring back what ranks left
_START = 180  # seconds for the start of nodes, and because Slurm signals up to 60 s early
# A login shell: the modules and the PATH of the user's jobs, whatever the shell of `apply` has.
_SCRIPT = """\
#!/bin/bash -l
# A job of sgpu. Its first argument says which launch, the others which Pythons to try.
IFS= read -r -d '' program <<'END OF THE PROGRAM'
{program}END OF THE PROGRAM
told=$1
shift
for python in "$@"; do
  if "$python" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then
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
            "retry": asdict(RetrySpec.of(config.retry)),
            "back": start.back,
            "lead": _lead(config),
            "keep": list[Json](options_of(config).keep_variables),
        }
        return {JOB: canonical(told).encode(), SCRIPT: job_script().encode()}


def job_script() -> str:
    """The text of the script."""
    program = resources.files(__package__).joinpath("job_program.py").read_text("utf-8")
    return _SCRIPT.format(program=program)


def job_name(record: LaunchRecord) -> str:
    """The name of a launch's job: that of its run, and what no other launch has."""
    return f"{record.ref.address.name}-{record.token[:32]}"


def submission(request: LaunchRequest, folder: str, told: bytes) -> list[str]:
    """The command that submits the job of a launch: https://slurm.schedmd.com/sbatch.html

    Args:
        told: the content of the file `JOB`.
    """
    config = request.config
    options = options_of(config)
    words = {
        "job-name": job_name(request.record),
        "comment": f"sgpu {request.ref} {request.record.token}",
        "signal": f"B:TERM@{_lead(config)}",
        "chdir": folder,
        "output": f"{folder}/{JOB_LOG}",
        "open-mode": "append",
        "export": "NONE",
    }
    pythons = (options.python,) if options.python else _PYTHONS
    return [
        "sbatch",
        "--parsable",
        *(f"--{name}={value}" for name, value in words.items()),
        "--requeue" if _starts_again(config) else "--no-requeue",
        *resource_options(config, planned_placement(request)),
        f"{folder}/{SCRIPT}",
        json.dumps(json.loads(told), separators=(",", ":")),
        *pythons,
    ]


def resource_options(config: "RunConfig", placement: SlurmPlacement) -> list[str]:
    """The options of sbatch that decide where and when a job may run."""
    options, seconds = options_of(config), time_limit(config)
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


def time_limit(config: "RunConfig") -> int | None:
    """The seconds that Slurm gives a job; None for what the partition gives. The agent ends ranks
    at their `timeout` long before."""
    if config.timeout is None:
        return None
    return ceil(config.timeout.seconds) + _lead(config) + _START


def _lead(config: "RunConfig") -> int:
    """Seconds before the end at which a job is asked to stop."""
    return ceil(config.grace.seconds) + _UPLOAD


def _starts_again(config: "RunConfig") -> bool:
    """Whether Slurm may start the job again, on other nodes."""
    return new_nodes(asdict(RetrySpec.of(config.retry))) > 0
