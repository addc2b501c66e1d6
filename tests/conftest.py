"""What holds for all tests."""

import gc
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from sgpu_decl.testing.ray_cluster import RayCluster, ray_cluster
from sgpu_decl.testing.slurm_cluster import SlurmCluster, missing_programs, slurm_cluster
from sgpu_decl.testing.workspace import WorkspaceServer
from tests.object_server import ObjectServer, running_object_server
from tests.postgres_server import binaries, running_server
from tests.ray_versions import BOTH_RAYS, forget_outer_ray, interpreter_with, one_version
from tests.sampling import SAMPLE, thinned
from tests.support import require
from tests.temporary_root import choose_temporary_root
from tests.webhook_server import WebhookServer
from tests.workspace_login import log_in

# Tests start some thousand processes: where no bytecode is kept, each compiles the package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# How long an example takes says more about the neighbours on a machine than about the code.
# A change is judged by the same examples each time; `make soak` looks for others.
settings.register_profile(
    "sgpu",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=SAMPLE != "all",
)
settings.load_profile("sgpu")

_MORE = 100  # descriptors that tests may leave open until they are collected
_GONE = 30.0  # seconds; what a test has ended itself takes one or two to go
_HOMES = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts background jobs with interrupts ignored, and every child would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    forget_outer_ray()
    if not hasattr(config, "workerinput"):  # workers inherit the environment of the first process
        choose_temporary_root(config.getoption("basetemp"))
        homes = tempfile.mkdtemp(prefix="sgpu-tests-")
        config.stash[_HOMES] = homes
        for name in ("CACHE", "DATA", "STATE"):
            os.environ[f"XDG_{name}_HOME"] = os.path.join(homes, name.lower())


def pytest_unconfigure(config: pytest.Config) -> None:
    if homes := config.stash.get(_HOMES, None):
        shutil.rmtree(homes, ignore_errors=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """The collected tests are a million objects that stay: Python's collector looks at the others
    alone."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.collect()  # from here on the collector compares with what is left


_open = [0]  # descriptors of this process, when the collector had looked at everything


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish() -> None:
    """Clients of workspaces refer to themselves, and so keep their connections until the collector
    looks at everything, which it puts off for hundreds of tests."""
    if len(os.listdir("/proc/self/fd")) > _open[0] + _MORE:
        gc.collect()
        _open[0] = len(os.listdir("/proc/self/fd"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """MLflow's `set_experiment` keeps its choice in the environment, which later tests inherit."""
    before = _of_mlflow()
    try:
        return (yield)
    finally:
        for name in _of_mlflow().keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _of_mlflow() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("MLFLOW_")}


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a database on a real server. Each test uses a schema of its own."""
    programs = binaries()
    if programs is None:
        pytest.skip("there is no PostgreSQL: neither that of the system nor that of the wheel")
    with running_server(programs) as url:
        yield url


@pytest.fixture(scope="session")
def object_server() -> Iterator[ObjectServer]:
    """An S3 server. Each test uses a bucket of its own."""
    for library in ("obstore", "moto"):
        require(library)
    with running_object_server() as running:
        yield running


@pytest.fixture
def object_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials for that server, which takes any, and nothing else of AWS."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "sgpu")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tests")


@pytest.fixture(scope="session")
def files_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkspaceServer]:
    """A workspace that keeps the files of tests, and runs nothing."""
    with WorkspaceServer(tmp_path_factory.mktemp("files")) as running:
        yield running


@pytest.fixture
def files_token(
    files_server: WorkspaceServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> str:
    """A user of that workspace; the environment says so to the SDK."""
    require("databricks.sdk")
    return log_in(files_server, monkeypatch, tmp_path)


@pytest.fixture
def files_tenant(files_server: WorkspaceServer, files_token: str) -> Path:
    """What the user's part of that workspace is on disk."""
    return files_server.tenants.of_token(files_token).folder


@pytest.fixture(params=BOTH_RAYS)
def ray_python(request: pytest.FixtureRequest) -> str:
    """The path of an interpreter that has Ray: once the newest, once the oldest."""
    return interpreter_with(request.param)


@pytest.fixture(scope="session", params=BOTH_RAYS)
def cluster(request: pytest.FixtureRequest) -> Iterator[RayCluster]:
    """Two nodes, for all tests that leave them as they are. Their GPUs are numbers without
    devices."""
    python = interpreter_with(request.param)
    with ray_cluster(nodes=2, cpus=8, gpus=4, gpu_type="H100", python=python) as running:
        yield running


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    """A Slurm of two nodes, for all tests that leave them as they are."""
    missing = missing_programs()
    if missing:
        pytest.skip(f"no Slurm here: install `slurm-wlm slurmctld slurmd munge` ({missing[0]})")
    with slurm_cluster() as running:
        yield running


# A cluster takes a sixth of a core while it has nothing to do. So tests that start Ray run first,
# those that share a cluster before others, and a cluster ends with the last test in a row that
# shares it. Of two processes that run the tests, one has them all.


@pytest.hookimpl(trylast=True)  # pytest's own order has the values of other parameters in it
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = thinned(one_version(items))
    config.hook.pytest_deselected(items=[*{*items}.difference(kept)])
    items[:] = kept
    if SAMPLE != "all":  # `make soak` looks for what fails now and then
        for item in filter(_starts_ray, items):
            item.add_marker(pytest.mark.flaky(reruns=1))
    items.sort(key=lambda item: (not _version(item), _version(item) or "", not _starts_ray(item)))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    version = _version(item)
    if not version:
        return
    assert isinstance(item, pytest.Function)
    (fixture,) = item._fixtureinfo.name2fixturedefs["cluster"]
    last = nextitem is None or version != _version(nextitem)
    try:
        if not last and fixture.cached_result is not None and fixture.cached_result[2] is None:
            _check_shared(fixture.cached_result[0])
    except BaseException:
        last = True  # the next test gets another cluster
        raise
    finally:
        if last:
            fixture.finish(item._request)  # type: ignore[arg-type]  # it reads the node alone


def _check_shared(cluster: RayCluster) -> None:
    """Fail the test that leaves a node dead, a run active or a placement group behind for the next
    test. What has just ended may take a moment to go."""
    deadline = time.monotonic() + _GONE
    while left := cluster.leftovers():
        if time.monotonic() > deadline:
            pytest.fail(f"the test leaves on the shared cluster: {', '.join(left)}", pytrace=False)
        time.sleep(0.1)


def _starts_ray(item: pytest.Item) -> bool:
    return item.get_closest_marker("ray") is not None


def _version(item: pytest.Item) -> str | None:
    """Which Ray the shared cluster of a test has; None for a test without it."""
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("cluster") if callspec and _starts_ray(item) else None


@pytest.fixture
def hook() -> Iterator[WebhookServer]:
    """A server that is told of the ends of runs."""
    made = WebhookServer()
    yield made
    made.close()
