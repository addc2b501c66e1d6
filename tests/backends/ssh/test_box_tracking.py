"""The MLflow run of an attempt on a box."""

import json
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.testing.contracts.backend_bench import BackendBench
from tests.ssh_server import SshServer
from tests.support import require, until
from tests.tracking.conftest import Door, door, mlflow_tables, server_port

__all__ = ["door", "mlflow_tables", "server_port"]

LOGS = """
import os

import mlflow


def main():
    mlflow.log_metric("loss", 0.5)
    mlflow.log_metric(f"loss/rank_{os.environ['RANK']}", 0.25, step=1)
"""


@pytest.fixture
def tracked(bench: BackendBench, server: SshServer, mlflow_tables: Path) -> BackendBench:
    """A project whose ranks log to MLflow, by a Python of the box that has it. Its user there has
    the tables of MLflow's store already, or makes them for all tests."""
    require("mlflow")
    cache = server.home / ".cache/sgpu"
    cache.mkdir(parents=True)
    (cache / "mlflow").symlink_to(mlflow_tables)
    (bench.project / "train.py").write_text(LOGS)
    declare(bench, python=sys.executable)
    return bench


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """A Python that has no package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    return tmp_path / "venv"


def declare(bench: BackendBench, **backend: str) -> None:
    block = {**bench.case.fields["backend"], **backend}
    bench.declare("main", like="pair", backend=block, mlflow={"experiment": "boxes"})


@pytest.mark.expensive
def test_a_server_that_the_box_reaches_has_the_run(bench: BackendBench, door: Door) -> None:
    bench.declare("value", args={"gate": str(bench.gate)}, mlflow={"tracking_uri": door.uri})

    run = bench.ran()

    assert run["state"] == "succeeded"
    until(lambda: door.runs("hello#1")[0]["info"]["status"] == "FINISHED")
    (tracked,) = door.runs("hello#1")
    shown = bench.done("show", "hello", "-o", "json").data
    assert tracked["info"]["run_id"] in str(shown)


@pytest.mark.mlflow
@pytest.mark.expensive
def test_runs_that_name_no_server_are_in_a_store_of_their_project_on_the_box(
    tracked: BackendBench, server: SshServer
) -> None:
    planned = tracked.done("plan", "-o", "json").data
    assert "tracking_unreachable" not in [check["id"] for check in planned["checks"]]

    run = tracked.ran()

    assert run["state"] == "succeeded", tracked("logs", "hello")
    link = tracked.done("show", "hello", "-o", "json").data["links"]["mlflow"]
    stored = _run(link)
    assert stored.info.status == "FINISHED"
    assert stored.data.metrics == {"loss": 0.5, "loss/rank_0": 0.25, "loss/rank_1": 0.25}
    assert stored.data.params["sgpu.gpus"] == "2"
    assert stored.data.tags["sgpu.address"] == "run.hello"
    assert link["experiment"] == "boxes"
    (row,) = tracked.done("results", "hell*", "-o", "json").data["runs"]
    assert row["metrics"] == stored.data.metrics
    tracked.done("report", "hello", "-o", "page.html")
    assert "loss/rank_1" in (tracked.project / "page.html").read_text()
    for words in (("mlflow", "sync", "hello"), ("report", "--upload", "hello", "-o", "page.html")):
        refused = tracked(*words)
        assert (refused.code, "store on `box`" in refused.err) == (1, True), refused

    server.stop()
    away = tracked.done("results", "hell*", "-o", "json").data
    assert away["runs"][0]["metrics"] == {}
    assert "cannot reach `box` by ssh" in str(away)


def _run(link: Any) -> Any:
    """The MLflow run of a link: tests see the files of their box."""
    from mlflow import MlflowClient

    return MlflowClient(link["tracking_uri"]).get_run(link["run_id"])


def test_a_run_whose_python_has_no_mlflow_is_not_tracked_and_the_plan_says_so(
    bench: BackendBench, venv: Path
) -> None:
    block = {**bench.case.fields["backend"], "python": f"{venv}/bin/python"}
    gate = {"gate": str(bench.gate)}
    bench.declare("value", args=gate, backend=block, mlflow={"enabled": True})
    (refused,) = [
        check
        for check in bench("plan", "-o", "json").data["checks"]
        if check["id"] == "mlflow_missing"
    ]
    bench.declare("value", args=gate, backend=block, mlflow={})

    planned = bench.done("plan")
    run = bench.ran()

    missing = f"MLflow is not installed in `{venv}/bin/python` of `box`"
    assert refused["summary"] == f"`mlflow.enabled: true` asks for tracking, and {missing}"
    assert f"runs are not tracked: {missing}" in planned.out
    assert run["state"] == "succeeded"
    assert "mlflow" not in run["links"]


def test_what_nobody_knew_before_the_launch_is_said_after_it(
    bench: BackendBench, venv: Path
) -> None:
    """What environments have is seen on the box alone. A package without metadata stands for it."""
    (packages,) = venv.glob("lib/*/site-packages")
    (packages / "mlflow").mkdir()
    (packages / "mlflow/__init__.py").touch()
    block = {**bench.case.fields["backend"], "python": f"{venv}/bin/python"}
    bench.declare("value", args={"gate": str(bench.gate)}, backend=block, mlflow={})

    done = bench.done("apply", "-y")

    assert f"hello#1 is not tracked by MLflow: `{venv}/bin/python` has no MLflow" in done.err


@pytest.mark.mlflow
@pytest.mark.expensive
def test_the_pages_of_that_store_open_here_and_end_with_the_command(
    tracked: BackendBench, venv: Path
) -> None:
    import mlflow

    (packages,) = venv.glob("lib/*/site-packages")
    lent = packages / "lent.pth"
    lent.write_text(str(Path(mlflow.__file__).parents[1]))
    declare(tracked, python=f"{venv}/bin/python")
    assert tracked.ran()["state"] == "succeeded", tracked("logs", "hello")
    shown = tracked.done("show", "hello")
    assert "the MLflow run is in a store on box: `sgpu mlflow ui" in shown.out
    assert "metrics: `sgpu mlflow ui" in tracked.done("status").err

    link = tracked.done("show", "hello", "-o", "json").data["links"]["mlflow"]
    words = [sys.executable, "-m", "sgpu_decl", "mlflow", "ui"]
    with subprocess.Popen(
        words, cwd=tracked.project, env=tracked._environ, stdout=subprocess.PIPE
    ) as pages:
        assert pages.stdout is not None
        url = pages.stdout.readline().decode().strip()
        with urllib.request.urlopen(
            f"{url}/api/2.0/mlflow/runs/get?run_id={link['run_id']}", timeout=60
        ) as answer:
            run = json.loads(answer.read())["run"]
        store = link["tracking_uri"].encode()
        serving = _programs(store)
        pages.send_signal(signal.SIGINT)
        assert pages.wait() == 0

    assert {item["key"]: item["value"] for item in run["data"]["metrics"]}["loss"] == 0.5
    assert serving
    until(lambda: not _programs(store))
    lent.unlink()
    refused = tracked("mlflow", "ui")
    assert refused.code == 1
    assert f"`box` refuses it: `{venv}/bin/python` has no MLflow" in refused.err
    assert "hint: install it there, on `box`" in refused.err


def _programs(text: bytes) -> list[str]:
    """The programs that were started with a text in their words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if text in path.read_bytes():
                found.append(path.parent.name)
    return found
