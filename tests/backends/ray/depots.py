"""The depots of a cluster: small jobs on its head."""

import os
import signal
from typing import Any
from uuid import uuid4

from sgpu_decl.backends.ray.cluster.head_names import DEPOT, DEPOT_FILE, DEPOT_ID
from sgpu_decl.backends.ray.clusters import Clusters
from sgpu_decl.backends.ray.head.head_reader import ROOT, HeadReader
from sgpu_decl.backends.ray.launching.jobs import job_package, put_value, submit_job
from sgpu_decl.model.jsonable import canonical
from sgpu_decl.testing.ray_cluster import RayCluster
from tests.support import until


def depot_jobs(cluster: RayCluster) -> list[dict[str, Any]]:
    """Those that were ever started."""
    jobs = cluster.get("/api/jobs/")
    return [job for job in jobs if (job["submission_id"] or "").startswith(DEPOT_ID)]


def depot_processes(cluster: RayCluster) -> list[int]:
    """The processes of those that run."""
    return [
        int(job["driver_info"]["pid"])
        for job in depot_jobs(cluster)
        if job["status"] == "RUNNING" and job["driver_info"]
    ]


def start_depot(cluster: RayCluster, **limits: float) -> str:
    """Start one with other limits than the usual ones, where none runs; the id of its job."""
    dashboard = Clusters().at(cluster.url)
    name = f"{DEPOT_ID}{uuid4().hex[:12]}"
    about = canonical({"v": 1, "job": name, **limits}).encode()
    package, content = job_package({DEPOT_FILE: about})
    put_value(dashboard, package, content)
    submit_job(dashboard, name, package)
    # Until it serves, a client would start another one, and the first of them serves.
    own = f"{ROOT}/{DEPOT}/{DEPOT_FILE}"
    until(lambda: name.encode() in (HeadReader(dashboard).find(own) or b""))
    return name


def end_depots(cluster: RayCluster) -> None:
    """Kill those that run, and wait until Ray knows it."""
    for pid in depot_processes(cluster):
        os.kill(pid, signal.SIGKILL)
    until(lambda: all(job["status"] not in ("PENDING", "RUNNING") for job in depot_jobs(cluster)))
