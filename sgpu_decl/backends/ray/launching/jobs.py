"""The job of a launch: its package, its submission and its end.

The token of a launch is the id of its job, which Ray takes once. Ray unpacks the package, which is
named by content, into the working folder of the job. It holds the programs of `cluster/`, the node
agent, and `launch.json`, or `depot.json` for the depot. The text of the job, which goes through a
shell, is the same for all.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from contextlib import closing, suppress
from importlib import resources

from sgpu_decl.backends.archives import agent_zip
from sgpu_decl.backends.ray.api.cluster_tables import JOBS, find_job
from sgpu_decl.backends.ray.api.dashboard import Dashboard, Refused
from sgpu_decl.backends.ray.cluster.bundle_counts import HEAD_RESOURCE
from sgpu_decl.backends.ray.cluster.head_names import cancel_name
from sgpu_decl.errors import BackendError, OutcomeUnknown
from sgpu_decl.model.jsonable import Json
from sgpu_decl.places.file_place import PlaceMissing

_BROKEN = 500  # the first status of HTTP that says nothing of the request
_OLDEST = (1980, 1, 1, 0, 0, 0)  # what a zip can say
_PRIVATE = 0o600 << 16  # the mode of a file, as a zip says it

ENTRYPOINT = (
    "umask 077; chmod 700 .; "
    "raylet=$(tr '\\0' '\\n' </proc/$PPID/environ | sed -n 's/^RAY_RAYLET_PID=//p') && "
    "python=$(tr '\\0' '\\n' </proc/$raylet/cmdline"
    " | sed -n 's/^--python_worker_command=\\([^ ]*\\).*/\\1/p'); "
    'exec "${python:-python3}" .'
)
"""The job: it closes its working folder to other users of the head node, and starts the driver with
the interpreter that runs Ray there, which the command line of the raylet names. The driver reads
the folder before it joins the cluster: from then on Ray may delete it (nodes that share a disk
unpack the working folder of a driver anew). No copy is made, so a job that is killed leaves nothing
that Ray does not know of."""


def job_package(own: Mapping[str, bytes]) -> tuple[str, bytes]:
    """Return the package of a job, and its name.

    Ray makes a working folder that every user of the head node can read. Files in it get the modes
    that the package gives them from Ray 2.60, and not from 2.49.1 (`unzip_package` in
    `ray/_private/runtime_env/packaging.py`).

    Args:
        own: the files of this job alone, by name.
    """
    programs = resources.files("sgpu_decl.backends.ray.cluster")
    files = {
        item.name: item.read_bytes() for item in programs.iterdir() if item.name.endswith(".py")
    }
    files |= {"agent.zip": agent_zip()[1], **own}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            member = zipfile.ZipInfo(name, _OLDEST)
            member.external_attr = _PRIVATE
            archive.writestr(member, content, zipfile.ZIP_DEFLATED)
    data = packed.getvalue()
    return f"sgpu_{hashlib.sha256(data).hexdigest()[:40]}.zip", data


def put_value(dashboard: Dashboard, name: str, content: bytes) -> None:
    """Put a value into the key-value store, for a driver or as the package of a job. If nobody
    takes it, Ray deletes it after ten minutes. That is what it does with a name that was asked for,
    whether it has a value or not, so this asks first (`get_package` in
    `ray/dashboard/modules/job/job_head.py`)."""
    path = f"/api/packages/gcs/{name}"
    with suppress(PlaceMissing):
        dashboard.read(path)
    try:
        dashboard.put(path, content)
    except OutcomeUnknown:  # the same once more is harmless
        dashboard.put(path, content)


def submit_job(
    dashboard: Dashboard, token: str, package: str, metadata: Mapping[str, str] = {}
) -> None:
    """Submit the job of a launch, unless the cluster has it.

    Args:
        token: the id of the job.
        package: the name of its package, see `job_package`.
        metadata: what `ray job list` and the dashboard show of it, beside the version of sgpu's
            jobs.

    Raises:
        OutcomeUnknown: it may have been submitted.
        BackendError: it was not.
    """
    body: dict[str, Json] = {
        "entrypoint": ENTRYPOINT,
        "submission_id": token,
        "runtime_env": {"working_dir": f"gcs://{package}"},
        "metadata": {"sgpu.version": "1", **metadata},
        "entrypoint_resources": {HEAD_RESOURCE: 0.001},
    }
    try:
        dashboard.post(JOBS, body)
    except BackendError as error:
        # Ray answers 500 to the second submission of a job, and to much else.
        try:
            job = find_job(dashboard, token)
        except BackendError as unanswered:
            raise _unknown(error) from unanswered
        if job is None and _may_be_submitted(error):
            raise _unknown(error) from error
        if job is None:
            raise


def _may_be_submitted(error: BackendError) -> bool:
    """Whether a request that failed may become a job still. The dashboard passes it on to another
    program, and answers 500 whatever went wrong there (`submit_job` in
    `ray/dashboard/modules/job/job_head.py`); so do proxies, with 502 to 504."""
    return error.retryable or (isinstance(error, Refused) and error.status >= _BROKEN)


def _unknown(error: BackendError) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{error.message}; whether the job was submitted is not known",
        hint="apply again: sgpu finds the launched run and does not launch it twice",
    )


def cancel_job(dashboard: Dashboard, token: str) -> None:
    """Ask the driver to stop the ranks."""
    put_value(dashboard, cancel_name(token), json.dumps({"v": 1}).encode())


def stop_job(dashboard: Dashboard, token: str) -> bool:
    """Have Ray end the driver, which gives it three seconds; return whether there was one."""
    path = f"/api/jobs/{token}/stop"
    with closing(dashboard.apart()) as own:  # other runs are stopped meanwhile
        return dashboard.part(path, own.post(path, {}), "stopped", bool)
