"""The table of several runs: `sgpu results` and `sgpu show` of a matrix or a glob."""

import csv
import io
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Shell

SWEEP = """\
name: sweep
gpus: 1
type: CPU
entrypoint: train.py:main
matrix: {lr: [10, 9], seed: [1, 2]}
mlflow: {enabled: false}
"""
TRAIN = """\
def main(lr, seed):
    if (lr, seed) == (9, 2):
        raise SystemExit(3)
    return {"loss": lr / seed, "note": "a|b"}
"""


@pytest.fixture
def swept(sgpu: Shell) -> Shell:
    sgpu.write("run.yaml", SWEEP)
    sgpu.write("train.py", TRAIN)
    sgpu.exits(5, "apply", "-y")
    return sgpu


def test_a_matrix_is_a_table_in_the_order_of_the_file(swept: Shell) -> None:
    text = swept.here("results", "sweep").out
    lines = [line.split() for line in text.splitlines()]
    assert lines[0] == ["lr", "seed", "attempt", "state", "time", "loss", "note"]
    assert [line[:4] for line in lines[1:5]] == [
        ["10", "1", "#1", "succeeded"],
        ["10", "2", "#1", "succeeded"],
        ["9", "1", "#1", "succeeded"],
        ["9", "2", "#1", "failed"],
    ]
    assert text.endswith("\n4 runs: 3 succeeded, 1 failed\n")
    states = swept.data("status")["runs"]
    assert [run["name"] for run in states] == [
        f'sweep["lr={lr},seed={seed}"]' for lr in (10, 9) for seed in (1, 2)
    ]


def test_a_table_is_sorted_and_has_four_formats(swept: Shell) -> None:
    best = swept.data("results", "sweep", "--sort", "loss")["runs"]
    assert [run["returned"].get("loss") for run in best] == [5.0, 9.0, 10.0, None]
    assert best[0]["axes"] == {"lr": 10, "seed": 2}
    assert best[0]["address"] == 'run.sweep["lr=10,seed=2"]'
    answer = swept.here("results", "sweep*", "--sort", "-loss", "-o", "csv").out
    rows = list(csv.DictReader(io.StringIO(answer)))
    assert [row["loss"] for row in rows] == ["10.0", "9.0", "5.0", ""]
    assert rows[0]["note"] == "a|b"
    markdown = swept.here("results", "sweep", "-o", "markdown").out.splitlines()
    assert markdown[0] == "| lr | seed | attempt | state | time | loss | note |"
    assert r"`a\|b`" in markdown[2]


def test_a_column_that_the_table_lacks_is_refused(swept: Shell) -> None:
    answer = swept.here("results", "sweep", "--sort", "los")
    assert (answer.code, answer.out) == (1, "")
    assert "error[unknown_column]: the table has no column `los`" in answer.err


def test_one_run_of_a_matrix_is_shown_by_rank_and_whole(swept: Shell) -> None:
    name = 'sweep["lr=9,seed=1"]'
    assert swept.here("results", name).out == 'rank 0: {"loss": 9.0, "note": "a|b"}\n'
    assert swept.here("show", name).out.startswith(f"run.{name}\n")
    one = swept.here("results", name, "-o", "csv").out.splitlines()
    assert one[0] == "address,attempt,lr,seed,state,seconds,loss,note"


def test_a_row_whose_results_cannot_be_read_is_not_taken_for_one_without(swept: Shell) -> None:
    names = [f'sweep["lr=10,seed={seed}"]' for seed in (1, 2)]
    deleted, damaged = (Path(swept.data("show", name)["links"]["folder"]) for name in names)
    shutil.rmtree(deleted)
    damaged.joinpath("ranks/0/output.json").write_text('{"loss": ')
    gone = f"what `{names[0]}#1` left was deleted"
    cut = f"what `{names[1]}#1` returned cannot be read: what rank 0 returned cannot be read in "

    rows = swept.data("results", "sweep")["runs"]
    assert [row["returned"].get("loss") for row in rows] == [None, None, 9.0, None]
    assert [(row["unread"] or "").partition("/")[0].strip("`") for row in rows] == [
        f"{gone}, by `sgpu gc` or by hand", cut, "", "",
    ]  # fmt: skip
    for shown in (swept.here("results", "sweep").out, swept.here("show", "sweep*").out):
        assert [line.split()[-2:] for line in shown.splitlines()[1:3]] == [["?", "?"]] * 2
        assert gone in shown
        assert cut in shown
        assert shown.splitlines()[4].split()[3] == "failed"
        assert "?" not in shown.splitlines()[4]
    assert gone in swept.here("results", "sweep", "-o", "markdown").out
    written = swept.here("results", "sweep", "-o", "csv")
    assert gone in written.err
    assert gone not in written.out
    assert swept.error("results", names[1])["code"] == "result_unreadable"

    compared = swept.here("diff", names[1], 'sweep["lr=9,seed=1"]').out
    assert f"not compared: {cut}" in compared
    (same,) = (line for line in compared.splitlines() if line.startswith("no difference"))
    assert "results" not in same
    assert "loss" not in compared


