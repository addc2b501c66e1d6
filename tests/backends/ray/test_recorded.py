"""What sgpu reads of Ray's HTTP API is there in each version, and is named if it is missing."""

import copy
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from sgpu_decl.backends.ray.api.cluster_tables import (
    find_job,
    head_node,
    list_jobs,
    living_nodes,
    session_of,
)
from sgpu_decl.backends.ray.api.dashboard import Dashboard
from sgpu_decl.backends.ray.api.dashboard_address import DashboardAddress
from sgpu_decl.backends.ray.api.dashboard_credentials import Credentials
from sgpu_decl.backends.ray.cluster.job_verdict import judge
from sgpu_decl.backends.ray.head.head_place import HeadPlace
from sgpu_decl.backends.ray.launching.jobs import put_value, stop_job, submit_job
from sgpu_decl.backends.ray.planning.cluster_nodes import read_cluster
from sgpu_decl.backends.ray.planning.ray_survey import running_attempts
from sgpu_decl.errors import BackendError
from sgpu_decl.places.file_place import PlaceMissing
from sgpu_decl.testing.ray_cluster import RayCluster
from tests.backends.ray.answers import NAMES, RECORDED, answering, recorded, recorded_answer
from tests.support import until

VERSIONS = sorted(os.listdir(RECORDED))
JOBS = ("run", "ok", "bad", "stop")
# Mappings whose keys are no words of Ray's.
STOP = "/api/jobs/run/stop"
MORE = {NAMES: "names", STOP: "stop"}
PACKAGE = "/api/packages/gcs/sgpu_a.zip"
OPEN = ("labels", "resources_total", "resourcesTotal", "nodeLogicalResources", "metadata")

Path = tuple[str | int, ...]


def verdict(dashboard: Dashboard, token: str) -> str:
    job = find_job(dashboard, token)
    assert job is not None
    alive = job.get("driver_node_id") in living_nodes(dashboard)
    return str(judge(job, {"state": "running"}, None, driver_alive=alive, now=time.time())["state"])


READERS: tuple[tuple[str, Callable[[Dashboard], object]], ...] = (
    ("/api/v0/cluster_metadata", read_cluster),
    ("/api/v0/nodes", read_cluster),
    ("/nodes", read_cluster),
    ("/api/version", session_of),
    ("/api/jobs/", lambda ray: running_attempts(list_jobs(ray).values(), "l")),
    *((f"/api/jobs/{name}", lambda ray, name=name: verdict(ray, name)) for name in JOBS),
    ("/api/v0/nodes", lambda ray: verdict(ray, "run")),
    ("/api/v0/nodes", head_node),
    (NAMES, lambda ray: HeadPlace(ray).names("/sgpu", "*")),
    (STOP, lambda ray: stop_job(ray, "run")),
)


def answers_of(version: str) -> dict[str, Any]:
    answers = recorded(version)
    answers |= {f"/api/jobs/{job['submission_id']}": job for job in answers["/api/jobs/"]}
    return answers | {path: recorded_answer(version, name) for path, name in MORE.items()}


@pytest.mark.parametrize("version", VERSIONS)
def test_jobs_of_each_version_are_understood(version: str) -> None:
    with answering(answers_of(version)) as server, closing(server.dashboard()) as ray:
        state = read_cluster(ray)
        assert state.head is not None
        assert head_node(ray) == state.head.id
        server.by_path["/api/jobs/run"]["driver_node_id"] = state.nodes[0].id
        assert {name: verdict(ray, name) for name in JOBS} == {
            "run": "running", "ok": "lost", "bad": "lost", "stop": "cancelled",
        }  # fmt: skip
        server.by_path["/api/jobs/run"]["driver_node_id"] = "of-a-node-that-died"
        assert verdict(ray, "run") == "lost"
        assert running_attempts(list_jobs(ray).values(), "l") == ("`run.train#1`",)
        assert session_of(ray).startswith("session_")


