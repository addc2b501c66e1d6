"""A traceback names the user's files, and what ran is said where that is something else by now."""

from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.cli.test_working_folder import RUN

SCRIPT = """\
import helper


class Shown:
    def __str__(self):
        try:
            return helper.divided(1, 0)
        except ZeroDivisionError as error:
            raise RuntimeError("cannot be shown") from error


print(Shown())
"""
HELPER = "def divided(a, b):\n    return a / b\n"


def failing(sgpu: Shell, script: str, run: str = RUN) -> dict[str, object]:
    sgpu.write("run.yaml", run)
    sgpu.write("train.py", script)
    sgpu.exits(5, "apply", "-y")
    (found,) = sgpu.data("status")["runs"]
    cause: dict[str, object] = found["first_cause"]
    return cause


def test_a_traceback_names_the_users_files_and_the_copy_once(sgpu: Shell) -> None:
    sgpu.write("helper.py", HELPER)
    cause = failing(sgpu, SCRIPT)

    copy = sgpu.folder / ".sgpu/default/runs/train/1/code"
    assert cause["code"] == {"copy": str(copy), "changed": []}
    shown = sgpu.here("show", "train").out
    for text in (str(cause["traceback"]), shown, sgpu.here("logs", "train").out):
        assert f'File "{sgpu.folder}/helper.py", line 2, in divided\n' in text
        assert f'File "{sgpu.folder}/train.py", line 12, in <module>\n' in text
        assert "return a / b" in text
        assert "sgpu_decl" not in text
        assert "_air" not in text
    assert shown.count(str(copy)) == 1
    assert "changed" not in shown

    sgpu.write("helper.py", "# a line more\n" + HELPER)
    (sgpu.folder / "train.py").unlink()
    shown = sgpu.here("show", "train").out
    assert f"changed since then: {sgpu.folder}/helper.py\n" in shown
    assert f"changed since then: {sgpu.folder}/train.py\n" in shown


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("import broken\n", 'broken.py", line 1\n'),
        ("def f():\n    f()\nf()\n", 'train.py", line 2, in f\n'),
        ("try:\n    1 / 0\nexcept Exception:\n    [][0]\n", 'train.py", line 2, in <module>\n'),
    ],
    ids=["syntax", "recursion", "context"],
)
def test_tracebacks_of_all_kinds_name_the_users_files(sgpu: Shell, script: str, line: str) -> None:
    sgpu.write("broken.py", "x = = 1\n")
    trace = str(failing(sgpu, script)["traceback"])
    assert f'File "{sgpu.folder}/{line}' in trace
    assert ".sgpu" not in trace


def test_the_stack_of_a_crash_names_the_users_files(sgpu: Shell) -> None:
    cause = failing(sgpu, "import ctypes\nctypes.string_at(0)\n")
    assert f'File "{sgpu.folder}/train.py", line 2 in <module>\n' in str(cause["traceback"])
    assert "sgpu_decl/rank" not in str(cause["traceback"])
    assert cause["code"]


def test_tracebacks_of_functions_name_files_below_the_root_of_the_code(sgpu: Shell) -> None:
    sgpu.write("src/job.py", "def main():\n    raise ValueError('no')\n")
    cause = failing(sgpu, "", RUN.replace("train.py", "job.py:main") + "code: {root: src}\n")
    trace = str(cause["traceback"])
    assert trace.startswith(
        f'Traceback (most recent call last):\n  File "{sgpu.folder}/src/job.py", line 2, in main'
    )


def test_a_hook_of_the_users_shows_it_and_may_fail(sgpu: Shell) -> None:
    hook = "import sys\nsys.excepthook = lambda *_: {}\n1 / 0\n"
    failing(sgpu, hook.format("print('shown by me', file=sys.stderr)"))
    assert sgpu.here("logs", "train").out == "shown by me\n"

    cause = failing(sgpu, hook.format("no_such_name"))
    assert cause["summary"] == "ZeroDivisionError: division by zero"
    said = sgpu.here("logs", "train").out
    assert "Error in sys.excepthook:" in said
    assert "Original exception was:" in said
    assert "ZeroDivisionError: division by zero" in said

    cause = failing(sgpu, hook.format("__import__('os')._exit(1)"))
    assert cause["summary"] == "ZeroDivisionError: division by zero"


def test_a_rank_without_a_descriptor_left_still_says_why(sgpu: Shell) -> None:
    script = (
        "import os, resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "left = []\n"
        "try:\n"
        "    while True: left.append(os.open('/dev/null', os.O_RDONLY))\n"
        "except OSError: pass\n"
        "raise ValueError('no room')\n"
    )
    assert failing(sgpu, script)["summary"] == "ValueError: no room"
    assert "ValueError: no room" in sgpu.here("logs", "train").out


@pytest.mark.parametrize(
    ("entrypoint", "script"),
    [
        ("train.py", "import sys\nsys.exit('no data in data/')\n"),
        ("train.py:main", "import sys\ndef main():\n    sys.exit('no data in data/')\n"),
    ],
)
def test_the_words_of_an_exit_are_the_first_cause(
    sgpu: Shell, entrypoint: str, script: str
) -> None:
    cause = failing(sgpu, script, RUN.replace("train.py", entrypoint))
    assert (cause["class"], cause["summary"]) == ("exit_code", "SystemExit: no data in data/")
    assert sgpu.here("logs", "train").out == "no data in data/\n"


def test_an_exit_with_a_number_has_no_words(sgpu: Shell) -> None:
    cause = failing(sgpu, "import sys\nsys.exit(3)\n")
    assert (cause["class"], cause["summary"]) == ("exit_code", "rank 0 exited with 3")


def test_files_on_a_node_are_named_from_the_root_of_the_code() -> None:
    from sgpu_decl.rank.error_record import traceback_text

    try:
        raise ValueError
    except ValueError as error:
        here = Path(__file__)
        text = traceback_text(error, str(here.parent), "")
    assert f'File "{here.name}", line' in text
