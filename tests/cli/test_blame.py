"""`plan --blame`: who gives each field its value."""

import json
from dataclasses import replace

import jsonschema
import pytest

from sgpu_decl.config.schemas import documents
from tests.cli.conftest import Shell

PROJECT = """\
project: {name: demo}
include: [runs/*.yml]
variables: {steps: 5}
defaults:
  run: {timeout: 1h}
targets:
  prod:
    runs:
      train: {args: {lr: 1e-4}}
"""
RUN = """\
name: train
gpus: 1
type: CPU
entrypoint: ../train.py:main
code: {root: ..}
args: {lr: 3e-4, steps: '${var.steps}'}
"""


@pytest.fixture
def project(sgpu: Shell) -> Shell:
    sgpu.write("sgpu.yml", PROJECT)
    sgpu.write("runs/train.yml", RUN.replace("../train", "train"))
    sgpu.write("train.py", "def main(lr, steps): ...\n")
    return sgpu


GIVEN = ("-t", "prod", "--set", "runs.train.args.lr=5e-4", "--var", "steps=7")


def test_each_field_names_its_chain(project: Shell) -> None:
    for _ in range(2):  # read, and then remembered
        planned = project.done("plan", "--blame", *GIVEN)
        lines = {line.strip() for line in planned.out.splitlines()}
        assert (
            "args.lr = 0.0005   --set runs.train.args.lr   over sgpu.yml:9:26 (target prod)   "
            "over runs/train.yml:6:12"
        ) in lines
        assert (
            "args.steps = 7   runs/train.yml:6:25   from --var steps   over sgpu.yml:3:20" in lines
        )
        assert 'timeout = "1h"   sgpu.yml:5:18 (defaults)' in lines
        assert "gpus = 1   runs/train.yml:2:7" in lines


VALUES = """\
variables:
  steps: 5
  more:
    default:
      lr: 1e-3
      steps: [1]
targets:
  prod:
    variables:
      steps: 6
      more: {default: {lr: 1e-4}}
runs:
  train:
    gpus: 1
    type: CPU
    entrypoint: train.py:main
    args: '${var.more}'
    parameters:
      warm: '${var.steps}'
      all: '${var.more}'
"""


def test_replaced_values_of_variables_and_references_to_mappings_are_named(
    project: Shell,
) -> None:
    project.write("sgpu.yml", "project: {name: demo}\n" + VALUES)
    told = replace(project, environ={**project.environ, "SGPU_VAR_steps": "8"})
    planned = told.done("plan", "--blame", "-t", "prod")
    lines = [line.strip() for line in planned.out.splitlines()]
    assert (
        "parameters.warm = 8   sgpu.yml:20:13   from SGPU_VAR_steps   "
        "over sgpu.yml:11:14 (target prod)   over sgpu.yml:3:10"
    ) in lines
    assert (
        "args.lr = 0.0001   sgpu.yml:12:28 (target prod)   over sgpu.yml:6:11   "
        "through sgpu.yml:18:11"
    ) in lines
    assert "args.steps = [1]   sgpu.yml:7:7   through sgpu.yml:18:11" in lines
    assert "parameters.all.steps = [1]   sgpu.yml:7:7   through sgpu.yml:21:12" in lines


def test_a_whole_list_names_the_variable_that_holds_it(project: Shell) -> None:
    project.write("sgpu.yml", PROJECT.replace("steps: 5", "steps: [1, 2]"))
    lines = project.here("plan", "--blame", "--var", "steps=[3]").out.splitlines()
    (line,) = (line for line in lines if "args.steps =" in line)
    chain = "runs/train.yml:6:18   from --var steps   over sgpu.yml:3:20"
    assert line.strip() == f"args.steps = [3]   {chain}"


def test_without_the_option_a_plan_is_as_before(project: Shell) -> None:
    plain = project.here("plan", *GIVEN)
    assert project.here("plan", "--blame", *GIVEN).out.startswith(plain.out)
    (change,) = project.data("plan", *GIVEN)["changes"]
    assert not any("origins" in field for field in change["fields"])


def test_json_has_the_chain_as_origins(project: Shell) -> None:
    data = project.data("plan", "--blame", *GIVEN)
    jsonschema.validate(data, documents()["plan"])
    (change,) = data["changes"]
    origins = {field["path"]: field["origins"] for field in change["fields"]}
    assert origins["args.lr"] == [
        {"option": "--set runs.train.args.lr", "file": None, "line": None, "column": None,
         "role": "value", "layer": None},
        {"option": None, "file": "sgpu.yml", "line": 9, "column": 26,
         "role": "replaced", "layer": "target prod"},
        {"option": None, "file": "runs/train.yml", "line": 6, "column": 12,
         "role": "replaced", "layer": None},
    ]  # fmt: skip
    assert [one["role"] for one in origins["args.steps"]] == ["value", "filled", "replaced"]


def test_the_cells_of_a_matrix_share_the_chain_of_their_run(project: Shell) -> None:
    project.write("runs/train.yml", RUN.replace("../train", "train") + "matrix: {seed: [1, 2]}\n")
    project.write("train.py", "def main(lr, steps, seed): ...\n")
    data = json.loads(project.here("plan", "--blame", "-o", "json", *GIVEN).out)["data"]
    assert len(data["changes"]) == 2
    for change in data["changes"]:
        origins = {field["path"]: field["origins"] for field in change["fields"]}
        assert len(origins["args.lr"]) == 3
        assert [one["file"] for one in origins["args.seed"]] == ["runs/train.yml"]


def test_markdown_has_no_room_for_it(project: Shell) -> None:
    refused = project.exits(64, "plan", "--blame", "-o", "markdown")
    assert "`--blame` is for text and JSON: leave it or `-o markdown` out" in refused.err
