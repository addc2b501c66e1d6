"""Credentials go only where the user of this checkout says, whatever an entry of a shared state
names."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.model.jsonable import Json, canonical
from tests.backends.ray.answers import Answers, answering
from tests.cli.conftest import Shell

PROJECT = """project: {{name: p}}
state: {{kind: folder, path: {shared}}}
runs:
  hello: {{gpus: 1, type: CPU, command: [echo, hello], mlflow: {{enabled: false}}}}
"""
SECRET = "a-secret-of-this-user"
COMMANDS = (
    "status", "show hello", "logs hello", "results hello", "fetch hello", "wait hello", "plan",
    "cancel hello", "gc -y", "destroy -y",
)  # fmt: skip


@pytest.fixture
def stranger() -> Iterator[Answers]:
    """A host that asks for a token, and writes down what it is sent."""
    with answering({"/api/version": {"session_name": "one"}}, token=SECRET) as host:
        yield host


@pytest.fixture
def shared(tmp_path: Path, sgpu: Shell) -> Shell:
    """A checkout of a project with a shared state in which a run was launched here."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/.sgpu-state").touch()
    sgpu.write("sgpu.yml", PROJECT.format(shared=tmp_path / "shared"))
    applied = sgpu.here("apply", "-y")
    assert applied.code == 0, applied.err
    return sgpu


def record(shell: Shell, block: dict[str, Any], **facts: Json) -> None:
    """What somebody who may write the state can make of the run: one that is active elsewhere."""
    pulled = json.loads(shell.here("state", "pull").out)
    (resource,) = pulled["resources"]
    spec = {**resource["spec"], "backend": block}
    resource |= {"backend": block["kind"], "spec": spec}
    reference = canonical({**facts, "folder": "/sgpu/runs/hello"})
    for attempt in resource["attempts"]:
        attempt |= {"backend": block["kind"], "state": "running", "reference": reference}
        attempt["spec"] = spec
        attempt |= {"ended_at": None, "exit_code": None}
    (shell.folder / "pulled.json").write_text(json.dumps(pulled))
    pushed = shell.here("state", "push", "pulled.json")
    assert pushed.code == 0, pushed.err


def test_a_token_of_ray_is_not_sent_where_a_record_says(shared: Shell, stranger: Answers) -> None:
    record(shared, {"kind": "ray", "address": stranger.url}, address=stranger.url, session="one")
    user = replace(shared, environ={**shared.environ, "RAY_AUTH_TOKEN": SECRET})
    for command in COMMANDS:
        answer = user.here(*command.split())
        assert stranger.requests == [], command
        assert SECRET not in answer.out + answer.err
    (status,) = user.here("status", "hello", "-o", "json").json["data"]["runs"]
    assert f"only the record of the run names {stranger.url}" in status["unavailable"]

    named = {**user.environ, "RAY_API_SERVER_ADDRESS": stranger.url}
    replace(user, environ=named).here("status", "hello")
    assert f"Bearer {SECRET}" in {token for _, token in stranger.requests}


def test_a_token_of_ray_is_sent_where_the_project_says(shared: Shell, stranger: Answers) -> None:
    record(shared, {"kind": "ray", "address": stranger.url}, address=stranger.url, session="one")
    file = shared.folder / "sgpu.yml"
    block = f"backend: {{kind: ray, address: '{stranger.url}'}}, mlflow"
    file.write_text(file.read_text().replace("mlflow", block))
    user = replace(shared, environ={**shared.environ, "RAY_AUTH_TOKEN": SECRET})
    user.here("status")
    assert f"Bearer {SECRET}" in {token for _, token in stranger.requests}


def test_a_token_of_a_workspace_is_not_sent_where_a_record_says(
    shared: Shell, stranger: Answers, tmp_path: Path
) -> None:
    """A profile without a host has a token for whatever the `backend` block names."""
    profiles = tmp_path / "profiles"
    profiles.write_text(f"[team]\ntoken = {SECRET}\n")
    block = {"kind": "databricks", "host": stranger.url, "profile": "team"}
    record(shared, block, host=stranger.url, workspace="1", user="a@example.org", run_id=7)
    environ = {**shared.environ, "DATABRICKS_CONFIG_FILE": str(profiles)}
    user = replace(shared, environ=environ)
    for command in COMMANDS:
        answer = user.here(*command.split())
        assert stranger.requests == [], command
        assert SECRET not in answer.out + answer.err
    (status,) = user.here("status", "hello", "-o", "json").json["data"]["runs"]
    assert f"only the record of the run names {stranger.url}" in status["unavailable"]
