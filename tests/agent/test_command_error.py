"""A command that fails names its cause: the exception of its Python, the line of its shell."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from sgpu_decl.agent.ranks.command_error import last_exception
from sgpu_decl.rendering.spec import Entry
from tests.support import require

Make = Callable[..., Any]

CHAINED = "During handling of the above exception, another exception occurred:"
GROUP = """
try:
    raise OSError("first")
except OSError as error:
    raise ExceptionGroup("all", [ValueError(1), ExceptionGroup("in", [KeyError("k")])]) from error
"""
LONG = """
import sys
def f(n):
    if n == 300:
        raise KeyError("deep" + "x" * 40_000)
    f(n + 1)
sys.stderr.write("noise\\n" * 50_000)
f(0)
"""
PRINTED = """
import traceback
try:
    1 / 0
except Exception:
    traceback.print_exc()
"""
THREAD = """
import sys, threading
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
sys.exit(1)
"""
TEXT_AMONG_OTHERS = """
import atexit, sys, warnings
atexit.register(lambda: print("wandb: Find logs at: x", file=sys.stderr))
atexit.register(lambda: warnings.warn("leaked"))
sys.stderr.write("100%|####| 5/5\\r")
sys.exit("no data\\n  in ./x")
"""
RUST = r"""
cat >&2 <<'EOF'
thread 'main' panicked at m.rs:2:5:
boom
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
EOF
exit 101
"""
GO = r"printf 'panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n\t/x.go:4\n' >&2; exit 2"
CASES = {
    "plain": ("raise KeyError('boom')", "KeyError: 'boom'"),
    "of a module": ("import json; json.loads('{')", "json.decoder.JSONDecodeError: Expecting"),
    "without text": ("raise SystemError", "SystemError"),
    "several lines": ("raise ValueError('one\\ntwo\\n  three')", "ValueError: one"),
    "chained": (
        "try:\n    1 / 0\nexcept Exception:\n    raise KeyError('late')",
        "KeyError: 'late'",
    ),
    "caused": ("raise KeyError(1) from OSError('why')", "KeyError: 1"),
    "noted": ("e = KeyError(1)\ne.add_note('a note')\nraise e", "KeyError: 1"),
    "a group": (GROUP, "ExceptionGroup: all (2 sub-exceptions)"),
    "syntax": ("x = (", "SyntaxError: '(' was never closed"),
    "indented": ("def f():\nx = 1", "IndentationError: expected an indented block"),
    "deep": ("def f(n): return f(n + 1)\nf(0)", "RecursionError: maximum recursion depth"),
    "long": (LONG, "KeyError: 'deepxxx"),
    "after one that was printed": (f"{PRINTED}\nraise KeyError('last')", "KeyError: 'last'"),
    "not that of a thread": (THREAD, "exited with 1; last on stderr: Zero"),
    "another exit code": ("import sys\nsys.exit(7)", "rank 0 exited with 7"),
    "a text": ("import sys\nsys.exit('no data in ./x')", "exited with 1; last on stderr: no data"),
    "a text before others": (
        TEXT_AMONG_OTHERS,
        "exited with 1; last on stderr: no data",
    ),
    "of argparse": (
        "import argparse\nargparse.ArgumentParser().parse_args(['--lr'])",
        "exited with 2; last on stderr: main.py: error: unrecognized arguments: --lr",
    ),
    "of a child that exits with a text": (
        "import subprocess as s\ns.run(['python', '-c', 'exit(\"no data\")'], check=True)",
        "subprocess.CalledProcessError: Command",
    ),
}


def command(*argv: str) -> Entry:
    return Entry(kind="command", command=argv)


def run(make_attempt: Make, source: str, entry: Entry, **fields: Any) -> Any:
    """Where the user's files lie in `/home/me/code`."""
    fields = {"world_size": 1, "code_root": "/home/me/code", **fields}
    return make_attempt(source, entry=entry, **fields).launch()


@pytest.mark.parametrize("case", CASES)
def test_the_exception_that_ended_a_command_is_its_cause(make_attempt: Make, case: str) -> None:
    source, expected = CASES[case]
    attempt = run(make_attempt, source, command("python", "main.py"))

    cause = attempt.wait()["first_cause"]

    assert cause["summary"].startswith(expected), cause
    if "Error" in expected.split(";")[0] or "Group" in expected:
        assert cause["class"] == "exception"
        assert 'File "/home/me/code/main.py", line ' in cause["traceback"]
        assert str(attempt.folder) not in cause["traceback"]
    else:
        assert (cause["class"], cause["traceback"]) == ("exit_code", None)
    if case in ("chained", "caused", "a group"):
        assert "ZeroDivisionError" in cause["traceback"] or "OSError: " in cause["traceback"]
    if case.startswith("of a child"):
        assert cause["summary"].endswith("; last on stderr before it: no data")
    if case == "a group":
        assert "KeyError: 'k'" in cause["traceback"]


@pytest.mark.parametrize(
    "entry",
    [
        command("bash", "-c", "echo so; python main.py"),
        Entry(kind="shell", shell="echo so\npython main.py\necho never"),
        Entry(kind="shell", shell="python main.py 2>&1 >/dev/null | tee log >&2"),
        command("python", "-c", "import subprocess as s; s.run(['python', 'main.py'], check=True)"),
        command("env", "-u", "HOME", "python", "-m", "main"),
    ],
    ids=["bash", "text", "pipe", "subprocess", "module"],
)
def test_it_is_the_cause_however_python_was_started(make_attempt: Make, entry: Entry) -> None:
    cause = run(make_attempt, "raise KeyError('boom')", entry).wait()["first_cause"]
    assert (cause["class"], cause["summary"]) == ("exception", "KeyError: 'boom'")
    assert "/home/me/code/main.py" in cause["traceback"]


