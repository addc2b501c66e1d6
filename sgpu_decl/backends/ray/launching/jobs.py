"""Submits jobs, and ends them. The token of a launch is the id of its job, which Ray takes once."""

import json
from collections.abc import Mapping
from contextlib import closing, suppress

from sgpu_decl.backends.ray.api.dashboard import Dashboard, Refused
from sgpu_decl.backends.ray.api.job_table import JOBS, find_job
from sgpu_decl.backends.ray.cluster.head_names import cancel_name
from sgpu_decl.backends.ray.launching.package import ENTRYPOINT
from sgpu_decl.errors import BackendError, OutcomeUnknown
from sgpu_decl.model.jsonable import Json
from sgpu_decl.places.file_place import PlaceMissing

_HEAD = {"node:__internal_head__": 0.001}  # a resource of the head node alone
_BROKEN = 500  # the first status of HTTP that says nothing of the request


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
        "entrypoint_resources": dict(_HEAD),
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
        hint="apply again: sgpu finds what was started and does not start it twice",
    )


def cancel_job(dashboard: Dashboard, token: str) -> None:
    """Ask the driver to stop the ranks."""
    put_value(dashboard, cancel_name(token), json.dumps({"v": 1}).encode())


def stop_job(dashboard: Dashboard, token: str) -> bool:
    """Have Ray end the driver, which gives it three seconds; return whether there was one."""
    path = f"/api/jobs/{token}/stop"
    with closing(dashboard.apart()) as own:  # other runs are stopped meanwhile
        return dashboard.part(path, own.post(path, {}), "stopped", bool)
