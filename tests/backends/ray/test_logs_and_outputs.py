"""Logs and outputs of runs on clusters: of a rank that writes much, after a fetch was killed, after
the session of Ray has ended, and when the launch folder is gone."""

import hashlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.testing.ray_cluster import RayCluster, ray_cluster
from tests.backends.ray.cluster_run import ClusterRun
from tests.backends.ray.lossy_proxy import LossyProxy, lossy_proxy
from tests.ray_versions import NEWEST_CLUSTER
from tests.support import until

pytestmark = [pytest.mark.ray, pytest.mark.expensive]

CODE = """\
import os, pathlib, time

def write(seconds, gate):
    \"\"\"Write 10 MB each second in lines of 1,000 bytes; wait for the test.\"\"\"
    begun = time.monotonic()
    for tick in range(seconds * 100):
        for number in range(100 * tick, 100 * (tick + 1)):
            print(f"{number:<999}")
        time.sleep(max(0.0, begun + tick / 100 - time.monotonic()))
    while not pathlib.Path(gate, "go-0").exists():
        time.sleep(0.01)

def leave(files, size):
    folder = pathlib.Path(os.environ["SGPU_OUTPUT_DIR"])
    for number in range(files):
        (folder / str(number)).write_text(f"file {number}")
    (folder / "large").write_bytes(bytes(range(256)) * (size // 256))
    return files
"""


def test_a_rank_that_writes_10_mb_each_second_is_followed(
    cluster: RayCluster, tmp_path: Path
) -> None:
    seconds = 4
    run = one_rank(cluster, tmp_path, "write", seconds=seconds, gate=str(tmp_path / "gate"))
    run.bench.launched()
    expected = [f"{number:<999}" for number in range(seconds * 10_000)]

    with run.bench.backend() as backend:
        reader = backend.attempts.logs(run.bench.record("hello"), ranks=None, follow=True)
        lines: list[str] = []

        def read() -> bool:
            """Read what is new; tell whether these are the last lines."""
            new, ended = reader.read()
            lines.extend(line.text for line in new)
            return ended

        until(lambda: not read() and len(lines) >= len(expected))  # while the rank lives
        assert lines == expected
        run.bench.go()
        until(read)

    assert lines == expected
    assert run.bench.ended()["state"] == "succeeded"


@pytest.fixture
def proxy(cluster: RayCluster) -> Iterator[LossyProxy]:
    with lossy_proxy(cluster.url) as running:
        yield running


def test_a_fetch_that_was_killed_goes_on_with_what_is_missing(
    cluster: RayCluster, proxy: LossyProxy, tmp_path: Path
) -> None:
    files, size = 24, 20_000_000
    run = one_rank(cluster, tmp_path, "leave", address=proxy.url, files=files, size=size)
    run.bench.ran()

    # Eight are fetched at once, so ten are here when the 18th begins.
    step = "sgpu_decl.backends.ray.head.head_place,HeadPlace,fetch,before,18"
    run.bench.killed(step, "fetch", "hello")

    (output,) = run.bench.project.glob(".sgpu/*/runs/hello/1/output")
    here = {path.name for path in output.iterdir()}
    assert 10 <= len(here) < files + 1
    proxy.forget()
    brought = run.bench.done("fetch", "hello", "-o", "json").data

    assert Path(brought["folder"]) == output
    asked = {name for one in proxy.requests for name in re.findall(r"output(?:/|%2F)(\d+)\b", one)}
    assert asked
    assert not asked & here
    for number in range(files):
        assert (output / str(number)).read_text() == f"file {number}"
    large = hashlib.sha256(bytes(range(256)) * (size // 256)).digest()
    assert hashlib.sha256((output / "large").read_bytes()).digest() == large


def test_after_the_session_of_ray_results_are_kept_and_files_are_reported_gone(
    ray_python: str, tmp_path: Path
) -> None:
    with ray_cluster(nodes=1, cpus=2, python=ray_python) as cluster:
        run = one_rank(cluster, tmp_path, "leave", files=1, size=0)
        assert run.bench.ran()["state"] == "succeeded"
        cluster.kill_node(0)

        assert run.bench.status()["state"] == "succeeded"
        assert run.bench.results() == [(0, 1)]
        for command in ("fetch", "logs"):
            assert "error[host_unreachable]" in run.bench(command, "hello").err

        cluster.restart_node(0)

        assert run.bench.status()["state"] == "succeeded"
        assert run.bench.results() == [(0, 1)]
        for command in ("fetch", "logs"):
            answer = run.bench(command, "hello", "-o", "json")
            assert answer.code == 1
            assert answer.error["message"].startswith("the files of `hello#1` are gone: ")
            assert "`backend.storage` keeps them longer" in answer.error["hint"]
        (change,) = run.bench.done("plan", "-o", "json").data["changes"]
        assert change["action"] == "no_op"


@NEWEST_CLUSTER
def test_a_run_whose_log_is_gone_has_ended_as_before(cluster: RayCluster, tmp_path: Path) -> None:
    run = ClusterRun(cluster, tmp_path)
    run.bench.declare("leave_with", args={"code": 3}, gpus=1)
    assert run.bench.ran()["state"] == "failed"
    assert "these words are my last" in run.bench("wait", "hello").err
    shutil.rmtree(run.launch_folder("hello"))

    answer = run.bench("wait", "hello")

    assert answer.code == 5
    assert "hello#1 failed" in answer.err
    assert "last lines" not in answer.err


def one_rank(
    cluster: RayCluster, folder: Path, function: str, *, address: str | None = None, **args: object
) -> ClusterRun:
    run = ClusterRun(cluster, folder, storage=False, address=address)
    (run.bench.project / "code.py").write_text(CODE)
    run.bench.declare("", gpus=1, entrypoint=f"code.py:{function}", args=args)
    return run
