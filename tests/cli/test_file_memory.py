"""What a file said is remembered by its bytes, and by all else that it was read with."""

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

RUN = """
name: train
description: learn ${env.SUBJECT} ${vars.x}
gpus: 2
type: cpu
command: ["true", "${var.x}", "${matrix.seed}"]
timeout: 90m
tags: {a.b: "1", c: "${git.branch}"}
parameters: {rate: 1e-3, deep: [1, {two: 2.0}], none: null}
env: {variables: {LR: 010}, secrets: {KEY: "file:key"}}
retry: {max: 1, on: [infra, error]}
launch: {warm: off}
matrix: {seed: [1, 2]}
variables: {x: one}
targets: {prod: {timeout: 5m}}
mlflow: {enabled: false}
"""
FORGED = "this was remembered"


def record_of(sgpu: Any) -> Path:
    (record,) = (Path(sgpu.environ["XDG_CACHE_HOME"]) / "sgpu" / "files").iterdir()
    return record


def write_record(record: Path, data: bytes) -> None:
    record.write_bytes(hashlib.sha256(data).hexdigest().encode() + b"\n" + data)


@pytest.fixture
def forged(sgpu: Any) -> Any:
    """A project whose file was read, and its record changed: who uses that record shows it."""
    sgpu = replace(sgpu, environ={**sgpu.environ, "SUBJECT": "maths"})
    sgpu.write("run.yaml", RUN.replace("${git.branch}", "main"))
    assert "near_reference" in sgpu.here("plan", "-o", "json").out
    record = record_of(sgpu)
    head, _, data = record.read_bytes().partition(b"\n")
    assert head.decode() == hashlib.sha256(data).hexdigest()
    said = json.loads(data)
    (finding,) = said["content"]["findings"]
    finding[1] = FORGED
    write_record(record, json.dumps(said).encode())
    return sgpu


def uses(sgpu: Any, *arguments: str) -> bool:
    out = sgpu.here("plan", "-o", "json", *arguments).out
    assert (
        FORGED in out or "near_reference" in out
    )  # what is remembered and what is read warn alike
    return FORGED in out


def test_an_unchanged_file_is_not_read_again(forged: Any) -> None:
    assert uses(forged)
    assert uses(forged, "run.yaml")
    assert not uses(forged, "--set", "timeout=1m")
    assert not uses(forged, "--var", "x=two")


def changed_text(sgpu: Any) -> Any:
    with (sgpu.folder / "run.yaml").open("a") as file:
        file.write("# a comment\n")
    return sgpu


def changed_variable(sgpu: Any) -> Any:
    return replace(sgpu, environ={**sgpu.environ, "SUBJECT": "music"})


def cut_record(sgpu: Any) -> Any:
    record = record_of(sgpu)
    record.write_bytes(record.read_bytes()[:-20])
    return sgpu


def empty_record(sgpu: Any) -> Any:
    record_of(sgpu).write_bytes(b"")
    return sgpu


def altered_record(sgpu: Any) -> Any:
    record = record_of(sgpu)
    record.write_bytes(record.read_bytes().replace(b'"train"', b'"brain"'))
    return sgpu


def record_of_another_version(sgpu: Any) -> Any:
    record = record_of(sgpu)
    data = json.loads(record.read_bytes().partition(b"\n")[2])
    write_record(record, json.dumps({**data, "key": "0" * 64}).encode())
    return sgpu


def record_that_others_may_write(sgpu: Any) -> Any:
    record_of(sgpu).chmod(0o666)
    return sgpu


def link_to_a_record(sgpu: Any) -> Any:
    record = record_of(sgpu)
    record.rename(sgpu.folder / "elsewhere")
    record.symlink_to(sgpu.folder / "elsewhere")
    return sgpu


def pipe_for_a_record(sgpu: Any) -> Any:
    record = record_of(sgpu)
    record.unlink()
    os.mkfifo(record)
    return sgpu


def record_of_another_shape(sgpu: Any) -> Any:
    write_record(record_of(sgpu), b"{}")
    return sgpu


def record_that_is_no_json(sgpu: Any) -> Any:
    write_record(record_of(sgpu), b"{")
    return sgpu


@pytest.mark.parametrize(
    "happen",
    [
        changed_text,
        changed_variable,
        cut_record,
        empty_record,
        altered_record,
        record_of_another_version,
        record_of_another_shape,
        record_that_is_no_json,
        record_that_others_may_write,
        link_to_a_record,
        pipe_for_a_record,
    ],
)
def test_a_record_that_is_old_damaged_or_foreign_is_not_used(
    forged: Any, happen: Callable[[Any], Any]
) -> None:
    sgpu = happen(forged)
    assert not uses(sgpu)
    assert not uses(sgpu)  # the second time, what was read the first time is remembered


