"""`sgpu diff`: two attempts side by side."""

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Shell

RUN = """\
name: train
gpus: 1
type: CPU
entrypoint: train.py:main
args: {lr: LR, tags: [a, b]}
mlflow: {enabled: false}
"""
CODE = """\
import lib
def main(lr, tags):
    return {"loss": lib.FACTOR * lr, "same": 1, "gone": 1}
"""


@pytest.fixture
def twice(sgpu: Shell) -> Shell:
    """A run with two attempts, of different arguments and code."""
    sgpu.write("run.yaml", RUN.replace("LR", "1"))
    sgpu.write("train.py", CODE)
    sgpu.write("lib.py", "FACTOR = 2\n")
    sgpu.write("old.txt", "old\n")
    (sgpu.folder / "data.bin").write_bytes(b"\0\1")
    sgpu.done("apply", "-y")
    sgpu.write("run.yaml", RUN.replace("LR", "2").replace("[a, b]", "[a, c]"))
    sgpu.write("lib.py", "FACTOR = 3\x1b[31m".replace("\x1b[31m", "  # \x1b[31m") + "\n")
    sgpu.write("train.py", CODE.replace(', "gone": 1', ', "new": [1]'))
    (sgpu.folder / "data.bin").write_bytes(b"\0\2")
    (sgpu.folder / "old.txt").unlink()
    sgpu.done("apply", "-y")
    return sgpu


def test_two_attempts_are_compared_in_every_part(twice: Shell) -> None:
    shown = twice.done("diff", "train")
    assert "\x1b" not in shown.out
    lines = [line.strip() for line in shown.out.splitlines()]
    assert lines[0].startswith("- train#1 succeeded, ")
    assert lines[1].startswith("+ train#2 succeeded, ")
    for line in (
        "~ args.lr  1 -> 2",
        "~ args.tags  -1 +1 elements",
        "~ data.bin  (not text)",
        "-FACTOR = 2",
        "- old.txt",
        "-old",
        "~ train.py",
        "~ loss  2 -> 6",
        "- gone  1",
        "+ new  [1]",
        "no difference in packages, metrics",
    ):
        assert line in lines
    assert not any(line.startswith("~ same") for line in lines)


def test_the_same_as_json(twice: Shell) -> None:
    data = twice.data("diff", "train#2", "train#1")
    assert (data["before"]["attempt"], data["after"]["attempt"]) == (2, 1)
    assert data["fields"][0] == {"path": "args.lr", "before": 2, "after": 1}
    files = {file["path"]: (file["change"], file["note"]) for file in data["files"]}
    assert files == {
        "data.bin": ("changed", "not text"),
        "lib.py": ("changed", None),
        "old.txt": ("added", None),
        "train.py": ("changed", None),
    }
    assert data["files"][2]["diff"] == "@@ -0,0 +1 @@\n+old\n"
    assert {"name": "loss", "before": 6, "after": 2} in data["results"]
    assert data["not_compared"] == []


@pytest.mark.expensive
def test_an_attempt_is_compared_with_the_one_before(twice: Shell) -> None:
    twice.write("run.yaml", RUN.replace("LR", "3"))
    assert twice("apply", "-y").code == 0
    data = twice.data("diff", "train#2")
    assert (data["before"]["attempt"], data["after"]["attempt"]) == (1, 2)
    assert "`train#1` is the first attempt of its run" in twice.exits(1, "diff", "train#1").err


def test_a_file_stands_alone(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    for words in (("run.yaml", "other"), ("other", "run.yaml")):
        refused = sgpu.exits(64, "diff", *words)
        assert "`run.yaml` is a file: name two runs, or the file alone" in refused.err


def test_what_was_freed_is_said(twice: Shell) -> None:
    store = Path(twice.environ["XDG_DATA_HOME"]) / "sgpu/store"
    for manifest in (store / "manifests").iterdir():
        manifest.unlink()
    folder = twice.folder / ".sgpu/default/runs/train/1"
    os.rename(folder, twice.folder.parent / "elsewhere")
    shown = twice.here("diff", "train").out
    assert "~ args.lr  1 -> 2" in shown
    assert "not compared: the code of `train#1` is not in the store" in shown
    assert "not compared: what `train#1` left was deleted" in shown
    (same,) = (line for line in shown.splitlines() if line.startswith("no difference"))
    assert "code" not in same