@pytest.mark.parametrize("version", VERSIONS)
def test_files_and_values_of_each_version_are_understood(version: str) -> None:
    answers = answers_of(version)
    packages = recorded_answer(version, "packages")
    in_turn = iter([tuple(packages[name]) for name in ("find", "put", "found")])
    answers |= {
        PACKAGE: lambda: next(in_turn),
        "/api/jobs/": recorded_answer(version, "submission"),
    }
    with answering(answers) as server, closing(server.dashboard()) as ray:
        names = HeadPlace(ray).names("/sgpu", "*")
        assert [name for name in names if name.endswith("raylet.out")]
        put_value(ray, "sgpu_a.zip", b"hello")
        assert ray.read(PACKAGE) == b""  # Ray says that it has the value, and keeps it longer
        submit_job(ray, "run", "sgpu_a.zip")
        assert stop_job(ray, "run") is True
    assert [request for request, _ in server.requests][-5:] == [
        f"GET {PACKAGE}", f"PUT {PACKAGE}", f"GET {PACKAGE}", "POST /api/jobs/", f"POST {STOP}"
    ]  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_that_lacks_something_is_named(version: str) -> None:
    """Each value of each answer is left out once, and once it is of another kind."""
    answers = answers_of(version)
    named = set()
    with answering(answers) as server, closing(server.dashboard()) as ray:
        for path, read in READERS:
            for place in places(answers[path]):
                for wrong in (..., "text", {"a": None}):
                    server.by_path[path] = changed(answers[path], place, wrong)
                    error = refusal(read, ray)
                    assert error is None or error.code == "not_ray_dashboard"
                    if error is not None and wrong is ...:
                        assert str(place[-1]) in error.message.partition(" gives ")[2]
                        named.add((path, place[-1]))
            server.by_path[path] = answers[path]
    assert named >= {
        ("/api/v0/cluster_metadata", "pythonVersion"),
        ("/api/v0/nodes", "resources_total"),
        ("/nodes", "nodeLogicalResources"),
        ("/api/version", "session_name"),
        ("/api/jobs/run", "status"),
        (NAMES, "result"),
        (STOP, "stopped"),
    }


@pytest.mark.ray
@pytest.mark.expensive
def test_a_cluster_answers_as_the_recorded_one(cluster: RayCluster) -> None:
    found = cluster.get("/api/version")["ray_version"]
    answers = recorded(found)  # a new release needs recorded answers of its own
    with closing(Dashboard(DashboardAddress(url=cluster.url), Credentials())) as ray:
        for name, program in (("run", "sleep 600"), ("bad", "exit 3")):
            ray.post("/api/jobs/", {"entrypoint": program, "submission_id": name})
        until(lambda: verdict(ray, "run") == "running" and verdict(ray, "bad") == "stopping")
        head = head_node(ray)
        names = fields(cluster.get(f"{NAMES}?node_id={head}&glob=*.out"))
        assert {*fields(recorded_answer(found, "names"))} <= {*names}
        with pytest.raises(PlaceMissing):
            ray.read(PACKAGE)
        put_value(ray, "sgpu_a.zip", b"hello")
        assert ray.read(PACKAGE) == b""
        for path in answers:
            there = fields(cluster.get(f"{path}?view=summary&detail=1"))
            assert {*fields(answers[path])} <= {*there}, path
        assert ray.post(STOP, {}) == recorded_answer(found, "stop")


def places(value: Any, here: Path = ()) -> Iterator[Path]:
    """The paths of all values inside of a value."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inside in items:
        yield (*here, key)
        yield from places(inside, (*here, key))


def refusal(read: Callable[[Dashboard], object], dashboard: Dashboard) -> BackendError | None:
    try:
        read(dashboard)
    except BackendError as error:
        return error
    return None


def changed(value: Any, place: Path, wrong: Any) -> Any:
    """A copy with another value at a place; without it for `...`."""
    answer = copy.deepcopy(value)
    *folders, last = place
    block = answer
    for key in folders:
        block = block[key]
    if wrong is ...:
        del block[last]
    else:
        block[last] = wrong
    return answer


def fields(value: Any, here: str = "") -> Iterator[str]:
    """The paths of the fields of an answer."""
    if isinstance(value, list):
        for item in value:
            yield from fields(item, f"{here}[]")
    elif isinstance(value, dict):
        for key, inside in value.items():
            yield f"{here}.{key}"
            if key not in OPEN:
                yield from fields(inside, f"{here}.{key}")
