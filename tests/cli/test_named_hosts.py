"""Credentials go only where the user of this checkout says, whatever an entry of a shared state
names."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.testing.workspace import ExecutionSettings, WorkspaceServer
from tests.backends.ray.answers import Answers, answering, recorded
from tests.cli.conftest import Shell
from tests.support import require

PROJECT = """project: {{name: p}}
state: {{kind: folder, path: {shared}}}
runs:
  hello: {{gpus: 1, type: CPU, command: [echo, hello], mlflow: {{enabled: false}}}}
"""
VARIABLE = """project: {{name: p}}
state: {{kind: folder, path: {shared}}}
variables:
  host: {{default: "{default}"}}
runs:
  hello: {{gpus: 1, command: [echo, hello], type: {type}, backend: {{{backend}}}}}
"""
JOBS = "/api/jobs/"
SECRET = "a-secret-of-this-user"
COMMANDS = (
    "status", "show hello", "logs hello", "logs hello --rank 0", "results hello", "fetch hello",
    "diff hello#1 hello#1", "stacks hello", "open hello", "wait hello", "plan",
    "plan --rerun run.hello", "state list", "cancel hello", "gc --dry-run", "gc -y --keep-last 0",
    "gc -y --keep-last 0 --all", "state mv run.hello run.there", "state mv run.there run.hello",
    "destroy -y", "state rm run.hello", "gc -y",
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
    sgpu.done("apply", "-y")
    return sgpu


def record(shell: Shell, block: dict[str, Any], state: str = "running", **facts: Json) -> None:
    """What somebody who may write the state can make of the run: one that is elsewhere."""
    with shell.edited_state() as pulled:
        (resource,) = pulled["resources"]
        spec = {**resource["spec"], "backend": block}
        resource |= {"backend": block["kind"], "spec": spec}
        reference = canonical({**facts, "folder": "/sgpu/runs/hello"})
        ended = None if state == "running" else "2026-01-01T00:00:00Z"
        for attempt in resource["attempts"]:
            attempt |= {"backend": block["kind"], "state": state, "reference": reference}
            attempt["spec"] = spec
            attempt |= {"ended_at": ended, "exit_code": None if ended is None else 0}


def test_a_token_of_ray_is_not_sent_where_a_record_says(shared: Shell, stranger: Answers) -> None:
    record(shared, {"kind": "ray", "address": stranger.url}, address=stranger.url, session="one")
    user = replace(shared, environ={**shared.environ, "RAY_AUTH_TOKEN": SECRET})
    for command in COMMANDS:
        answer = user.here(*command.split())
        assert "no such command" not in answer.err.lower(), answer.err
        assert stranger.requests == [], command
        assert SECRET not in answer.out + answer.err
    (status,) = user.data("status", "hello")["runs"]
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


@pytest.mark.parametrize("state", ["running", "succeeded"])
def test_a_token_of_a_workspace_is_not_sent_where_a_record_says(
    shared: Shell, stranger: Answers, tmp_path: Path, state: str
) -> None:
    """A profile without a host has a token for whatever the `backend` block names."""
    block = {"kind": "databricks", "host": stranger.url, "profile": "team"}
    run = {"run_id": 7, "submitted": 1.5}
    record(shared, block, state, host=stranger.url, workspace="1", user="a@example.org", **run)
    user = with_profile(shared, tmp_path)
    for command in COMMANDS:
        answer = user.here(*command.split())
        assert stranger.requests == [], command
        assert SECRET not in answer.out + answer.err
        if command == "status" and state == "running":
            assert f"only the record of the run names {stranger.url}" in answer.out


@pytest.fixture
def cluster() -> Iterator[Answers]:
    """A cluster that takes each job, and runs it for ever."""
    with answering({**recorded("2.60.0"), "/api/packages/gcs/*": {}}, token=SECRET) as answers:
        posted = f"POST {JOBS}"
        node = answers.by_path["/api/v0/nodes"]["data"]["result"]["result"][0]["node_id"]

        def job() -> dict[str, Any]:
            (body,) = [json.loads(body) for path, body in answers.bodies if path == posted]
            row = {"status": "RUNNING", "type": "SUBMISSION", "driver_node_id": node}
            return {**row, "submission_id": body["submission_id"], "metadata": body["metadata"]}

        answers.by_path |= {JOBS: [], f"{JOBS}*": job}
        yield answers


def test_a_cluster_that_an_option_named_at_apply_is_asked_by_later_commands(
    tmp_path: Path, sgpu: Shell, cluster: Answers, stranger: Answers
) -> None:
    """And a record that names another one still gets no token."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/.sgpu-state").touch()
    (tmp_path / "storage").mkdir()
    block = f"kind: ray, address: '${{var.host}}', storage: {tmp_path / 'storage'}"
    text = VARIABLE.format(
        shared=tmp_path / "shared",
        default="http://another.example:8265",
        type="CPU, mlflow: {enabled: false}",
        backend=block,
    )
    sgpu.write("sgpu.yml", text)
    user = replace(sgpu, environ={**sgpu.environ, "RAY_AUTH_TOKEN": SECRET})
    user.done("apply", "-y", "--detach", "--var", f"host={cluster.url}")

    for command in ("status", "wait hello --timeout 0.01s", "cancel hello --no-wait"):
        cluster.requests.clear()
        answer = user.here(*command.split())
        assert f"Bearer {SECRET}" in {token for _, token in cluster.requests}, answer
    (status,) = user.data("status", "hello")["runs"]
    assert status["state"] == "starting", status

    record(user, {"kind": "ray", "address": stranger.url}, address=stranger.url, session="one")
    answer = user.here("status", "hello")
    assert stranger.requests == []
    assert f"only the record of the run names {stranger.url}" in answer.out + answer.err


