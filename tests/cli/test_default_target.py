"""The target of commands that name none."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sgpu_decl.planning.project_text import ProjectText
from tests.cli.conftest import Shell

RUN = "{gpus: 1, type: CPU, command: [sh, -c, 'echo ${target.name}'], mlflow: {enabled: false}}"
PROJECT = f"""\
project: {{name: demo}}
runs:
  train: {RUN}
targets:
  dev: {{default: true}}
  prod: {{}}
"""


@pytest.fixture
def project(sgpu: Shell) -> Shell:
    sgpu.write("sgpu.yml", PROJECT)
    return sgpu


def planned_target(shell: Shell, *words: str) -> str | None:
    data = shell.data("plan", *words)
    (change,) = data["changes"]
    (command,) = (field["after"] for field in change["fields"] if field["path"] == "command")
    assert command[-1] == f"echo {data['target'] or 'default'}"
    target: str | None = data["target"]
    return target


def test_the_option_wins_over_the_variable_and_that_over_the_file(project: Shell) -> None:
    told = replace(project, environ={**project.environ, "SGPU_TARGET": "prod"})
    assert planned_target(project) == "dev"
    assert planned_target(told) == "prod"
    assert planned_target(told, "-t", "dev") == "dev"
    assert planned_target(project, "-t", "default") is None
    assert planned_target(replace(told, environ={**told.environ, "SGPU_TARGET": "default"})) is None
    assert planned_target(replace(told, environ={**told.environ, "SGPU_TARGET": ""})) == "dev"


def test_every_command_is_about_the_same_target(project: Shell) -> None:
    project.done("apply", "-y", "-o", "json")
    assert (project.folder / ".sgpu" / "dev").is_dir()
    assert "dev" in project.here("logs", "train").out
    (run,) = project.data("status")["runs"]
    assert run["state"] == "succeeded"
    assert json.loads(project.here("plan", "-o", "json").out)["data"]["summary"]["no_op"] == 1
    none = project.here("status", "-t", "default")
    assert "something was applied with `-t dev`: look there" in none.err


def test_a_plan_without_a_target_is_applied_without_one(project: Shell) -> None:
    project.done("plan", "-t", "default", "--out", "x.plan")
    project.done("apply", "x.plan")
    assert (project.folder / ".sgpu" / "default").is_dir()
    assert not (project.folder / ".sgpu" / "dev").exists()


def test_a_command_in_a_hint_names_the_base_where_another_target_is_the_default(
    project: Shell,
) -> None:
    started = project.done("apply", "-y", "--detach", "-t", "default")
    assert "-t default`" in started.err + started.out
    project.done("wait", "train", "-t", "default")


def test_a_run_of_the_command_line_has_no_target(project: Shell) -> None:
    words = ("--gpus", "1", "--type", "CPU", "--set", "mlflow.enabled=false", "true")
    project.done("run", "-y", *words)
    assert (project.folder / ".sgpu" / "default").is_dir()


def test_validate_checks_all_targets_and_counts_the_runs_of_the_default(project: Shell) -> None:
    assert "checked for `dev`, `prod`" in project.here("validate").out
    told = replace(project, environ={**project.environ, "SGPU_TARGET": "prod"})
    assert "checked for `prod`\n" in told.here("validate").out
    assert project.here("validate", "-t", "default").out == "sgpu.yml is valid: 1 run\n"


def test_a_variable_that_names_no_target_is_refused(project: Shell) -> None:
    told = replace(project, environ={**project.environ, "SGPU_TARGET": "prd"})
    refused = told.exits(1, "status")
    assert "there is no target `prd`" in refused.err
    assert "did you mean `prod`?" in refused.err


def test_a_file_that_is_no_yaml_is_said_by_commands_that_read_none(project: Shell) -> None:
    project.write("sgpu.yml", PROJECT + "  x: [\n")
    assert "yaml_syntax" in project.exits(1, "status").err
    project.done("status", "-t", "default")


@pytest.mark.parametrize(
    ("targets", "name"),
    [
        ("{dev: {default: true}}", "dev"),
        ('{"dev": {"default": true}}', "dev"),
        ("{dev: {default:\n    True}}", "dev"),
        ("{dev: {default: &a true}, prod: {}}", "dev"),
        ("\n  dev:\n    ? default\n    : TRUE", "dev"),
        ("\n  dev:\n    default: true", "dev"),
        ("\n  dev:\n    default : !!bool true", "dev"),
        ("{dev: {default: false}}", None),
        ("{dev: {default: 'true'}}", None),
        ("{a b: {default: true}}", None),
        ("{dev: {}}", None),
        ("[default: true]", None),
    ],
)
def test_each_spelling_of_the_default_is_found(
    tmp_path: Path, targets: str, name: str | None
) -> None:
    file = tmp_path / "sgpu.yml"
    file.write_text(f"project: {{name: p}}\ntargets: {targets}\n")
    assert ProjectText(file, "sgpu.yml").default_target() == name


def test_a_run_file_has_no_default(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("name: a\ntargets: {dev: {default: true}}\n")
    assert ProjectText(file, "run.yaml").default_target() is None
    assert ProjectText(tmp_path / "missing.yml").default_target() is None


def test_a_misspelt_target_to_extend_is_a_mistake_of_the_file(project: Shell) -> None:
    project.write("sgpu.yml", PROJECT.replace("prod: {}", "prod: {extends: de}"))
    refused = project.here("plan", "-t", "prod")
    assert "error[unknown_extends]" in refused.err
    assert "error[invalid_input]: `sgpu.yml` is not valid" in refused.err


def test_a_wrong_target_of_the_environment_is_said_to_come_from_there(sgpu: Shell) -> None:
    sgpu.write(
        "sgpu.yml",
        "project: {name: p}\ntargets: {prod: {}}\nruns:\n"
        "  a: {gpus: 1, type: CPU, command: 'true', mlflow: {enabled: false}}\n",
    )
    for target in ("prd", "a b"):
        shell = replace(sgpu, environ={**sgpu.environ, "SGPU_TARGET": target})
        for command in ("plan", "validate", "status", "show a"):
            assert "which `SGPU_TARGET` names" in shell.exits(1, *command.split()).err, command
    assert "SGPU_TARGET" not in sgpu.here("plan", "-t", "prd").err
