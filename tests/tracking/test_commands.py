"""Tracking as a user sees it: the real store, the real server, and `sgpu` in a process."""

import fcntl
import json
import os
import socket
import sqlite3
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar

import pytest

from tests.cli.conftest import Shell
from tests.http_servers import QuietServer
from tests.support import PATIENCE, require, until
from tests.tracking.conftest import Door

require("mlflow")
pytestmark = pytest.mark.mlflow

COMMAND = "name: echo\ngpus: 1\ntype: CPU\ngrace: 1s\ncommand: '{}'\n"
PRINTS = COMMAND.format("env")


def links(shell: Shell, name: str = "echo") -> dict[str, Any]:
    """What `status` says of the tracking of a run."""
    (run,) = shell.here("status", name, "-o", "json").json["data"]["runs"]
    return dict(run["links"].get("mlflow", {}))


def row(shell: Shell, run_id: str) -> tuple[str, str]:
    """The status and the experiment of a run in the project's own store."""
    with closing(sqlite3.connect(shell.folder / ".sgpu" / "mlflow.db")) as db:
        return db.execute(
            "SELECT status, e.name FROM runs JOIN experiments e USING (experiment_id) "
            "WHERE run_uuid = ?",
            (run_id,),
        ).fetchone()


def blocked(shell: Shell) -> None:
    """Let every import of MLflow end the process that tries it."""
    (shell.folder.parent / "blocked").mkdir()
    (shell.folder.parent / "blocked" / "mlflow.py").write_text("import os\nos._exit(77)\n")
    shell.environ["PYTHONPATH"] = str(shell.folder.parent / "blocked")


@pytest.mark.expensive
def test_a_command_has_its_run_though_nobody_imports_mlflow(project: Shell) -> None:
    project.write("run.yaml", PRINTS)
    assert project("apply", "-y").code == 0  # the tables are there now
    blocked(project)
    done = project("apply", "-y", "--rerun", "echo")
    assert done.code == 0, done.err
    told = links(project)
    uri = f"sqlite:///{project.folder}/.sgpu/mlflow.db"
    assert f"MLFLOW_TRACKING_URI={uri}\n" in done.out
    assert f"MLFLOW_RUN_ID={told['run_id']}\n" in done.out
    assert f"MLFLOW_EXPERIMENT_ID={told['experiment_id']}\n" in done.out
    until(lambda: row(project, told["run_id"]) == ("FINISHED", "echo"))


@pytest.mark.expensive
def test_a_command_has_its_run_on_a_server_though_nobody_imports_mlflow(
    project: Shell, door: Door
) -> None:
    blocked(project)
    project.write("run.yaml", f"{PRINTS}mlflow: {{tracking_uri: '{door.uri}'}}\n")
    done = project("apply", "-y", "--set", "mlflow.run_name=plain-rest")
    assert done.code == 0, done.err
    (run,) = door.runs("plain-rest")
    assert f"MLFLOW_RUN_ID={run['info']['run_id']}\n" in done.out
    params = {item["key"]: item["value"] for item in run["data"]["params"]}
    assert params["sgpu.command"] == "env"
    until(lambda: door.runs("plain-rest")[0]["info"]["status"] == "FINISHED")


def test_an_experiment_that_is_made_keeps_its_artifacts_where_the_file_says(
    project: Shell, door: Door
) -> None:
    """As MLflow's own client says it; a path is taken from the folder of the file."""
    import mlflow

    blocked(project)
    stored = f"experiment: elsewhere, artifact_location: kept/here, tracking_uri: '{door.uri}'"
    project.write("run.yaml", f"{PRINTS}mlflow: {{{stored}}}\n")

    done = project("apply", "-y")

    assert done.code == 0, done.err
    found = mlflow.MlflowClient(door.uri).get_experiment_by_name("elsewhere")
    assert found.artifact_location == str(project.folder / "kept/here")