def test_what_gc_deleted_leaves_rows_that_say_it(swept: Shell) -> None:
    swept.done("gc", "-y", "--all", "--keep-last", "0")
    rows = swept.data("results", "sweep")["runs"]
    assert [(row["state"], row["returned"]) for row in rows] == [
        ("succeeded", {}),
        ("succeeded", {}),
        ("succeeded", {}),
        ("failed", {}),
    ]
    assert all("was deleted, by `sgpu gc` or by hand" in row["unread"] for row in rows)
    assert "its record is kept: `sgpu show" in swept.here("results", "sweep").out


def test_a_run_that_became_a_matrix_is_told_from_its_cells(sgpu: Shell) -> None:
    common = "name: sweep\ngpus: 1\ntype: CPU\nmlflow: {enabled: false}\n"
    sgpu.write("run.yaml", common + "command: ['true']\n")
    for _ in range(2):
        sgpu.done("apply", "-y", "--rerun", "sweep")
    sgpu.write("other.yaml", common + "command: ['echo', '${matrix.n}']\nmatrix: {n: [1, 2]}\n")
    sgpu.done("apply", "-y", "other.yaml")
    lines = [line.split() for line in sgpu.here("results", "sweep").out.splitlines()]
    assert lines[0][:3] == ["run", "n", "attempt"]
    assert lines[1][:3] == ["sweep", "#2", "succeeded"]
    assert [line[:3] for line in lines[2:4]] == [["sweep", "1", "#1"], ["sweep", "2", "#1"]]
    for number in (1, 2):
        shown = sgpu.here("show", f"sweep#{number}").out
        assert shown.startswith(f"run.sweep\n  sweep#{number} succeeded")


def test_a_matrix_of_one_run_is_a_table_too(sgpu: Shell) -> None:
    sgpu.write("run.yaml", SWEEP.replace("[10, 9], seed: [1, 2]", "[10], seed: [1]"))
    sgpu.write("train.py", TRAIN)
    sgpu.done("apply", "-y")
    for command in ("results", "show"):
        for name in ("sweep", "run.sweep", "run.yaml", "sweep*"):
            (run,) = sgpu.data(command, name)["runs"]
            assert run["secrets"] == []
    whole = sgpu.data("results", 'sweep["lr=10,seed=1"]#1')
    assert [result["rank"] for result in whole["results"]] == [0]


def test_the_table_names_results_with_values_of_secrets(sgpu: Shell) -> None:
    sgpu.write("token.txt", "s3cret-value")
    sgpu.write("run.yaml", SWEEP + "env: {secrets: {TOKEN: file:token.txt}}\n")
    sgpu.write(
        "train.py",
        "import os\ndef main(lr, seed):\n    return {'t': os.environ['TOKEN'] if lr == 9 else 1}\n",
    )
    sgpu.done("apply", "-y")
    answer = sgpu.here("results", "sweep", "-o", "json")
    assert [len(run["secrets"]) for run in answer.json["data"]["runs"]] == [0, 0, 1, 1]
    assert answer.err == (
        "warning: what 2 runs returned holds values of secrets (`TOKEN`): `output.json` "
        "or `output.pkl` of their ranks keeps them in clear: "
        '`sweep["lr=9,seed=1"]#1`, `sweep["lr=9,seed=2"]#1`\n'
    )
    assert "what rank 0 of `sweep" in sgpu.here("results", "sweep[*lr=9,seed=1*").err
    assert "s3cret-value" not in answer.out + answer.err
