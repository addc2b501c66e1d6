"""Where the values of variables come from, as a user gives them."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import Shell

PROJECT = """\
project: {name: demo}
variables:
  lr: 1e-3
  size: {type: string, values: [small, large], default: small}
  steps: [1, 2]
  args: {default: {lr: '${var.lr}', steps: '${var.steps}'}}
runs:
  train:
    {gpus: 1, type: CPU, entrypoint: 'train.py:main', args: '${var.args}', mlflow: {enabled: false}}
targets: {prod: {variables: {lr: 2e-3, size: large}}}
"""


@pytest.fixture
def project(sgpu: Shell) -> Shell:
    sgpu.write("sgpu.yml", PROJECT)
    sgpu.write("train.py", "def main(lr, steps): ...\n")
    return sgpu


def arguments(shell: Shell, *words: str) -> dict[str, object]:
    (change,) = shell.done("plan", "-o", "json", *words).json["data"]["changes"]
    fields = {field["path"]: field["after"] for field in change["fields"]}
    return {path.removeprefix("args."): fields[path] for path in fields if "args." in path}


def test_each_source_wins_over_the_weaker_ones(project: Shell) -> None:
    project.write("values.yml", "lr: 4e-3\nsteps: [7]\n")
    project.write("more.json", '{"lr": 5e-3}')
    told = replace(project, environ={**project.environ, "SGPU_VAR_lr": "6e-3"})
    assert arguments(project)["lr"] == 1e-3
    assert arguments(project, "-t", "prod")["lr"] == 2e-3
    given = ("-t", "prod", "--var-file", "values.yml")
    assert arguments(project, *given)["lr"] == 4e-3
    assert arguments(project, *given, "--var-file", "more.json")["lr"] == 5e-3
    assert arguments(told, *given)["lr"] == 6e-3
    assert arguments(told, *given, "--var", "lr=7e-3")["lr"] == 7e-3
    assert arguments(project, "--var", "steps=[3, 4]") != arguments(project)


def test_a_change_of_a_value_is_seen_by_the_next_plan(project: Shell) -> None:
    assert arguments(project)["lr"] == 1e-3
    first = replace(project, environ={**project.environ, "SGPU_VAR_lr": "9"})
    assert arguments(first)["lr"] == 9
    for number in (1, 2):
        project.write("values.yml", f"lr: {number}\n")
        for _ in range(2):  # read, and then remembered
            assert arguments(project, "--var-file", "values.yml")["lr"] == number
        told = replace(project, environ={**project.environ, "SGPU_VAR_lr": f"{number}"})
        for _ in range(2):
            assert arguments(told)["lr"] == number
    assert arguments(project)["lr"] == 1e-3


def code_digest(shell: Shell, *words: str) -> str:
    (change,) = shell.data("plan", *words)["changes"]
    digest: str = change["code"]["digest"]
    return digest


def test_a_file_of_values_is_no_code(project: Shell) -> None:
    named = ("--var-file", "values.yml")
    project.write("values.yml", "lr: 1\n")
    before = code_digest(project, *named)
    project.write("values.yml", "lr: 2\n")
    assert code_digest(project, *named) == before


def test_a_file_of_values_among_the_code_is_a_warning_until_it_is_ignored(project: Shell) -> None:
    project.write("values/dev.yml", "lr: 1\n")
    project.write("values/prod.yml", "lr: 2\n")
    named = ("--var-file", "values/dev.yml")
    warned = project.here("plan", *named)
    assert "values_among_code" in warned.out
    assert "add the line `/values/dev.yml` to `.sgpuignore`" in warned.out
    project.exits(1, "plan", "--strict", *named)
    project.write(".sgpuignore", "/values/\n")
    assert "values_among_code" not in project.here("plan", *named).out
    digests = {code_digest(project), code_digest(project, *named)}
    project.write("values/prod.yml", "lr: 3\n")
    digests |= {code_digest(project, *named), code_digest(project, "--var-file", "values/prod.yml")}
    assert len(digests) == 1


def test_a_file_of_values_outside_of_the_code_is_no_warning(project: Shell) -> None:
    outside = project.folder.parent / "values.yml"
    outside.write_text("lr: 1\n")
    assert "values_among_code" not in project.here("plan", "--var-file", str(outside)).out


@pytest.mark.expensive
def test_a_saved_plan_knows_the_files_of_values_without_the_store(project: Shell) -> None:
    project.write("values.yml", "lr: 1\nsteps: [3]\n")
    project.done("plan", "--var-file", "values.yml", "--out", "x.plan")
    Path(project.environ["XDG_DATA_HOME"], "sgpu").rename(project.folder / "../emptied")
    project.write("values.yml", "lr: 2\n")
    project.ran("apply", "x.plan", "-o", "json")


def test_wrong_values_are_refused_with_their_origin(project: Shell) -> None:
    refused = project.exits(1, "validate", "--var", "size=lage")
    assert "did you mean `large`?" in refused.err
    assert "the options of this command do not fit `sgpu.yml`" in refused.err
    told = replace(project, environ={**project.environ, "SGPU_VAR_lr": "fast"})
    refused = told.here("validate")
    assert "SGPU_VAR_lr" in refused.err
    assert "must be a number, not `fast`" in refused.err
    warned = replace(project, environ={**project.environ, "SGPU_VAR_sise": "large"})
    assert "did you mean `size`?" in warned.done("validate").err
    warned.exits(1, "validate", "--strict")


def test_a_file_of_values_that_cannot_be_read_is_named(project: Shell) -> None:
    assert "`values.yml` does not exist" in project.exits(1, "plan", "--var-file", "values.yml").err
    project.write("values.yml", "- 1\n")
    refused = project.here("plan", "--var-file", "values.yml")
    assert "write a line `NAME: VALUE` for each variable" in refused.err
    assert "error[invalid_input]: `values.yml` is not valid" in refused.err
    refused = project.here("plan", "--var-file", ".")
    assert "hint: name a file with a line `NAME: VALUE` for each variable" in refused.err
