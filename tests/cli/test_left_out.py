"""Runs that a target leaves out: what was recorded of them stays."""

import pytest

from tests.cli.conftest import Shell

PROJECT = """\
project: {name: demo}
defaults: {run: {gpus: 1, type: CPU, mlflow: {enabled: false}}}
targets: {dev: {}, prod: {}}
runs:
  a: {command: 'true'}
  b: {command: 'true'}
"""
LEFT_OUT = PROJECT.replace("b: {", "b: {targets: [prod], ")


@pytest.fixture
def applied(sgpu: Shell) -> Shell:
    sgpu.write("sgpu.yml", PROJECT)
    sgpu.done("apply", "-t", "dev", "-y")
    sgpu.write("sgpu.yml", LEFT_OUT)
    return sgpu


def changes(shell: Shell, *words: str) -> dict[str, str]:
    data = shell.data("plan", *words)
    return {one["address"]: one["action"] for one in data["changes"]}


def test_what_a_target_leaves_out_is_neither_launched_nor_forgotten(applied: Shell) -> None:
    assert changes(applied, "-t", "dev") == {"run.a": "no_op"}
    assert changes(applied, "-t", "prod") == {"run.a": "create", "run.b": "create"}
    text = applied.done("plan", "-t", "dev").out
    assert "the target `dev` leaves out `run.b`" in text
    applied.done("apply", "-t", "dev", "-y")
    # it comes back as it was
    applied.write("sgpu.yml", PROJECT)
    assert changes(applied, "-t", "dev") == {"run.a": "no_op", "run.b": "no_op"}


def test_destroy_still_ends_it(applied: Shell) -> None:
    applied.done("destroy", "-t", "dev", "-y")
    applied.write("sgpu.yml", PROJECT)
    assert changes(applied, "-t", "dev") == {"run.a": "create", "run.b": "create"}


def test_to_name_it_is_refused_with_the_way_out(applied: Shell) -> None:
    for option in ("--select", "--rerun"):
        err = applied.exits(64, "plan", "-t", "dev", option, "b").err
        assert "`b` names nothing of the target `dev`, which leaves out `run.b`" in err
