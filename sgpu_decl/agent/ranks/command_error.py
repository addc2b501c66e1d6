"""Why a command failed, by the end of its stderr: commands leave no record.

A program in Python ends with the traceback of its exception, and exits with 1. Programs that start
others, such as `torchrun`, then end with an exception of their own, which says no more than that.
Bash names the line of an unset variable and of a program that it does not find. Other programs, and
`sys.exit("text")`, write their reason last.
"""

from __future__ import annotations

import os
import re

from sgpu_decl.agent.attempt.error_file import end_of_stderr, is_collateral, shortened
from sgpu_decl.agent.attempt.failure_recognition import OF_A_CHILD, plain_text
from sgpu_decl.agent.ranks.rank_start import first_line_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_TAIL = 1 << 20
_SUMMARY = 2_000
_TRACEBACK = 65_536
_HEAD = re.compile(
    r"^(?:  \+ Exception Group )?Traceback \(most recent call last\):$"
    r"|^  File \"[^\"\n]*\", line \d+$",  # of an error of the syntax
    re.MULTILINE,
)
_NOT_INDENTED = re.compile(r"^[^ \n]", re.MULTILINE)
_OF_GROUP = re.compile(r"^(?!   |  \|  )[^\n]", re.MULTILINE)  # its own line, not one of its frames
_BEHIND_GROUP = re.compile(r"^(?!  \+|   )", re.MULTILINE)
_RAISED = re.compile(r"^(?:  \| )?([A-Za-z_][\w.]*)(?:: (.*))?$", re.MULTILINE)
_INVALID = frozenset({"SyntaxError", "IndentationError", "TabError"})  # has no head
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_ELSEWHERE = ("Exception in thread ", "Exception ignored in")
_BY_BASH = re.compile(r"^bash: line (\d+): (.+)$")
# How bash and env show a name of a file whose lines end as on Windows.
_WINDOWS = re.compile(r"^[^\n]*(?:\\r['\u2019]|\^M|: -\r): [^\n]*$", re.MULTILINE)
_NOT_STARTED = re.compile(
    r"(.+): (?:cannot execute: required file not found|No such file or directory)$"
)
# Lines that come after the reason, or beside it: traces, logs of torchrun, warnings, bars of
# progress, and what Rust, Node.js and Julia write last.
_NO_REASON = re.compile(
    r"\s|\+ |wandb: |[EWIF]\d{4} |\[[EWI]\d|.*\b\w*Warning: |.*\d%\||note: run with `RUST_BACKTRACE"
    r"|Node\.js v|Stacktrace:|in expression starting at |Exception ignored |exit status \d+$"
)
_PANIC = re.compile(r"^(?:panic|fatal error): .+$", re.MULTILINE)  # of Go, before its goroutines
_RUST = re.compile(r"thread '.*' (?:\(\d+\) )?panicked at .+:$")
_SIGPIPE = 141  # 128 + SIGPIPE, as a shell says it


def user_paths(spec: Mapping[str, Any]) -> Callable[[str], str]:
    """Return what names the user's own files, in the tracebacks of a text, instead of the copies
    that ran."""
    root, copied = spec["code_root"], f'File "{spec["code_dir"]}/'
    shown = f'File "{root}/' if root else 'File "'
    return lambda text: text if root is None else text.replace(copied, shown)


