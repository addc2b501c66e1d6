"""Which kind of failure ended a rank: `failure_kinds.py`, held against what the rank left.

The exception that ended a rank counts, with those that it was raised from. What the log mentions
besides does not: a program may have dealt with it. Only where no exception is known, since a signal
or an exit code ended the rank, the end of its log is read, and the last failure in it counts.
"""

from __future__ import annotations

from sgpu_decl.agent.attempt.failure_kinds import (
    GPU_XID,
    HOST_OUT_OF_MEMORY,
    KINDS,
    PLATFORM,
)
from sgpu_decl.agent.attempt.xid_codes import XIDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from sgpu_decl.agent.attempt.failure_kinds import FailureForm, FailureKind

TAIL = 65_536  # bytes of each stream of a rank that died by a signal
_LINES = 12  # at the end of each stream of one that exited
_MESSAGE = 4_000  # characters of an exception in a log
_LONGEST = 1_000  # characters of what is said about a failure
_COLOUR = r"\x1b\[[0-9;]*m"
_MARK = r"^\[\w*\d\]: ?"  # of torch and torchrun: `[rank0]: text`
_HEAD = r"^Traceback \(most recent call last\):$"
_NOT_INDENTED = r"^[^ \n]"
_LINK = (
    r"^(The above exception was the direct cause|During handling of the above exception)[^\n]*\n"
)
_RAISED_FROM = "The above exception was the direct cause"
_ILLEGAL_ACCESS = "cuda_illegal_access"  # rarely a fault of the hardware, as the driver may say
_OUT_OF_MEMORY = next(kind for kind in KINDS if kind.name == HOST_OUT_OF_MEMORY)

OF_A_CHILD = frozenset({"CalledProcessError", "ChildFailedError", "ProcessExitedException"})
"""Exceptions of programs that start others. They say no more than that one of these failed."""


def plain_text(text: str) -> str:
    """Return a text of a log without colours, and without the marks that torch writes in front."""
    import re

    text = re.sub(_COLOUR, "", text.replace("\r\n", "\n"))
    return re.sub(_MARK, "", text, flags=re.MULTILINE)


def kind_of_failure(
    failure: str | None,
    summary: str,
    traceback: str | None = None,
    logs: Callable[[], Sequence[str]] = tuple,
    gpu_error: Callable[[], str] = str,
) -> dict[str, Any]:
    """Return the `kind` and the `explanation` of a failure, as its first cause has them; an empty
    object if its kind is not known.

    Args:
        failure: its class.
        logs: returns the ends of what the rank wrote, the more telling stream first.
        gpu_error: returns what the driver of the GPUs said about the rank; empty if nothing.
    """
    known = _by_words(failure, summary, traceback, logs)
    unclear = not known or known["kind"] == _ILLEGAL_ACCESS
    if unclear and (failure == "signal_self" or "CUDA" in summary):
        reported = _in_exception(gpu_error())
        if reported and (not known or reported["explanation"]["blame"] == PLATFORM):
            return reported
    return known


def _by_words(
    failure: str | None, summary: str, traceback: str | None, logs: Callable[[], Sequence[str]]
) -> dict[str, Any]:
    if failure == "oom":
        return _explained(_OUT_OF_MEMORY)
    for text in (*_raised(traceback or ""), summary):
        if found := _in_exception(text):
            return found
    if failure == "exception" and not _is_of_a_child(summary):
        return _in_exception(_shown_after(summary, logs()))
    if failure in ("exception", "exit_code", "signal_self"):
        for log in logs():
            text = _last_lines(log) if failure == "exit_code" else log
            if found := _last_in(plain_text(text).replace("\r", "\n")):  # behind a progress bar
                return found
    return {}


def _is_of_a_child(summary: str) -> bool:
    return summary.partition(":")[0].rpartition(".")[2] in OF_A_CHILD


def _raised(traceback: str) -> Iterator[str]:
    """The exception that a traceback ends with, then those that it was raised from: what stands
    below the frames of each."""
    import re

    parts = re.split(_LINK, traceback, flags=re.MULTILINE)  # tracebacks, and links between them
    while parts:
        text = parts.pop()
        head = re.search(_HEAD, text, re.MULTILINE)
        line = re.compile(_NOT_INDENTED, re.MULTILINE).search(text, head.end()) if head else None
        if line is not None:
            yield text[line.start() :]
        if not parts or parts.pop() != _RAISED_FROM:
            return


def _shown_after(summary: str, logs: Sequence[str]) -> str:
    """An exception with all lines of its message, as the log shows it."""
    first = summary.partition("\n")[0]
    for log in map(plain_text, logs):
        start = log.rfind(first)
        if start >= 0:
            return log[start : start + _MESSAGE]
    return ""


def _last_lines(log: str) -> str:
    return "\n".join(log.rstrip().split("\n")[-_LINES:])


def _in_exception(text: str) -> dict[str, Any]:
    """The first kind of the table that the text of an exception shows."""
    for kind in KINDS:
        for form, matches in _matches(kind, text):
            return _explained(kind, form, matches[-1])
    return {}


def _last_in(log: str) -> dict[str, Any]:
    """The kind that a log shows last."""
    last, found = -1, {}
    for kind in KINDS:
        shown = list(_matches(kind, log))
        start = max((matches[-1].start() for _, matches in shown), default=-1)
        if start > last:
            last, found = start, _explained(kind, shown[0][0], shown[0][1][-1])
    return found


def _matches(kind: FailureKind, text: str) -> Iterator[tuple[FailureForm, list[re.Match[str]]]]:
    import re

    for form in kind.forms:
        if form.needle in text:
            matches = list(re.finditer(form.pattern, text, re.MULTILINE))
            if matches:
                yield form, matches


def _explained(
    kind: FailureKind, form: FailureForm | None = None, match: re.Match[str] | None = None
) -> dict[str, Any]:
    blame, next_step = kind.blame, kind.next_step
    words = kind.meaning[:1].lower() + kind.meaning[1:].rstrip(".")
    if form is not None and match is not None:
        groups = {name: (value or "").strip() for name, value in match.groupdict().items()}
        blame = kind.blame_of(form)
        if kind.name == GPU_XID:
            blame, groups["xid"] = XIDS.get(int(groups["code"]), (None, "see NVIDIA's catalog"))
        words = " ".join(form.words.format_map(groups).split())[:_LONGEST]
        next_step = form.next_step.format_map(groups) if form.next_step else next_step
    explanation = {
        "blame": blame,
        "meaning": words,
        "next_step": next_step,
        "source": kind.source,
    }
    return {"kind": kind.name, "explanation": explanation}