@pytest.mark.expensive
@pytest.mark.parametrize(
    ("kind", "state"),
    [("command", "starting"), ("script", "running")],
)
def test_what_an_attempt_waits_for_is_on_the_screen(project: Shell, kind: str, state: str) -> None:
    """A command waits for its MLflow run before it starts, a script that needs none at its end."""
    home = project.folder / ".sgpu"
    home.mkdir()
    with (home / "mlflow.db.lock").open("w") as held:  # somebody else makes the store
        fcntl.flock(held, fcntl.LOCK_EX)
        project.write("train.py", "")
        script = PRINTS.replace("command: 'env'", "entrypoint: train.py")
        project.write("run.yaml", PRINTS if kind == "command" else script)
        assert project("apply", "-y", "--detach").code == 0
        waited_for = f"the store {home}/mlflow.db to be made"  # after MLflow itself
        until(lambda: waited_for in project.here("status", "-o", "json").out)
        (run,) = project.here("status", "-o", "json").json["data"]["runs"]
        assert (run["state"], run["waiting_for"]) == (state, waited_for)
        following = project.start("apply", "-y")
        assert following.stderr is not None
        said = iter(following.stderr.readline, "")
        assert any(f"{state}: waiting for the store {home}" in line for line in said)
    following.communicate(timeout=PATIENCE)
    assert following.returncode == 0


@pytest.mark.expensive
@pytest.mark.parametrize("kind", ["command", "script"])
def test_the_local_store_takes_the_place_of_a_server_that_is_down(
    project: Shell, door: Door, kind: str
) -> None:
    door.close()
    project.write("train.py", "import mlflow\nmlflow.log_metric('loss', 0.5)\n")
    text = PRINTS if kind == "command" else PRINTS.replace("command: 'env'", "entrypoint: train.py")
    project.write("run.yaml", text)
    project.environ["MLFLOW_TRACKING_URI"] = door.uri
    done = project("apply", "-y")
    assert done.code == 0, done.err
    assert f"{door.uri} cannot be reached: Connection refused" in done.err
    assert "sgpu mlflow sync 'echo#1'" in done.err
    told = links(project)
    assert told["instead_of"]["tracking_uri"] == door.uri
    assert told["tracking_uri"] == f"sqlite:///{project.folder}/.sgpu/mlflow.db"
    assert "Connection refused" in project.here("status").err
    said = [line for line in done.err.splitlines() if line.startswith("echo#1 running")]
    assert len(said) == len(set(said))
    folder = project.folder / ".sgpu/default/runs/echo/1"
    outcome = json.loads((folder / "outcome.json").read_text())
    assert outcome["mlflow"]["instead_of"] == told["instead_of"]
    until(lambda: row(project, told["run_id"]) == ("FINISHED", "echo"))
    assert not list(folder.glob("code/mlflow.db"))


def test_a_password_in_the_exported_uri_is_shown_nowhere(project: Shell, door: Door) -> None:
    door.close()
    project.write("run.yaml", PRINTS.replace("command: 'env'", "command: 'true'"))
    project.environ["MLFLOW_TRACKING_URI"] = door.uri.replace("//", "//ann:correct-horse@")
    done = project("apply", "-y")
    assert f"{door.uri} cannot be reached" in done.err
    name = project.here("status", "-o", "json").json["data"]["runs"][0]["name"]
    shown = [done, *(project.here(*words) for words in (
        ["status"], ["status", "-o", "json"], ["show", name], ["show", name, "-o", "json"],
    ))]  # fmt: skip
    assert "correct-horse" not in "".join(item.out + item.err for item in shown)
    assert "ann:***@" in shown[2].out


