"""Runs of a project in their order, as a user sees them."""

import pytest

from tests.cli.conftest import Shell

PROJECT = """\
project: {name: order}
runs:
  report: {gpus: 1, type: CPU, after: [evaluate], command: "true", mlflow: {enabled: false}}
  evaluate:
    gpus: 1
    type: CPU
    after: [train]
    command: [sh, -c, 'cat "$0/w" "$WEIGHTS/w"', "${run.train.output}"]
    env: {variables: {WEIGHTS: "${run.train.output}"}}
    mlflow: {enabled: false}
  train:
    gpus: 1
    type: CPU
    command: 'echo 1 > "$SGPU_OUTPUT_DIR/w"; exit CODE'
    mlflow: {enabled: false}
"""


@pytest.fixture
def project(sgpu: Shell) -> Shell:
    sgpu.write("sgpu.yml", PROJECT.replace("CODE", "0"))
    return sgpu


def states(sgpu: Shell) -> dict[str, str]:
    runs = sgpu.data("status")["runs"]
    return {run["name"]: f"{run['attempt']} {run['state']}" for run in runs}


def test_runs_start_in_their_order_and_nobody_has_to_stay(project: Shell) -> None:
    assert "create evaluate#1 after train#1 has succeeded" in project.here("plan").out
    project.done("apply", "-y", "--detach")
    project.done("wait", "report")
    assert states(project) == dict.fromkeys(("train", "evaluate", "report"), "1 succeeded")
    assert project.here("logs", "evaluate").out.split() == ["1", "1"]
    assert "No changes" in project.here("plan").out


def test_a_failure_stops_those_after_it_until_it_is_mended(project: Shell) -> None:
    project.write("sgpu.yml", PROJECT.replace("CODE", "3"))
    failed = project.exits(5, "apply", "-y")
    assert "3 runs: 1 failed, 2 skipped" in failed.err
    assert "`train#1` did not succeed, and 2 runs after it were skipped" in failed.err
    assert states(project) == dict.fromkeys(("train", "evaluate", "report"), "1 failed")
    table = [line.split()[:2] for line in project.here("status").out.splitlines()[1:]]
    assert sorted(table) == [
        ["evaluate#1", "skipped"],
        ["report#1", "skipped"],
        ["train#1", "failed"],
    ]
    runs = project.data("status")["runs"]
    skipped = {run["name"]: run.get("skipped") for run in runs}
    assert skipped == {"train": None, "evaluate": True, "report": True}
    assert "report#1 skipped: evaluate#1 failed, and this run" in project.here("show", "report").out
    assert "skipped, since a run that comes before" in project.exits(5, "wait", "report").err
    assert "train#1 failed, and this run comes after it" in project.here("status", "evaluate").out
    kept = project.exits(5, "apply", "-y")
    assert "No changes. 1 unchanged, 2 skipped." in kept.out
    assert "`evaluate` is not launched: it comes after `train`, and `train#1` failed" in kept.out
    assert states(project)["evaluate"] == "1 failed"
    changed = project.here("plan", "evaluate", "--rerun", "run.evaluate").out
    assert "(evaluate#1 could not start" in changed, changed
    held = project.exits(5, "apply", "-y", "evaluate")
    assert "not launched, because a run that comes before has not succeeded: `evaluate`" in held.err
    project.write("sgpu.yml", PROJECT.replace("CODE", "0"))
    project.done("apply", "-y")
    assert states(project) == dict.fromkeys(("train", "evaluate", "report"), "2 succeeded")


def test_a_saved_plan_keeps_the_order(project: Shell) -> None:
    project.done("plan", "--out", "saved.plan")
    project.done("apply", "saved.plan")
    assert states(project)["report"] == "1 succeeded"


def test_what_cannot_be_launched_is_not_waited_for(project: Shell) -> None:
    taken = project.folder / ".sgpu/default/runs/train/1"
    taken.mkdir(parents=True)
    (taken / "outcome.json").write_text("{}")
    refused = project.exits(1, "apply", "-y")
    assert "`evaluate` was not launched: it comes after `train`, which could not be" in refused.err
    assert states(project) == {}


def test_an_output_that_gc_freed_is_made_again(project: Shell) -> None:
    project.done("apply", "-y", "--select", "train")
    project.done("gc", "-y", "--all", "--keep-last", "0")
    refused = project.exits(1, "apply", "-y", "--select", "evaluate")
    assert "`evaluate#1` reads the output of `train#1`, which is gone" in refused.err
    project.done("apply", "-y", "--rerun", "run.train")
    assert states(project)["report"] == "1 succeeded"


def test_an_output_that_is_being_read_is_neither_freed_nor_moved(project: Shell) -> None:
    waits = 'until [ -e free ]; do sleep 0.05; done; cat "$0/w"'
    project.write(
        "sgpu.yml", PROJECT.replace("CODE", "0").replace('cat "$0/w" "$WEIGHTS/w"', waits)
    )
    gate = project.folder / ".sgpu/default/runs/evaluate/1/code/free"
    project.done("apply", "-y", "--detach", "--select", "train", "--select", "evaluate")
    project.done("wait", "train")
    refused = project.exits(1, "state", "mv", "run.train", "run.first")
    assert "`evaluate#1` is active and looks at the folder of `train#1`" in refused.err
    project.done("gc", "-y", "--all", "--keep-last", "0")
    gate.touch()
    project.done("wait", "evaluate")
    project.done("state", "mv", "run.train", "run.first")