def test_a_file_that_asks_git_is_read_again_on_another_branch(sgpu: Any) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", "-C", sgpu.folder, *who, *words], check=True, capture_output=True)

    sgpu = replace(sgpu, environ={**sgpu.environ, "SUBJECT": "maths"})
    sgpu.write("run.yaml", RUN)
    sgpu.write(".gitignore", ".sgpu\n")
    git("init", "-q", "-b", "one")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    assert '"one"' in sgpu.here("plan", "-o", "json").out
    assert '"one"' in sgpu.here("plan", "-o", "json").out
    git("checkout", "-q", "-b", "two")
    assert '"two"' in sgpu.here("plan", "-o", "json").out


def test_validating_uses_what_is_remembered_of_all_targets(forged: Any) -> None:
    read = forged.here("validate")  # no plan has read the target yet
    assert "near_reference" in read.err
    assert FORGED not in read.err
    forged.here("plan", "-t", "prod")
    assert FORGED in forged.here("validate").err
    changed_text(forged)
    assert FORGED not in forged.here("validate").err


def test_what_is_remembered_is_valid_in_the_same_words(sgpu: Any) -> None:
    sgpu = replace(sgpu, environ={**sgpu.environ, "SUBJECT": "maths"})
    sgpu.write("run.yaml", RUN.replace("${git.branch}", "main"))
    read = sgpu.here("validate")
    sgpu.here("plan")
    sgpu.here("plan", "-t", "prod")
    assert sgpu.here("validate") == read


def test_errors_of_one_target_are_shown_each_time(sgpu: Any) -> None:
    sgpu.write(
        "run.yaml",
        "name: a\ngpus: 1\ntype: CPU\ncommand: ['true']\ntargets: {b: {gpus: 0}, c: {gpus: 2}}\n",
    )
    first = sgpu.here("validate")
    assert first.code == 1
    assert "run.yaml:5:21" in first.err
    assert sgpu.here("validate") == first
    assert sgpu.here("validate", "-t", "c").code == 0


@pytest.mark.expensive
def test_a_file_of_very_many_runs_is_remembered_when_it_is_read_again(sgpu: Any) -> None:
    cells = list(range(1001))
    sgpu.write(
        "run.yaml",
        f"name: a\ngpus: 1\ntype: CPU\ncommand: [echo, '${{matrix.n}}']\nmatrix: {{n: {cells}}}\n",
    )
    said = []
    for _ in range(3):
        assert sgpu.here("plan").code == 0
        said.append(json.loads(record_of(sgpu).read_bytes().partition(b"\n")[2])["content"])
    assert said[0] == "read once"
    assert len(said[1]["runs"]) == 1001
    assert said[2] == said[1]


def test_errors_are_shown_each_time(sgpu: Any) -> None:
    sgpu.write("run.yaml", "name: a\ngpus: 0\ntype: CPU\ncommand: ['true']\n")
    first = sgpu.here("plan")
    assert first.code == 1
    assert "run.yaml:2:7" in first.err
    assert sgpu.here("plan") == first


@pytest.mark.parametrize("target", [(), ("-t", "prod")])
def test_a_plan_by_what_is_remembered_is_the_plan_by_the_file(
    sgpu: Any, target: tuple[str, ...]
) -> None:
    sgpu = replace(sgpu, environ={**sgpu.environ, "SUBJECT": "maths"})
    sgpu.write("run.yaml", RUN.replace("${git.branch}", "main"))
    plans = []
    for _ in range(2):
        answer = sgpu.here("plan", "-o", "json", *target)
        plan = json.loads(answer.out)["data"]
        plans.append(({**plan, "created_at": "", "lineage": ""}, sgpu.here("plan", *target)))
        assert [item["origin"] for item in plan["changes"][0]["fields"]]
    assert plans[0] == plans[1]
    record_of(sgpu).unlink()
    assert sgpu.here("plan", *target) == plans[0][1]


def test_a_record_is_not_used_once_a_module_that_read_the_file_has_changed(forged: Any) -> None:
    record = record_of(forged)
    said = json.loads(record.read_bytes().partition(b"\n")[2])
    rooms = {Path(file).parent.name for file, *_ in said["modules"]}
    assert {"backends", "config", "facts", "local", "planning", "pydantic", "text"} <= rooms
    write_record(record, json.dumps(said).encode())
    assert uses(forged)
    module = next(item for item in said["modules"] if item[0].endswith("planning/policy.py"))
    module[2] += 1
    write_record(record, json.dumps(said).encode())
    assert not uses(forged)
