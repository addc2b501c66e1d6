"""Files that travel and do not count: a change of them launches nothing, and a plan says so."""

import json
import sqlite3
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import Shell

RUN = (
    "name: a\ngpus: 1\ntype: CPU\nentrypoint: train.py:main\n"
    "mlflow: {enabled: false}\ntimeout: 3m\n"
)


@pytest.fixture
def applied(sgpu: Shell) -> Shell:
    """A project whose run has succeeded."""
    sgpu.write("run.yaml", RUN)
    sgpu.write("train.py", "import helpers\ndef main(): return 1\n")
    sgpu.write("helpers.py", "")
    sgpu.write("NOTES.md", "one\n")
    sgpu.write("tests/test_a.py", "")
    sgpu.write("prompts/system.md", "be kind\n")
    assert sgpu("apply", "-y").code == 0
    return sgpu


def actions(shell: Shell, *words: str) -> list[str]:
    (change,) = shell.data("plan", *words)["changes"]
    return [change["action"], change["reason"]]


KEPT = ["no_op", "up_to_date"]
CHANGED = ["create", "code_changed"]


def elsewhere(shell: Shell, folder: Path) -> Shell:
    """The same project where the code of its attempts is not in the store."""
    return replace(shell, environ={**shell.environ, "XDG_DATA_HOME": str(folder / "empty")})


def forget_what_counted(shell: Shell) -> None:
    """Leave the record as an older version wrote it."""
    (path,) = (shell.folder / ".sgpu").glob("*/state.db")
    with sqlite3.connect(path) as state:
        state.execute("update attempts set counted = null")
    state.close()


def test_notes_and_tests_launch_nothing_and_the_plan_names_what_counts(applied: Shell) -> None:
    applied.write("NOTES.md", "two\n")
    applied.write("tests/test_b.py", "")
    (applied.folder / "tests" / "test_a.py").unlink()
    shown = applied.here("plan").out
    assert "No changes." in shown
    assert "3 changed files do not count: `NOTES.md`, `tests/test_a.py`, `tests/test_b.py`" in shown
    applied.write("prompts/system.md", "be brief\n")
    applied.write("helpers.py", "\nfrom tests import test_b\n")
    shown = applied.here("plan").out
    assert "changed: helpers.py, prompts/system.md, tests/test_b.py\n" in shown
    assert "2 changed files do not count: `NOTES.md`, `tests/test_a.py`" in shown
    assert "the change of `tests/test_b.py` counts: `helpers.py:2` imports it" in shown


def test_plan_files_says_what_counts_and_why(applied: Shell) -> None:
    applied.write("helpers.py", "open('NOTES.md')\n")
    shown = applied.here("plan", "--files").out
    assert "A change of these files launches nothing:\n  tests/test_a.py  a test\n" in shown
    assert "NOTES.md  `helpers.py:1` opens it\n" in shown
    (files,) = applied.data("plan", "--files")["files"]
    (counted,) = files["counted"]
    assert counted["uncounted"] == [{"path": "tests/test_a.py", "why": "a test"}]
    assert [one["path"] for one in counted["reached"]] == ["NOTES.md"]


def test_all_files_count_where_the_file_says_so(applied: Shell) -> None:
    applied.write("run.yaml", RUN + "code: {count: all}\n")
    assert actions(applied)[0] == "update"
    applied.write("NOTES.md", "two\n")
    assert actions(applied) == CHANGED
    applied.write("run.yaml", RUN + "code: {include: [NOTES.md]}\n")
    assert actions(applied) == CHANGED
    applied.write("run.yaml", RUN.replace("entrypoint: train.py:main", "command: make"))
    assert "every file of the code counts: the command starts `make`" in applied.here("plan").out


def test_an_attempt_of_an_older_version_is_compared_by_what_counts(
    applied: Shell, tmp_path: Path
) -> None:
    forget_what_counted(applied)
    assert actions(applied) == KEPT
    applied.write("NOTES.md", "two\n")
    (applied.folder / "tests" / "test_a.py").unlink()
    assert actions(applied) == KEPT
    assert actions(elsewhere(applied, tmp_path)) == CHANGED
    applied.write("helpers.py", "import tests.test_a\n")
    assert actions(applied) == CHANGED
    applied.write("helpers.py", "")
    assert actions(applied) == KEPT
    applied.write("train.py", "def main(): return 2\n")
    assert actions(applied) == CHANGED


def test_a_record_needs_no_store_to_tell_that_what_counts_is_the_same(
    applied: Shell, tmp_path: Path
) -> None:
    other = elsewhere(applied, tmp_path)
    applied.write("NOTES.md", "two\n")
    assert actions(other) == KEPT
    applied.write("helpers.py", "x = 1\n")
    assert actions(other) == CHANGED


def test_what_git_tracks_and_older_versions_left_out_launches_nothing(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.write("train.py", "def main(): return 1\n")
    assert sgpu("apply", "-y").code == 0
    forget_what_counted(sgpu)
    sgpu.write(".gitignore", "*.csv\n")
    sgpu.write("data.csv", "1\n")
    for words in (["init", "-q"], ["add", "-f", "data.csv"]):
        subprocess.run(["git", "-C", sgpu.folder, *words], check=True)
    assert actions(sgpu) == KEPT


def test_a_git_that_cannot_be_asked_launches_nothing(sgpu: Shell, tmp_path: Path) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.write("train.py", "def main(): return 1\n")
    sgpu.write(".gitignore", "*.csv\n")
    sgpu.write("data.csv", "1\n")
    for words in (["init", "-q"], ["add", "-f", "data.csv"]):
        subprocess.run(["git", "-C", sgpu.folder, *words], check=True)
    assert sgpu("apply", "-y").code == 0
    assert actions(replace(sgpu, environ={**sgpu.environ, "PATH": str(tmp_path)})) == KEPT
    index = sgpu.folder / ".git" / "index"
    index.write_text("damaged")
    sgpu.exits(1, "plan")
    (sgpu.folder / ".git" / "HEAD").unlink()
    assert actions(sgpu) == KEPT
    sgpu.write("train.py", "def main(): return 2\n")
    assert actions(sgpu) == CHANGED


@pytest.mark.parametrize("counted", [True, False])
def test_what_tools_left_and_older_versions_took_for_code_launches_nothing(
    sgpu: Shell, *, counted: bool
) -> None:
    dated = "outputs/2026-01-02/03-04-05"
    sgpu.write("run.yaml", RUN)
    sgpu.write("train.py", "def main(): return 1\n")
    for folder in ("wandb", dated, "lib"):
        sgpu.write(f"{folder}/a.txt", "a\n")
    assert sgpu("apply", "-y").code == 0
    if not counted:
        forget_what_counted(sgpu)
    for mark in ("wandb/run-1/a", f"{dated}/.hydra/a", "lib/conda-meta/a"):  # now they are known
        sgpu.write(mark, "")
    assert actions(sgpu) == KEPT
    sgpu.write("train.py", "def main(): return 2\n")
    assert actions(sgpu) == CHANGED


@pytest.mark.expensive
def test_a_saved_plan_launches_the_files_that_do_not_count_too(applied: Shell) -> None:
    applied.write("train.py", "import helpers\ndef main(): return open('NOTES.md').read()\n")
    applied.done("plan", "--out", "p.plan")
    applied.write("NOTES.md", "two\n")
    assert applied("apply", "p.plan").code == 0
    assert (
        json.loads(applied.here("results", "a", "-o", "json").out)["data"]["results"][0]["value"]
        == "one\n"
    )
