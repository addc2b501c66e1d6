"""Why a command failed, by the end of its stderr: commands leave no record.

A program in Python ends with the traceback of its exception, and exits with 1. Programs that start
others, such as `torchrun`, then end with an exception of their own, which says no more than that.
Bash names the line of an unset variable and of a program that it does not find.
"""

from __future__ import annotations

import re

from sgpu_decl.agent.error_file import end_of_stderr, is_collateral, shortened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = ["read_command_error", "user_paths"]

_TAIL = 1 << 20
_SUMMARY = 2_000
_TRACEBACK = 65_536
_MARK = re.compile(r"^\[\w*\d+\]: ?", re.MULTILINE)  # of torch and torchrun: `[rank0]: text`
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_HEAD = re.compile(
    r"^(?:  \+ Exception Group )?Traceback \(most recent call last\):$"
    r"|^  File \"[^\"\n]*\", line \d+$",  # of an error of the syntax
    re.MULTILINE,
)
_RAISED = re.compile(r"^(?:  \| )?([A-Za-z_][\w.]*)(?:: (.*))?$")
_INVALID = frozenset({"SyntaxError", "IndentationError", "TabError"})  # has no head
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_ELSEWHERE = ("Exception in thread ", "Exception ignored in")
_OF_A_CHILD = frozenset({"ChildFailedError", "CalledProcessError"})
_BY_BASH = re.compile(r"^bash: line (\d+): (.+)$")
_SIGPIPE = 141  # 128 + SIGPIPE, as a shell says it


def user_paths(spec: Mapping[str, Any]) -> Callable[[str], str]:
    """Return what names the user's own files, in the tracebacks of a text, instead of the copies
    that ran."""
    root, copied = spec["code_root"], f'File "{spec["code_dir"]}/'
    shown = f'File "{root}/' if root else 'File "'
    return lambda text: text if root is None else text.replace(copied, shown)


def read_command_error(folder: str, code: int, spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the error of a command that exited with `code`; None if its stderr does not say it."""
    text = end_of_stderr(folder, _TAIL).decode("utf-8", "replace")
    text = _MARK.sub("", _COLOUR.sub("", text.replace("\r\n", "\n")))
    found = _exception(text) if code == 1 else None
    if found is not None:
        kind, message, trace = found
        return _error(
            "exception",
            f"{kind}: {message}" if message else kind,
            user_paths(spec)(trace),
            collateral=is_collateral([kind.rpartition(".")[2]], message),
        )
    if spec["entry"]["kind"] == "shell":
        why = _by_bash(text, code, str(spec["entry"]["shell"]))
        return _error("exit_code", why, None) if why else None
    return None


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


def _exception(text: str) -> tuple[str, str, str] | None:
    """The last exception that was shown with its traceback: class, message and traceback."""
    shown = []
    for head in _HEAD.finditer(text):
        before = text[: head.start()].rstrip("\n").rpartition("\n")[2]
        if not before.startswith(_ELSEWHERE):
            one = _raised(text, head)
            if one is not None:
                shown.append(one)
    whole = [one for one in shown if one[0].rpartition(".")[2] not in _OF_A_CHILD]
    return next(reversed(whole or shown), None)


def _raised(text: str, head: re.Match[str]) -> tuple[str, str, str] | None:
    """What the traceback with that head ends with, and the text of it and those before it that it
    is chained to."""
    lines = text[head.end() + 1 :].splitlines()
    group = head[0].startswith("  +")
    for number, line in enumerate(lines):
        if line.startswith(("   ", "  |  ") if group else " ") or not line:
            continue
        raised = _RAISED.match(line)
        name = raised[1].rpartition(".")[2] if raised is not None else ""
        if raised is None or (head[0].startswith("  File") and name not in _INVALID):
            return None
        end = number + 1
        while group and end < len(lines) and lines[end].startswith(("  +", "   ")):
            end += 1
        trace = "\n".join([head[0], *lines[:end]])
        return raised[1], raised[2] or "", _with_causes(text[: head.start()], trace)
    return None


def _with_causes(before: str, trace: str) -> str:
    """A traceback after those that it is chained to."""
    above = before.rstrip("\n")
    if not above.endswith(_CHAINED):
        return trace
    heads = [head.start() for head in _HEAD.finditer(above)]
    while heads:
        start = heads.pop()
        if not above[:start].rstrip("\n").endswith(_CHAINED):
            return f"{above[start:]}\n\n{trace}"
    return "\n\n".join([*above.rsplit("\n\n", 2)[-2:], trace])  # the cause was never raised


def _by_bash(text: str, code: int, script: str) -> str | None:
    lines = script.splitlines()
    said = [found for line in text.splitlines() if (found := _BY_BASH.match(line))]
    if said:
        number = int(said[-1][1])
        where = f": `{lines[number - 1].strip()}`" if 0 < number <= len(lines) else ""
        return f"exited with {code}: line {number} of `command`, {said[-1][2]}{where}"
    piped = [number for number, line in enumerate(lines, 1) if "|" in line.replace("||", "")]
    if code == _SIGPIPE and piped:
        named = " or ".join(f"{number} (`{lines[number - 1].strip()}`)" for number in piped[:3])
        return (
            f"exited with {code}, which is SIGPIPE: in line {named} of `command`, a program wrote "
            "to one that had ended, such as `head`, and text runs under `set -o pipefail`"
        )
    return None