class Counted(str):
    """A text that counts the characters of what is cut out of it."""

    cut = 0
    __slots__ = ()

    def __getitem__(self, key: Any) -> str:
        part = super().__getitem__(key)
        Counted.cut += len(part)
        return part


LOGGED = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nOSError: {}\n'
FRAMES = '  File "a.py", line 1\n' * 500
CHAIN = "".join(f"{LOGGED.format(n)}\n{CHAINED}\n\n" for n in range(500))
TEXTS = {
    "logged": ("".join(LOGGED.format(n) for n in range(500)), "OSError", "499"),
    "chained": (f"{CHAIN}{LOGGED.format('last')}", "OSError", "last"),
    "chained to what was cut off": (
        f"KeyError: 1\n\n{CHAINED}\n\n{CHAIN}{LOGGED.format('last')}", "OSError", "last",
    ),
    "of children": (
        LOGGED.replace("OSError", "CalledProcessError") * 500, "CalledProcessError", "{}",
    ),
    "heads of a syntax": (f"{FRAMES}SyntaxError: bad\n", "SyntaxError", "bad"),
    "heads of nothing": (f"{LOGGED}{FRAMES}OSError: bad\n", "OSError", "{}"),
}  # fmt: skip


@pytest.mark.parametrize("case", TEXTS)
def test_the_work_grows_with_the_length_of_what_was_logged(case: str) -> None:
    """A supervisor that works for seconds is taken for lost by the others."""
    text, kind, message = TEXTS[case]
    Counted.cut = 0

    found = last_exception(Counted(text))

    assert found is not None
    assert found[:2] == (kind, message)
    if "chained" in case:
        assert found[2] == text.rstrip("\n")
    assert Counted.cut <= 3 * len(text)


@pytest.mark.expensive
@pytest.mark.torch
@pytest.mark.parametrize("program", ["torchrun", "accelerate"])
def test_it_is_the_cause_below_a_launcher(make_attempt: Make, program: str) -> None:
    require("torch")
    argv = {
        "torchrun": ("torch.distributed.run", "--standalone", "--nproc-per-node=2"),
        "accelerate": ("accelerate.commands.launch", "--cpu", "--num_processes=1"),
    }[program]
    entry = command(sys.executable, "-m", *argv, "main.py")
    cause = run(make_attempt, "raise KeyError('boom')", entry).wait()["first_cause"]
    assert (cause["class"], cause["summary"]) == ("exception", "KeyError: 'boom'")


def test_an_exception_that_was_caught_and_printed_is_no_failure(make_attempt: Make) -> None:
    ended = run(make_attempt, PRINTED, command("python", "main.py")).wait()
    assert (ended["state"], ended["first_cause"]) == ("succeeded", None)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (
            "echo a\necho $MISSING_ONE",
            "line 2 of `command`, MISSING_ONE: unbound variable: `echo $",
        ),
        ("echo a\n\nnosuchprogram -x", "line 3 of `command`, nosuchprogram: command not found"),
        (
            "echo a\nyes | head -1 > /dev/null\n",
            "exited with 141, which is SIGPIPE: in line 2 (`yes |",
        ),
    ],
)
def test_what_ended_a_text_of_bash_is_named_with_its_line(
    make_attempt: Make, text: str, named: str
) -> None:
    cause = run(make_attempt, "", Entry(kind="shell", shell=text)).wait()["first_cause"]
    assert named in cause["summary"]
    assert cause["class"] == "exit_code"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo first >&2; echo 'no space left' >&2; exit 3", "no space left"),
        ("set -x; echo 'no space left' >&2; false", "no space left"),
        ("nosuchprogram || true; echo 'no data' >&2; exit 4", "no data"),
        ("ls /no/such/folder", "cannot access '/no/such/folder': No such file or directory"),
        (RUST, "thread 'main' panicked at m.rs:2:5: boom"),
        (GO, "panic: boom"),
    ],
)
def test_the_last_line_that_may_be_a_reason_is_the_cause(
    make_attempt: Make, text: str, reason: str
) -> None:
    cause = run(make_attempt, "", Entry(kind="shell", shell=text)).wait()["first_cause"]
    assert "; last on stderr: " in cause["summary"]
    assert cause["summary"].endswith(reason)
    assert cause["class"] == "exit_code"


@pytest.mark.parametrize(
    ("script", "named"),
    [
        (b"echo hi\n", "no `#!` line"),
        (b"#!/bin/bash\r\necho hi\r\n", "CRLF"),
    ],
)
def test_a_script_that_the_kernel_cannot_start_is_explained(
    make_attempt: Make, script: bytes, named: str
) -> None:
    attempt = make_attempt("", entry=command("./run.sh"), world_size=1)
    file = attempt.folder / "code/run.sh"
    file.write_bytes(script)
    file.chmod(0o755)
    cause = attempt.launch().wait()["first_cause"]
    assert cause["class"] == "launch_failed_user"
    assert named in cause["summary"]


@pytest.mark.parametrize("text", ["./run.sh", "bash run.sh", "source run.sh", "./env.py"])
def test_a_script_of_windows_in_a_text_is_explained(make_attempt: Make, text: str) -> None:
    attempt = make_attempt("", entry=Entry(kind="shell", shell=text), world_size=1)
    code = attempt.folder / "code"
    (code / "run.sh").write_bytes(b"#!/bin/bash\r\nset -e\r\nno_program\r\n")
    (code / "env.py").write_bytes(b"#!/usr/bin/env python3\r\nprint(1)\r\n")
    for file in code.iterdir():
        file.chmod(0o755)
    cause = attempt.launch().wait()["first_cause"]
    assert cause["class"] == "exit_code"
    assert "CRLF" in cause["summary"]
