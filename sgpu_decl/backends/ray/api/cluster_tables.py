"""What Ray says of a cluster: its Jobs API of jobs, and its State API of nodes.

The token of a launch is the id of its job.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from sgpu_decl.backends.ray.api.dashboard import VERSION, Dashboard
from sgpu_decl.errors import BackendError

JOBS = "/api/jobs/"
NO_JOBS_HINT = "run `pip install 'ray[default]'` on the head node, and start Ray there again"

_OPTIONAL_FIELDS: Mapping[str, type] = {
    "driver_exit_code": int,
    "driver_node_id": str,
    "end_time": int,  # milliseconds since 1970
    "error_type": str,
    "message": str,
    "metadata": dict,
    "start_time": int,  # of the submission
}
"""What a job may have beside its status, of that which is read."""

NODES = "/api/v0/nodes"

_ALIVE = "ALIVE"
_MOST = 10_000  # that Ray lists


class NoJobsApi(BackendError):
    """The dashboard answers, and has no Jobs API."""

    code = "ray_without_jobs"

    def __init__(self, url: str) -> None:
        super().__init__(f"the Ray of `{url}` has no Jobs API", hint=NO_JOBS_HINT)


def has_jobs(dashboard: Dashboard) -> bool:
    """Whether the dashboard has the Jobs API, which answers `/api/version` (`JobHead` in
    `ray/dashboard/modules/job/job_head.py`). It must be the first request to the dashboard: one
    that is refused without a token has the API, because only Ray with the API asks for tokens."""
    return dashboard.has(VERSION) is not False


def session_of(dashboard: Dashboard) -> str:
    """Return the name of the cluster's session: what it holds ends with that. Raises NoJobsApi,
    too."""
    answer = dashboard.find(VERSION)
    if answer is None:
        raise NoJobsApi(dashboard.address.url)
    return str(dashboard.part(VERSION, answer, "session_name", str))


def find_job(dashboard: Dashboard, token: str) -> Mapping[str, Any] | None:
    """Return the job of a launch; None if the cluster has none. Fields that are read elsewhere are
    of their kinds."""
    path = f"/api/jobs/{token}"
    job = dashboard.find(path)
    return None if job is None else _checked(dashboard, path, job)


def list_jobs(dashboard: Dashboard) -> dict[str, Mapping[str, Any]]:
    """Return all jobs that were submitted to the cluster, by their ids. Raises NoJobsApi, too."""
    jobs: Any = dashboard.find(JOBS)
    if jobs is None:
        raise NoJobsApi(dashboard.address.url)
    if not isinstance(jobs, list):
        raise dashboard.unknown_answer(JOBS, "no list of jobs")
    submitted = (job for job in jobs if isinstance(job, Mapping) and job.get("submission_id"))
    return {str(job["submission_id"]): _checked(dashboard, JOBS, job) for job in submitted}


def _checked(dashboard: Dashboard, path: str, job: Any) -> Mapping[str, Any]:
    dashboard.part(path, job, "status", str)
    for name, kind in _OPTIONAL_FIELDS.items():
        dashboard.optional_part(path, job, name, kind)
    return dict(job)


def list_nodes(dashboard: Dashboard, **query: int) -> list[Mapping[str, Any]]:
    """Return what is said of each node that is alive, with `detail=1` all that Ray knows.
    One request; raises BackendError."""
    answer = dashboard.get(NODES, limit=_MOST, **query)
    rows = dashboard.part(NODES, answer, "data.result.result", list)
    alive = [row for row in rows if dashboard.part(NODES, row, "state", str) == _ALIVE]
    for row in alive:
        dashboard.part(NODES, row, "node_id", str)
    return alive


def living_nodes(dashboard: Dashboard) -> frozenset[str]:
    """Return the ids of the nodes that are alive. One request; raises BackendError."""
    return frozenset(row["node_id"] for row in list_nodes(dashboard))


def head_node(dashboard: Dashboard) -> str | None:
    """Return the id of the head; None if none is alive. One request; raises BackendError."""
    return head_among(dashboard, list_nodes(dashboard))


def head_among(dashboard: Dashboard, rows: Iterable[Mapping[str, Any]]) -> str | None:
    """The id of the head among nodes that are alive, if it is. Raises BackendError."""
    heads = (row for row in rows if dashboard.optional_part(NODES, row, "is_head_node", bool))
    return next((str(row["node_id"]) for row in heads), None)