@pytest.mark.expensive
def test_a_server_that_takes_connections_and_never_answers_is_named_so(project: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        project.write("run.yaml", PRINTS)
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        project.environ["MLFLOW_TRACKING_URI"] = uri
        done = project("apply", "-y")
    assert done.code == 0, done.err
    assert f"{uri} does not answer: no answer in time; push it with" in done.err


def test_a_server_that_dies_midway_fails_no_rank_and_is_told_the_end_once_it_is_back(
    project: Shell, door: Door
) -> None:
    project.write("run.yaml", COMMAND.format("until test -e go; do sleep 0.05; done"))
    project.environ["MLFLOW_TRACKING_URI"] = door.uri
    started = project("apply", "-y", "--detach", "--set", "mlflow.run_name=midway")
    assert started.code == 0, started.err
    folder = project.folder / ".sgpu/default/runs/echo/1"
    until(lambda: (folder / "mlflow.json").exists())
    door.close()
    (folder / "code" / "go").touch()
    assert project.here("wait", "echo").code == 0
    until(lambda: "open" in links(project))
    assert "MLflow does not know yet how echo#1 ended" in project.here("status").err
    assert door.runs("midway")[0]["info"]["status"] == "RUNNING"
    door.open()
    assert "open" not in links(project)
    assert door.runs("midway")[0]["info"]["status"] == "FINISHED"
    assert not os.listdir(project.folder / ".sgpu" / "mlflow-open")


def test_the_end_of_a_run_whose_tracker_was_killed_is_told_by_the_next_command(
    project: Shell,
) -> None:
    project.write("run.yaml", COMMAND.format("until test -e go; do sleep 0.05; done; exit 3"))
    assert project("apply", "-y", "--detach").code == 0
    folder = project.folder / ".sgpu/default/runs/echo/1"
    until(lambda: "tracker_started" in (folder / "events.log").read_text())
    until(lambda: (folder / "mlflow.json").exists())
    (line,) = [
        item for item in (folder / "events.log").read_text().splitlines() if "tracker_st" in item
    ]
    os.kill(json.loads(line.partition(" ")[2])["pid"], 9)
    (folder / "code" / "go").touch()
    assert project.here("wait", "echo").code == 5
    told = links(project)
    assert row(project, told["run_id"]) == ("FAILED", "echo")


def test_a_tracker_that_gives_up_stands_in_status_show_and_the_outcome(project: Shell) -> None:
    (project.folder / ".sgpu" / "mlflow.db").mkdir(parents=True)
    project.write("run.yaml", PRINTS)
    done = project("apply", "-y")
    assert done.code == 0
    assert "MLFLOW_RUN_ID" not in done.out
    assert "echo#1 is not tracked by MLflow" in done.err
    assert "mlflow.db" in links(project)["error"]
    assert "echo#1 is not tracked by MLflow" in project.here("status").err
    assert "echo#1 is not tracked by MLflow" in project.here("show", "echo").out
    outcome = project.folder / ".sgpu/default/runs/echo/1/outcome.json"
    assert "mlflow.db" in json.loads(outcome.read_text())["mlflow"]["error"]


def test_the_experiment_that_the_environment_names_is_taken(project: Shell) -> None:
    project.write("run.yaml", PRINTS)
    project.environ["MLFLOW_EXPERIMENT_NAME"] = "vision"
    done = project("apply", "-y")
    assert done.code == 0
    assert "MLFLOW_EXPERIMENT_NAME=vision\n" in done.out
    assert links(project)["experiment"] == "vision"
    done = project("apply", "-y", "--rerun", "echo", "--set", "mlflow.experiment=audio")
    assert "MLFLOW_EXPERIMENT_NAME=audio\n" in done.out
    assert links(project)["experiment"] == "audio"


class _Asked(BaseHTTPRequestHandler):
    """Notes who asks, and knows nothing."""

    callers: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.callers.append(self.headers["Authorization"])
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        return


def test_a_secret_of_the_run_is_the_trackers_credential(project: Shell) -> None:
    project.environ["TEAM_WORD"] = "word-of-the-team"
    secret = "env: {secrets: {MLFLOW_TRACKING_TOKEN: env:TEAM_WORD}}\n"
    with QuietServer(("127.0.0.1", 0), _Asked) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{server.server_port}"
        text = PRINTS.replace("command: 'env'", "command: 'true'")
        project.write("run.yaml", f"{text}{secret}mlflow: {{tracking_uri: '{uri}'}}\n")
        assert project("apply", "-y").code == 0
        server.shutdown()
    assert _Asked.callers == ["Bearer word-of-the-team"]