def read_command_error(folder: str, code: int, spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the error of a command that exited with `code`; None if its stderr does not say it."""
    text = plain_text(end_of_stderr(folder, _TAIL).decode("utf-8", "replace"))
    found = last_exception(text) if code == 1 else None
    if found is not None:
        kind, message, trace = found
        summary = f"{kind}: {message}" if message else kind
        if kind.rpartition(".")[2] in OF_A_CHILD and (reason := _reason(text[: text.find(trace)])):
            summary += f"; last on stderr before it: {reason}"
        return _error(
            "exception",
            summary,
            user_paths(spec)(trace),
            collateral=is_collateral([kind.rpartition(".")[2]], message),
        )
    reason, why = _reason(text), None
    if spec["entry"]["kind"] == "shell":
        why = _by_bash(text, reason, code, str(spec["entry"]["shell"]), spec["code_dir"])
    if why is None and reason:
        why = f"exited with {code}; last on stderr: {reason}"
    return _error("exit_code", why, None) if why else None


def _reason(text: str) -> str:
    """The last line of a text that may say why its program ended; empty where there is none."""
    panics = _PANIC.findall(text)
    if panics and "\ngoroutine " in text:
        return str(panics[-1])
    lines = [line.rpartition("\r")[2].rstrip() for line in text[-_TRACEBACK:].splitlines()]
    for at in range(len(lines) - 1, -1, -1):
        if lines[at] and _NO_REASON.match(lines[at]) is None:
            rust = _RUST.match(lines[at - 1]) if at else None
            return f"{lines[at - 1]} {lines[at]}" if rust else lines[at]
    return ""


def _error(
    failure: str, summary: str, trace: str | None, *, collateral: bool = False
) -> dict[str, Any]:
    return {
        "class": failure,
        "summary": shortened(summary, _SUMMARY),
        "traceback": shortened(trace, _TRACEBACK),
        "time_ns": None,
        "collateral": collateral,
    }


def last_exception(text: str) -> tuple[str, str, str] | None:
    """The last exception that was shown with its traceback: class, message and traceback.

    A supervisor does nothing else meanwhile, so this takes time that grows with the text alone.
    """
    of_a_child = raised = None
    end = len(text)
    for head in reversed([*_HEAD.finditer(text)]):
        line = _NOT_INDENTED.search(text, head.end(), end)
        if line is not None:  # else it is that of the head behind this one
            raised = _RAISED.match(text, line.start())
        end = head.start() + 1
        found = raised
        if _is_group(head):
            line = _OF_GROUP.search(text, head.end())
            found = _RAISED.match(text, line.start()) if line is not None else None
        if found is None or _line_before(text, head.start()).startswith(_ELSEWHERE):
            continue
        name = found[1].rpartition(".")[2]
        if head[0].startswith("  File") and name not in _INVALID:
            continue
        if name not in OF_A_CHILD:
            return _shown(text, head, found)
        of_a_child = of_a_child or (head, found)
    return _shown(text, *of_a_child) if of_a_child is not None else None


def _shown(text: str, head: re.Match[str], raised: re.Match[str]) -> tuple[str, str, str]:
    """An exception, and the text of its traceback after those that it is chained to."""
    start, end = head.start(), raised.end()
    if _is_group(head):
        behind = _BEHIND_GROUP.search(text, end + 1)
        end = behind.start() - 1 if behind is not None else len(text)
    chained = _is_chained(text, start)
    for cause in reversed([*_HEAD.finditer(text, 0, start)] if chained else []):
        start = cause.start()
        chained = _is_chained(text, start)
        if not chained:
            break
    trace = text[start:end]
    if chained:  # to one that was never raised
        trace = "\n\n".join([*text[:start].rstrip("\n").rsplit("\n\n", 2)[-2:], trace])
    return raised[1], raised[2] or "", trace


def _is_group(head: re.Match[str]) -> bool:
    return head[0].startswith("  +")


def _is_chained(text: str, start: int) -> bool:
    """Whether the traceback that starts there is chained to what stands before it."""
    return _line_before(text, start).endswith(_CHAINED)


def _line_before(text: str, end: int) -> str:
    """The last line before that place which is not empty."""
    while end and text[end - 1] == "\n":
        end -= 1
    return text[text.rfind("\n", 0, end) + 1 : end]


def _by_bash(text: str, reason: str, code: int, script: str, cwd: str) -> str | None:
    windows = [*_WINDOWS.finditer(text)]
    if windows:
        line = windows[-1][0].replace("\r", "\\r")
        return f"exited with {code}: `{line}`: the lines of a script end as on Windows (CRLF)"
    lines = script.splitlines()
    said = _BY_BASH.match(reason)
    if said is not None:
        number = int(said[1])
        where = f": `{lines[number - 1].strip()}`" if 0 < number <= len(lines) else ""
        program = _NOT_STARTED.fullmatch(said[2])
        why = first_line_error(os.path.join(cwd, program[1])) if program is not None else ""
        return f"exited with {code}: line {number} of `command`, {said[2]}{where}{why}"
    piped = [number for number, line in enumerate(lines, 1) if "|" in line.replace("||", "")]
    if code == _SIGPIPE and piped:
        named = " or ".join(f"{number} (`{lines[number - 1].strip()}`)" for number in piped[:3])
        return (
            f"exited with {code}, which is SIGPIPE: in line {named} of `command`, a program wrote "
            "to one that had ended, such as `head`, and text runs under `set -o pipefail`"
        )
    return None