def test_a_workspace_that_an_option_named_at_apply_is_asked_by_later_commands(
    tmp_path: Path, sgpu: Shell
) -> None:
    require("databricks.sdk")
    full = ExecutionSettings(capacity={"GPU_1xA10": 0})
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/.sgpu-state").touch()
    with WorkspaceServer(tmp_path / "workspace", execution=full) as server:
        profiles = sgpu.write("profiles", f"[team]\ntoken = {server.new_token()}\n")
        text = VARIABLE.format(
            shared=tmp_path / "shared",
            default="https://another.example",
            type="A10",
            backend="kind: databricks, host: '${var.host}', profile: team",
        )
        sgpu.write("sgpu.yml", text)
        user = replace(sgpu, environ={**sgpu.environ, "DATABRICKS_CONFIG_FILE": str(profiles)})
        user.done("apply", "-y", "--detach", "--var", f"host={server.url}")

        (status,) = user.data("status", "hello")["runs"]
        assert (status["state"], status.get("unavailable")) == ("queued", None)


def test_without_a_secret_a_record_may_name_any_cluster(shared: Shell, stranger: Answers) -> None:
    record(shared, {"kind": "ray", "address": stranger.url}, address=stranger.url, session="one")
    shared.here("status")
    assert {token for _, token in stranger.requests} == {None}


def test_a_plan_looks_for_output_to_resume_only_where_this_user_launches(
    shared: Shell, stranger: Answers, tmp_path: Path
) -> None:
    block = {"kind": "databricks", "host": stranger.url, "profile": "team"}
    place = {"host": stranger.url, "workspace": None, "user": "a@example.org"}
    lies = {**place, "run_id": 7, "submitted": 1.5}
    record(shared, {**block, "staging": "/Workspace/sgpu"}, "succeeded", **lies)
    with answering({}, token=SECRET) as named:
        file = shared.folder / "sgpu.yml"
        here = {**block, "host": named.url, "staging": "/Workspace/sgpu"}
        line = f"type: A10, resume: auto, backend: {json.dumps(here)}"
        file.write_text(
            file.read_text().replace("type: CPU", line).replace(", mlflow: {enabled: false}", "")
        )
        planned = with_profile(shared, tmp_path).here("plan", "--rerun", "run.hello")
        assert "no earlier attempt left output" in planned.out + planned.err
        assert named.requests
    assert stranger.requests == []


def test_a_token_of_a_workspace_is_not_sent_where_the_record_of_a_job_says(
    shared: Shell, stranger: Answers, tmp_path: Path
) -> None:
    block = {"kind": "databricks", "host": stranger.url, "profile": "team"}
    with shared.edited_state() as pulled:
        (run,) = pulled["resources"]
        job = {
            "address": "job.night",
            "backend": "databricks",
            "spec": {"backend": block, "name": "night"},
            "attempts": [],
            "remote": {"id": "7", "workspace": stranger.url, "token": "t"},
        }
        pulled["resources"].append({**run, **job})
    user = with_profile(shared, tmp_path)
    commands = ("status", "show job.night", "plan", "gc -y", "destroy -y", "gc -y")
    for command in commands:
        answer = user.here(*command.split())
        assert stranger.requests == [], command
        assert SECRET not in answer.out + answer.err
        if command == "destroy -y":
            assert f"only the record of the job names {stranger.url}" in answer.err


def with_profile(shell: Shell, folder: Path) -> Shell:
    """The user has a token in a profile without a host."""
    profiles = folder / "profiles"
    profiles.write_text(f"[team]\ntoken = {SECRET}\n")
    return replace(shell, environ={**shell.environ, "DATABRICKS_CONFIG_FILE": str(profiles)})
