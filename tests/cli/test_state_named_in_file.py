"""Where the state lies is what the file says for each command, whatever that depends on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_starting import HEAVY, imported

RUN = "{gpus: 1, type: CPU, command: ['true'], mlflow: {enabled: false}}"
PROJECT = f"""
project: {{name: team}}
variables: {{part: a}}
state: {{kind: folder, path: '${{env.SHARED}}/${{var.part}}'}}
runs: {{one: {RUN}}}
targets: {{prod: {{state: {{kind: folder, path: '${{env.SHARED}}/prod'}}}}}}
"""


@pytest.fixture
def shared(sgpu: Any, tmp_path: Path) -> Any:
    """A project with a run that was applied, in the state below `one/a`."""
    for name in ("one/a", "one/b", "one/prod", "two/a"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / ".sgpu-state").touch()
    sgpu.write("sgpu.yml", PROJECT)
    sgpu = replace(sgpu, environ={**sgpu.environ, "SHARED": str(tmp_path / "one")})
    sgpu.done("apply", "-y")
    return sgpu


def place(sgpu: Any, *options: str, command: str = "status") -> str:
    """The folder that a command looks in: a state that has the run, or else the copy that this
    machine has of it makes the store seem cut."""
    answer = sgpu.here(command, "-o", "json", *options).json
    if "error" in answer:
        assert answer["error"]["code"] == "state_diverged"
        return "/".join(answer["error"]["message"].split("`")[1].split("/")[-2:])
    return "one/a" if answer["data"]["runs"] else "one/prod"


def test_only_a_file_that_names_a_store_is_validated_to_look_at_a_state(shared: Any) -> None:
    for command in (["status"], ["show", "one"], ["logs", "one"]):
        code, tops = imported(shared.folder, *command, environ=shared.environ)
        assert code == 0, command
        assert "pydantic" in tops
        assert not sorted(tops & (HEAVY | {"rich"})), command
    shared.write("sgpu.yml", f"# state: none\nproject: {{name: team}}\nruns: {{one: {RUN}}}\n")
    code, tops = imported(shared.folder, "status", environ=shared.environ)
    assert code == 0
    assert not sorted(tops & (HEAVY | {"rich", "pydantic"}))


@pytest.mark.parametrize(
    "spelling",
    [
        "state: {kind: folder, path: /nowhere/there}",
        '"state" : {kind: folder, path: /nowhere/there}',
        "? state\n: {kind: folder, path: /nowhere/there}",
        '"\\x73tate": {kind: folder, path: /nowhere/there}',
    ],
)
def test_each_spelling_of_the_key_names_a_store(sgpu: Any, spelling: str) -> None:
    sgpu.write("sgpu.yml", f"project: {{name: team}}\nruns: {{one: {RUN}}}\n{spelling}\n")
    assert "/nowhere/there" in sgpu.here("status").err


def test_a_file_that_is_no_yaml_hides_the_state_only_if_it_may_name_one(sgpu: Any) -> None:
    sgpu.write("sgpu.yml", f"project: {{name: team}}\nruns: {{one: {RUN}}}\n  x: [\n")
    sgpu.done("status")
    sgpu.write(
        "sgpu.yml", f"project: {{name: team}}\nstate: {{kind: folder}}\nruns: {{one: {RUN}\n"
    )
    assert "yaml_syntax" in sgpu.exits(1, "status").err


def test_another_value_names_another_state(shared: Any, tmp_path: Path) -> None:
    assert place(shared) == "one/a"
    assert place(shared, "-t", "prod") == "one/prod"
    elsewhere = {**shared.environ, "SHARED": str(tmp_path / "two")}
    assert place(replace(shared, environ=elsewhere)) == "two/a"
    assert place(replace(shared, environ={**shared.environ, "SGPU_VAR_part": "b"})) == "one/b"
    assert place(shared, "--var", "part=b", command="plan") == "one/b"
    shared.write("values.yml", "part: b\n")
    assert place(shared, "--var-file", "values.yml", command="plan") == "one/b"
    assert place(shared) == "one/a"


def test_another_file_names_another_state(shared: Any) -> None:
    assert place(shared) == "one/a"
    shared.write("sgpu.yml", PROJECT.replace("part: a", "part: b"))
    assert place(shared) == "one/b"
    shared.write("sgpu.yml", PROJECT.replace("kind: folder", "kind: folders"))
    for _ in range(2):
        assert "unknown_value" in shared.here("status").err
    shared.write("sgpu.yml", "include: [more.yml]\n" + PROJECT.replace("variables: {part: a}", ""))
    for part in "ab":
        shared.write("more.yml", f"variables: {{part: {part}}}\n")
        assert place(shared) == f"one/{part}"
