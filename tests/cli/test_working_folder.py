"""Ranks work in a copy of the code: what they write there, and what they miss there, is named."""

import pytest

from tests.cli.conftest import Shell

RUN = """\
name: train
gpus: 1
type: CPU
entrypoint: train.py
mlflow: {enabled: false}
"""


def applied(sgpu: Shell, script: str, more: str = "") -> str:
    sgpu.write("run.yaml", RUN + more)
    sgpu.write("train.py", script)
    return sgpu.here("apply", "-y").err


WRITES = """\
import os, pathlib
for number in range(5):
    path = pathlib.Path(f"out/{number}.pt")
    path.parent.mkdir(exist_ok=True)
    path.write_text("weights")
pathlib.Path("data/log.txt").write_text("written through a link")
pathlib.Path(os.environ["SGPU_OUTPUT_DIR"], "kept.pt").write_text("weights")
import helper
"""


def test_files_that_the_next_attempt_does_not_see_are_named_once(sgpu: Shell) -> None:
    sgpu.write("data/train.bin", "")
    sgpu.write("helper.py", "")
    said = applied(sgpu, WRITES, "code: {link: [data]}\n")
    note = (
        "train#1 wrote 5 files into its working folder (`out/0.pt`, `out/1.pt`, `out/2.pt`, ...)"
        ". The next attempt does not see them: write files that you want to keep to SGPU_OUTPUT_DIR"
    )
    assert said.count(note) == 1
    assert said.count("working folder") == 1
    assert note in sgpu.here("show", "train").out
    (run,) = sgpu.data("status")["runs"]
    assert run["working_files"] == {"count": 5, "names": ["out/0.pt", "out/1.pt", "out/2.pt"]}


@pytest.mark.parametrize(
    "script",
    [
        "import os\nopen(os.environ['SGPU_OUTPUT_DIR'] + '/model.pt', 'w')\n",
        "import helper\n",  # leaves bytecode
    ],
)
def test_files_that_are_kept_or_bytecode_are_not_named(sgpu: Shell, script: str) -> None:
    sgpu.write("helper.py", "")
    assert "working folder" not in applied(sgpu, script)
    (run,) = sgpu.data("status")["runs"]
    assert "working_files" not in run


@pytest.mark.parametrize(
    ("path", "reason", "hint"),
    [
        ("data/train.bin", "line 1 of `.gitignore` (`data/`)", "code: {include: [data/train.bin]}"),
        ("./data/train.bin", "line 1 of `.gitignore` (`data/`)", "code: {link: [data/train.bin]}"),
        ("weights.log", "files of this name are never code", "code: {link: [weights.log]}"),
        ("notes/a.txt", "`notes` in `code.exclude`", "code: {include: [notes/a.txt]}"),
        ("../shared.txt", "it lies outside of the code", "set `code.root`"),
    ],
)
@pytest.mark.parametrize("late", [False, True], ids=["opened", "chained"])
def test_a_file_that_stayed_behind_is_told_with_the_rule(
    sgpu: Shell, path: str, reason: str, hint: str, late: bool
) -> None:
    sgpu.write(".gitignore", "data/\n")
    for name in ("data/train.bin", "weights.log", "notes/a.txt", "../shared.txt"):
        sgpu.write(name, "here")
    read = f"open('/'.join({path.split('/')!r}))"
    script = f"try: {read}\nexcept OSError as e: raise RuntimeError('no data') from e\n"
    said = applied(sgpu, script if late else read + "\n", "code: {exclude: [notes]}\n")
    plain = path.removeprefix("./")
    assert f"    `{plain}` is in the project: " in said
    assert reason in said
    (run,) = sgpu.data("status")["runs"]
    missing = run["first_cause"]["missing"]
    assert missing["path"] == plain
    assert reason in missing["reason"]
    assert hint in missing["hint"]
    assert missing["hint"] in sgpu.here("show", "train").out


@pytest.mark.parametrize("path", ["nowhere.txt", "/nowhere/at/all", "out/new/file"])
def test_a_file_that_is_nowhere_is_told_as_python_does(sgpu: Shell, path: str) -> None:
    said = applied(sgpu, f"open({path!r})\n")
    assert "FileNotFoundError" in said
    assert "is in the project" not in said
    (run,) = sgpu.data("status")["runs"]
    assert "missing" not in run["first_cause"]
