"""The MLflow run of ranks on other machines: the real server, and nodes that are processes with a
folder of their own."""

import json
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.testing.file_search import files_with
from tests.cli.conftest import Shell
from tests.support import require, until
from tests.tracking.conftest import Door

require("mlflow")
pytestmark = pytest.mark.mlflow

ROOT = Path(__file__).parents[2]
RUN = """\
name: echo
gpus: 2
type: CPU
grace: 1s
tags: {{team: vision}}
backend: {{kind: folder, root: {root}, nodes: 2}}
mlflow: {{run_name: {name}, experiment: nodes}}
"""


@pytest.fixture
def nodes(project: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A project whose runs go to nodes that share one folder."""
    site = tmp_path / "site"
    installed = site / "folder_backend-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Name: folder-backend\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        "[sgpu.backends]\nfolder = tests.contracts.folder_backend.kind:KIND\n"
    )
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.syspath_prepend(site)
    return project


def declare(shell: Shell, name: str, entry: str, more: str = "") -> None:
    shell.write(
        "run.yaml", RUN.format(root=shell.folder.parent / "shared", name=name) + entry + more
    )


def link(shell: Shell) -> dict[str, Any]:
    (run,) = shell.here("status", "echo", "-o", "json").json["data"]["runs"]
    return dict(run["links"].get("mlflow", {}))


@pytest.mark.expensive
def test_ranks_on_nodes_log_to_the_run_of_their_attempt(nodes: Shell, door: Door) -> None:
    nodes.environ["MLFLOW_TRACKING_URI"] = door.uri
    nodes.environ["MLFLOW_EXPERIMENT_NAME"] = "nodes"
    nodes.write(
        "train.py",
        "import json, os, mlflow\n"
        "names = ('TRACKING_URI', 'RUN_ID', 'EXPERIMENT_ID', 'EXPERIMENT_NAME')\n"
        "print(json.dumps({name: os.environ['MLFLOW_' + name] for name in names}), flush=True)\n"
        "mlflow.log_metric('loss' + os.environ['RANK'], 0.5)\n",
    )
    declare(nodes, "on-nodes", "entrypoint: train.py\n")

    done = nodes.here("apply", "-y")

    assert done.code == 0, done.err
    (run,) = door.runs("on-nodes")
    info, data = run["info"], run["data"]
    assert info["status"] == "FINISHED"
    assert {item["key"] for item in data["metrics"]} == {"loss0", "loss1"}
    assert {"key": "sgpu.gpus", "value": "2"} in data["params"]
    tags = {item["key"]: item["value"] for item in data["tags"]}
    assert (tags["sgpu.address"], tags["sgpu.state"], tags["team"]) == (
        "run.echo", "succeeded", "vision",
    )  # fmt: skip
    told = link(nodes)
    assert (told["run_id"], told["experiment"]) == (info["run_id"], "nodes")
    variables = {
        "TRACKING_URI": door.uri,
        "RUN_ID": info["run_id"],
        "EXPERIMENT_ID": info["experiment_id"],
        "EXPERIMENT_NAME": "nodes",
    }
    lines = nodes.here("logs", "echo", "--rank", "all").out.splitlines()
    said = [json.loads(line[line.index("{") :]) for line in lines if "{" in line]
    assert said == [variables] * 2


def test_a_server_that_is_down_costs_the_run_nothing_but_its_mlflow_run(
    nodes: Shell, door: Door
) -> None:
    door.close()
    nodes.environ["MLFLOW_TRACKING_URI"] = door.uri
    declare(nodes, "down", "command: 'env'\n")

    done = nodes.here("apply", "-y")

    assert done.code == 0, done.err
    assert "MLFLOW_RUN_ID" not in done.out
    reason = (
        f"{door.uri} cannot be reached: Connection refused; what ranks log is lost with their nodes"
    )
    assert f"echo#1 is not tracked by MLflow: {reason}" in done.err
    assert link(nodes) == {"error": reason}


def test_a_run_whose_server_was_down_at_its_end_is_closed_by_a_later_command(
    nodes: Shell, door: Door, tmp_path: Path
) -> None:
    nodes.environ["MLFLOW_TRACKING_URI"] = door.uri
    gate = tmp_path / "gate"
    waits = f"command: 'while ! [ -e {gate} ]; do sleep 0.05; done; exit 3'\n"
    declare(nodes, "late", f"timeout: 5m\n{waits}")
    assert nodes.here("apply", "-y", "--detach").code == 0
    until(lambda: door.runs("late"))
    door.close()
    gate.touch()

    nodes.here("wait", "echo")
    (run,) = door.runs("late")
    assert run["info"]["status"] == "RUNNING"
    door.open()
    nodes.here("status")

    (run,) = door.runs("late")
    assert run["info"]["status"] == "FAILED"
    tags = {item["key"]: item["value"] for item in run["data"]["tags"]}
    assert (tags["sgpu.state"], tags["sgpu.failure_class"]) == ("failed", "exit_code")
    assert not list((nodes.folder / ".sgpu" / "mlflow-open").iterdir())


def test_a_password_in_the_exported_uri_stands_on_no_disk(
    nodes: Shell, door: Door, tmp_path: Path
) -> None:
    nodes.environ["MLFLOW_TRACKING_URI"] = door.uri.replace("//", "//ann:correct-horse@")
    declare(nodes, "secret", "command: 'printenv MLFLOW_TRACKING_URI'\n")

    done = nodes.here("apply", "-y")

    assert door.runs("secret")[0]["info"]["status"] == "FINISHED"
    assert f"\n{door.uri}\n" in done.out
    assert files_with(b"correct-horse", tmp_path) == []
