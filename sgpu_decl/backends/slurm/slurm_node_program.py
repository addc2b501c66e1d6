"""What a launch on Slurm has in its folder beside the files of all launches: the script of its job,
which is the same for all, and what the job is told."""

from collections.abc import Mapping
from dataclasses import asdict
from importlib import resources
from typing import TYPE_CHECKING

import sgpu_decl.backends.slurm.job
from sgpu_decl.agent.attempt.attempt_files import encode
from sgpu_decl.agent.node.platform import PlatformTable
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.remote.launching.launch_folder import NodeProgram, NodeStart, input_folder
from sgpu_decl.backends.remote.launching.remote_launches import RemoteLaunches
from sgpu_decl.backends.remote.staging.remote_layout import BACK, INPUTS
from sgpu_decl.backends.slurm.job.launch_files import LAUNCH, SCRIPT
from sgpu_decl.backends.slurm.slurm_placement import options_of, planned_placement
from sgpu_decl.backends.slurm.submission import job_name, lead, may_start_again, task_of
from sgpu_decl.model.gpu import GPUType
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.run_outputs import outputs_read
from sgpu_decl.rendering.spec import RetrySpec

if TYPE_CHECKING:
    from sgpu_decl.backends.slurm.job.launch_files import JobLaunch, Upstream
    from sgpu_decl.config.run import RunConfig

_PLATFORM = PlatformTable(large_files="a folder that nodes share")


class SlurmNodeProgram(NodeProgram):
    """See `NodeProgram`."""

    room = sgpu_decl.backends.slurm.job

    def __init__(self, launches: RemoteLaunches) -> None:
        self._launches = launches

    def nodes(self, request: LaunchRequest) -> int:
        return planned_placement(request).nodes

    def processors(self, request: LaunchRequest) -> int | None:
        return planned_placement(request).cpus

    def files(self, request: LaunchRequest, start: NodeStart) -> Mapping[str, bytes]:
        config, options = request.config, options_of(request.config)
        launch: JobLaunch = {
            "folder": start.launch,
            "objects": start.objects,
            "agent": start.agent,
            "arguments": start.arguments("RUN", _PLATFORM),
            "nodes": self.nodes(request),
            "again": may_start_again(config),
            "links": options.chain,
            "seconds": config.timeout.seconds if config.timeout is not None else None,
            "retry": asdict(RetrySpec.of(config.retry)),
            "back": start.back,
            "lead": lead(config),
            "keep": options.keep_variables,
            "python": _image_python(config, start),
            "upstreams": [
                self._upstream(request, one, start) for one in (*request.after, *request.waits_for)
            ],
        }
        return {LAUNCH: encode(launch), SCRIPT: job_script().encode()}

    def _upstream(
        self, request: LaunchRequest, upstream: LaunchRecord, start: NodeStart
    ) -> "Upstream":
        folder, ref = self._launches.folder(upstream), upstream.ref
        marker = self._launches.marker(upstream) or {}
        older = ref.address == request.ref.address
        read = not older and ref in outputs_read(request.inputs.spec)
        return {
            "name": str(ref),
            "job": marker.get("name") or job_name(upstream),
            "task": task_of(marker.get("job") or ""),
            "folder": folder,
            "back": f"{folder}/{BACK}",
            "nodes": self.nodes(LaunchRequest(record=upstream)),
            "waits": older or ref in request.record.after,
            "must_succeed": not older,
            "output": input_folder(f"{start.launch}/{INPUTS}", ref) if read else None,
        }


def job_script() -> str:
    """The text of the script of every job."""
    job = resources.files(SlurmNodeProgram.room)
    program = job.joinpath("bootstrap.py").read_text("utf-8")
    return job.joinpath("job.sh").read_text("utf-8").replace("{program}", program)


def _image_python(config: "RunConfig", start: NodeStart) -> list[str]:
    """See `JobLaunch`. An image has `storage` under the same path.

    https://github.com/NVIDIA/pyxis/wiki/Usage
    https://apptainer.org/docs/user/main/cli/apptainer_exec.html
    """
    options = options_of(config)
    if options.container is None:
        return []
    mounts = [start.objects.rpartition("/")[0], *options.mounts]
    python = options.python or "python3"
    if options.container_runtime == "pyxis":
        both = ",".join(f"{path}:{path}" for path in mounts)
        return [f"--container-image={options.container}", f"--container-mounts={both}", python]
    gpus = () if config.type.kind is GPUType.CPU else ("--nv",)
    bound = ("--bind", ",".join(mounts))
    return ["apptainer", "exec", *gpus, *bound, options.container, python]
