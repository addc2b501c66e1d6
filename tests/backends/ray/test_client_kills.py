"""A client that dies at any step of a launch: the next apply ends in one launch, and nothing stays
in the cluster."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from sgpu_decl.testing.contracts.backend_bench import RECORDED
from sgpu_decl.testing.ray_cluster import RayCluster, ray_cluster
from tests.backends.ray.cluster_run import ClusterRun
from tests.ray_versions import NEWEST_CLUSTER, OLDEST_RAY
from tests.support import until

pytestmark = [pytest.mark.ray, pytest.mark.expensive]

_LAUNCHER = "sgpu_decl.backends.ray.launching.ray_launcher"
_MARK = "sgpu_decl.backends.remote.launching.remote_launches,RemoteLaunches,mark"
_FORGET = "sgpu_decl.backends.ray.head.packaged_files,PackagedFiles,forget"
_SUBMIT = "sgpu_decl.backends.ray.launching.ray_launcher,,submit_job"
_PUT_SECRETS, _PUT_PACKAGE = (f"{_LAUNCHER},,put_value,after,{number}" for number in (1, 2))
STEPS = {
    "recorded": f"{RECORDED},begin,after,1",
    "staging": f"{_LAUNCHER},RayLauncher,stage,before,1",
    "marking": f"{_MARK},before,1",
    "staged": f"{_LAUNCHER},RayLauncher,stage,after,1",
    "cluster found": f"{_LAUNCHER},,session_of,after,2",
    "secrets put": _PUT_SECRETS,
    "package put": _PUT_PACKAGE,
    "submitting": f"{_SUBMIT},before,1",
    "submitted": f"{_SUBMIT},after,1",
    "marked": f"{_MARK},after,2",
    "launched": f"{_LAUNCHER},RayLauncher,launch,after,1",
    "recording": f"{RECORDED},launched,before,1",
}
PACKAGED_STEPS = {
    "files written": f"{_MARK},before,1",
    "staged": f"{_LAUNCHER},RayLauncher,stage,after,1",
    "package put": f"{_LAUNCHER},,put_value,after,1",
    "submitted": f"{_SUBMIT},after,1",
    "remembered": f"{_FORGET},before,1",
}
"""Those at which something else is there without storage: the files of the launch folder wait on
this machine until its job is submitted."""

OF_THE_CLUSTER = ("secrets put", "package put", "submitted")
"""Steps after which Ray has something, so that the oldest has to show them, too."""


def at_each(steps: Mapping[str, str]) -> pytest.MarkDecorator:
    """Run a test once for each step."""
    newest = [pytest.param("newest", step, id=name) for name, step in steps.items()]
    names = [name for name in OF_THE_CLUSTER if name in steps]
    oldest = [pytest.param(OLDEST_RAY, steps[name], id=f"{OLDEST_RAY}-{name}") for name in names]
    cases = newest + oldest
    return pytest.mark.parametrize(
        ("cluster", "step"), cases, indirect=["cluster"], scope="session"
    )


@pytest.fixture
def secret_run(cluster: RayCluster, tmp_path: Path) -> ClusterRun:
    run = ClusterRun(cluster, tmp_path, {"THE_WORD": "a-value-that-nobody-may-see"})
    secrets = {"secrets": {"WORD": "env:THE_WORD"}}
    run.bench.declare("value", args={"gate": str(run.bench.gate)}, env=secrets)
    return run


@at_each(STEPS)
def test_a_client_that_dies_is_followed_by_one_launch(secret_run: ClusterRun, step: str) -> None:
    bench = secret_run.bench
    bench.killed(step, "apply", "-y", "--detach")

    run = bench.ran()

    assert (run["attempt"], run["state"]) == (1, "succeeded")
    assert bench.launches == 2  # one for each rank
    secret_run.assert_frees_everything()


@at_each(PACKAGED_STEPS)
def test_a_client_that_dies_without_storage_is_followed_by_one_launch(
    cluster: RayCluster, tmp_path: Path, step: str
) -> None:
    run = ClusterRun(cluster, tmp_path, storage=False)
    run.bench.declare("value", args={"gate": str(run.bench.gate)}, gpus=1)
    run.bench.killed(step, "apply", "-y", "--detach")
    assert len(run.waiting) == 1

    ended = run.bench.ran()

    assert (ended["attempt"], ended["state"]) == (1, "succeeded")
    assert run.bench.launches == 1
    assert run.waiting == []
    run.assert_frees_everything()


@NEWEST_CLUSTER
@pytest.mark.parametrize("storage", [True, False])
def test_the_next_apply_uses_the_package_that_a_killed_client_sent(
    cluster: RayCluster, tmp_path: Path, *, storage: bool
) -> None:
    run = ClusterRun(cluster, tmp_path, storage=storage)
    run.bench.declare("value", args={"gate": str(run.bench.gate)}, gpus=1)
    before = run.unowned()
    run.bench.killed(PACKAGED_STEPS["package put"], "apply", "-y", "--detach")
    assert len(run.unowned() - before) == 1

    assert run.bench.ran()["state"] == "succeeded"

    assert run.unowned() <= before


@pytest.fixture
def forgetful_cluster(ray_python: str) -> Iterator[RayCluster]:
    """Ray deletes what nobody took after 4 s, in place of ten minutes."""
    lifetime = {"RAY_RUNTIME_ENV_TEMPORARY_REFERENCE_EXPIRATION_S": "4"}
    with ray_cluster(nodes=1, cpus=2, python=ray_python, environ=lifetime) as made:
        yield made


@pytest.mark.parametrize("step", [_PUT_SECRETS, _PUT_PACKAGE])
def test_what_a_client_leaves_in_the_store_is_deleted(
    forgetful_cluster: RayCluster, tmp_path: Path, step: str
) -> None:
    run = ClusterRun(forgetful_cluster, tmp_path, {"THE_WORD": "w"})
    secrets = {"secrets": {"WORD": "env:THE_WORD"}}
    run.bench.declare("value", args={"gate": str(run.bench.gate)}, gpus=1, env=secrets)

    run.bench.killed(step, "apply", "-y", "--detach")

    assert run.stored()
    until(lambda: not run.stored())
