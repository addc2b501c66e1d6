"""The FSDP2 training: what it leaves on this machine, and the same file on a workspace."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.system import processes
from tests.examples.conftest import EXAMPLES
from tests.ssh_server import SshServer

Copied = Callable[[str], Any]  # gives an Example of conftest.py


@pytest.mark.expensive
@pytest.mark.torch
@pytest.mark.mlflow
def test_the_training_learns_logs_and_leaves_a_checkpoint(trained: Any) -> None:
    values = [result["value"] for result in trained.data("results", "fsdp")["results"]]
    assert [value["rank"] for value in values] == [0, 1]
    assert all(value["loss"][1] < value["loss"][0] for value in values)

    links = trained.data("show", "fsdp")["links"]
    assert "after epoch 2" in _load(trained, links["output"])

    from mlflow import MlflowClient

    run = MlflowClient(links["mlflow"]["tracking_uri"]).get_run(links["mlflow"]["run_id"])
    assert {"loss", "loss/rank_0", "loss/rank_1"} <= set(run.data.metrics)


@pytest.mark.torch
@pytest.mark.mlflow
@pytest.mark.expensive
def test_two_nodes_of_a_workspace_train_as_this_machine_does(
    trained: Any,
    short: tuple[str, ...],
    workspace: Any,
) -> None:
    where = ("-t", "databricks")
    applied = trained.sgpu("apply", "-y", *where, *short, "run.yaml")
    assert applied.returncode == 0, applied.stderr

    values = [item["value"] for item in trained.data("results", "fsdp", *where)["results"]]
    assert values == [item["value"] for item in trained.data("results", "fsdp")["results"]]
    assert [value["device"] for value in values] == ["cpu", "cpu"]

    (run,) = trained.data("status", *where)["runs"]
    assert (run["state"], run["backend"]) == ("succeeded", "databricks")
    assert {(item["rank"], item["node_rank"], item["state"]) for item in run["ranks"]} == {
        (0, 0, "succeeded"),
        (1, 1, "succeeded"),
    }
    logs = trained.sgpu("logs", "fsdp", "--rank", "all", *where).stdout
    for rank in (0, 1):
        assert f"[fsdp {rank}] rank {rank} of 2 on cpu" in logs
    assert f"epoch 2 of 2: loss {values[0]['loss'][1]:.4f}" in logs
    assert trained.sgpu("plan", "--detailed-exitcode", *where, *short, "run.yaml").returncode == 0

    fetched = trained.data("fetch", "fsdp", *where)
    assert fetched["lacking"] == []
    assert "after epoch 2" in _load(trained, fetched["folder"])

    from mlflow import MlflowClient

    tracked = MlflowClient("databricks").get_run(run["links"]["mlflow"]["run_id"])
    assert {"loss", "loss/rank_0", "loss/rank_1"} <= set(tracked.data.metrics)


@pytest.mark.ray
@pytest.mark.torch
@pytest.mark.mlflow
@pytest.mark.expensive
def test_two_nodes_of_a_ray_cluster_train_as_this_machine_does(
    trained: Any, short: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the cluster that the example starts."""
    with subprocess.Popen(
        [sys.executable, EXAMPLES / "ray/cluster.py", "--nodes", "2"],
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        assert started.stdout is not None
        for _ in range(3):
            _, name, value = re.split("[ =]", started.stdout.readline().strip(), maxsplit=2)
            monkeypatch.setenv(name, value)
        applied = trained.sgpu("apply", "-y", "-t", "ray", *short, "run.yaml")
        assert applied.returncode == 0, applied.stderr
        values = [item["value"] for item in trained.data("results", "fsdp", "-t", "ray")["results"]]
        (run,) = trained.data("status", "-t", "ray")["runs"]
        planned = trained.sgpu("plan", "--detailed-exitcode", "-t", "ray", *short, "run.yaml")
        nodes = processes.related(started.pid)
        started.terminate()
        assert started.wait() == 0
    assert nodes
    assert not [pid for pid in nodes if processes.start_time(pid) is not None]
    assert values == [item["value"] for item in trained.data("results", "fsdp")["results"]]
    assert (run["state"], run["backend"]) == ("succeeded", "ray")
    assert [rank["node_rank"] for rank in run["ranks"]] == [0, 1]
    assert planned.returncode == 0


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine that ssh reaches as `box`."""
    server = SshServer(tmp_path / "box")
    monkeypatch.setenv("PATH", f"{server.path}{os.pathsep}{os.environ['PATH']}")
    yield
    server.close()


@pytest.mark.torch
@pytest.mark.mlflow
@pytest.mark.expensive
@pytest.mark.parametrize("target", ["slurm", "box"])
def test_a_cluster_with_slurm_and_a_machine_by_ssh_train_as_this_machine_does(
    trained: Any, short: tuple[str, ...], target: str, request: pytest.FixtureRequest,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    where = request.getfixturevalue(target)
    for name, value in where.environ.items() if target == "slurm" else ():
        monkeypatch.setenv(name, value)
    (tmp_path / "storage").mkdir()
    words = ("-t", target, *short, "--set", f"backend.storage={tmp_path / 'storage'}")
    words += ("--set", f"backend.python={sys.executable}", "run.yaml")

    applied = trained.sgpu("apply", "-y", *words)

    assert applied.returncode == 0, applied.stderr
    values = [item["value"] for item in trained.data("results", "fsdp", "-t", target)["results"]]
    assert values == [item["value"] for item in trained.data("results", "fsdp")["results"]]
    assert trained.sgpu("plan", "--detailed-exitcode", *words).returncode == 0
    if target == "box":
        (row,) = trained.data("results", "fsd*", "-t", target)["runs"]
        assert {"loss", "loss/rank_0", "loss/rank_1"} <= set(row["metrics"])


BREAKS_OFF = """
    import socket, sys
    port = int(sys.argv[sys.argv.index("--dashboard-port") + 1])
    with socket.create_server(("", port)) as server, server.accept()[0] as asked:
        asked.recv(999)
        asked.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 99\\r\\n\\r\\n{")
"""


@pytest.mark.parametrize("before", ["", BREAKS_OFF], ids=["silent", "breaks off"])
def test_a_cluster_that_ray_does_not_start_ends_with_a_sentence(
    tmp_path: Path, before: str
) -> None:
    """Not with a traceback. A Ray that ends at once stands for one that is too slow."""
    scripts = tmp_path / "ray/scripts"
    scripts.mkdir(parents=True)
    for folder in (tmp_path / "ray", scripts):
        (folder / "__init__.py").touch()
    (scripts / "scripts.py").write_text(
        f"def main():{before}\n    raise SystemExit('too slow today')\n"
    )
    started = subprocess.run(
        [sys.executable, EXAMPLES / "ray/cluster.py", "--nodes", "1"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert started.returncode == 1
    assert "Traceback" not in started.stderr
    assert "error: a node of Ray did not start" in started.stderr
    assert "too slow today" in started.stderr
    assert "hint: a busy machine" in started.stderr.splitlines()[-1]


def test_its_plan_for_a_workspace_is_as_the_golden_file_says(
    example: Copied, workspace: Any
) -> None:
    item = example("fsdp")
    item.golden("plan-databricks.txt", item.sgpu("plan", "-t", "databricks", "run.yaml").stdout)


def _load(item: Any, folder: str | Path) -> str:
    """What a process says that loads the newest checkpoint below a folder."""
    return subprocess.run(
        [sys.executable, item.folder / "load_checkpoint.py", folder],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
