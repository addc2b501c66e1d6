"""The log of a shared state, for people and for programs."""

from collections.abc import Sequence

from sgpu_decl.model.attempt_view import time_text
from sgpu_decl.model.codec import to_json
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.state_log import LogChange, LogEntry
from sgpu_decl.views.terminal import columns, escape, shorten

_WIDEST = 60  # columns of what one entry changed
_WORDS = {
    "lock": "took or renewed the lock",
    "unlock": "gave the lock back",
    "claim": "said that it belongs to {}",
    "begin": "began to launch or make {}",
    "launched": "launched {}",
    "made": "made {}",
    "abandon": "did not start {}",
    "record_resource": "recorded {}",
    "record_packages": "recorded a list of packages",
    "record_attempts": "{}",
    "plan_applied": "applied a plan",
    "move": "moved {}",
    "remove": "removed {} from the state",
}


def log_text(entries: Sequence[LogEntry]) -> str:
    """One line for each entry: its number, when, who, what, of which commit."""
    rows = [
        (
            str(entry.number),
            f"{entry.at:%Y-%m-%d %H:%M:%S}",
            f"{entry.who}@{entry.host}",
            entry.operation,
            (entry.commit or "")[:12],
            shorten(escape("; ".join(map(_words, entry.changes))), _WIDEST),
        )
        for entry in entries
    ]
    shown = [("entry", "time (UTC)", "who", "command", "commit", "change"), *rows]
    escaped = [[escape(text) for text in row[:-1]] + [row[-1]] for row in shown]
    widths = [max(columns(row[index]) for row in escaped) for index in range(len(escaped[0]))]
    return "\n".join(
        "  ".join(
            text + " " * (width - columns(text)) for text, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in escaped
    )


def log_json(entries: Sequence[LogEntry]) -> list[Json]:
    return [to_json(entry, times=time_text) for entry in entries]


def _words(change: LogChange) -> str:
    words = _WORDS.get(change.op)
    return f"{change.op} {change.subject}" if words is None else words.format(change.subject)
