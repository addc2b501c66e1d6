"""A login that a workspace refuses, as commands show it: for runs, and for the state."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.testing.workspace import WorkspaceServer
from tests.cli.conftest import Shell
from tests.support import require

require("databricks.sdk")

PROJECT = """project: {name: p}
runs: {r: {gpus: 1, type: A10, command: [echo, hello], backend: databricks}}
targets: {prod: {}}
"""
STATES = {
    "the workspace": "{kind: databricks, path: /Workspace/Shared/state}",
    "a database": "{kind: postgres, url: 'postgresql://p@db.example.com/x', password: databricks}",
}
REFUSED = "the login of `robot` to `{url}` by `oauth-m2m` was refused: invalid_client"


@pytest.fixture
def refused(tmp_path: Path, sgpu: Shell) -> Iterator[str]:
    """What a workspace says of a service principal with a wrong secret, whose login is used."""
    with WorkspaceServer(tmp_path / "workspace", clients={"robot": "right"}) as server:
        sgpu.environ.update(
            DATABRICKS_HOST=server.url,
            DATABRICKS_CLIENT_ID="robot",
            DATABRICKS_CLIENT_SECRET="wrong",
            DATABRICKS_CONFIG_FILE="/dev/null",
        )
        yield REFUSED.format(url=server.url)


@pytest.mark.parametrize("words", ["apply -y", "plan -o json", "doctor -t prod"])
def test_commands_show_a_refused_login(sgpu: Shell, refused: str, words: str) -> None:
    sgpu.write("sgpu.yml", PROJECT)
    answer = sgpu.here(*words.split())
    assert answer.code in (0, 1)  # a plan tells what it can
    assert refused in answer.out + answer.err
    assert "OAuth secrets" in answer.out + answer.err


@pytest.mark.parametrize("state", STATES)
def test_a_refused_login_to_where_the_state_is(sgpu: Shell, refused: str, state: str) -> None:
    sgpu.write("sgpu.yml", f"project: {{name: p}}\nstate: {STATES[state]}\nruns: {{}}\n")
    for command in ("status", "plan"):
        answer = sgpu.exits(1, command, "-o", "json")
        assert refused in answer.json["error"]["message"]
        assert "OAuth secrets" in answer.json["error"]["hint"]


@pytest.mark.mlflow
@pytest.mark.expensive
def test_a_refused_login_to_where_metrics_go(sgpu: Shell, refused: str) -> None:
    assert refused
    run = "name: r\ngpus: 1\ntype: CPU\ncommand: [echo, hello]\n"
    sgpu.write("run.yaml", f"{run}mlflow: {{tracking_uri: databricks, experiment: /Shared/e}}\n")
    applied = sgpu.ran("apply", "-y", "run.yaml")
    said = "the login of `robot` to the workspace of `databricks` was refused: invalid_client"
    assert said in applied.err
