"""The log of a shared state, for people and for programs."""

from collections.abc import Sequence

from sgpu_decl.model.attempt_view import time_text
from sgpu_decl.model.codec import to_json
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.state_log import ApplySource, LogChange, LogEntry
from sgpu_decl.views.terminal import columns, escape, shorten

_WIDEST = 60  # columns of what one entry changed
_HEADER = ("entry", "time (UTC)", "who", "as", "command", "commit", "review", "change")
_RARE = frozenset({"as", "review"})
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
    """One line for each entry: its number, when, who, what, of which commit, and what it changed.
    If entries say it, also which user of the platform, and in which review it was shown."""
    rows = [
        (
            str(entry.number),
            f"{entry.at:%Y-%m-%d %H:%M:%S}",
            f"{entry.who}@{entry.host}",
            entry.source.principal or "",
            entry.operation,
            (entry.commit or "")[:12],
            _review(entry.source),
            shorten(escape("; ".join(map(_words, entry.changes))), _WIDEST),
        )
        for entry in entries
    ]
    shown = [_HEADER, *rows]
    kept = [at for at, name in enumerate(_HEADER) if name not in _RARE or any(r[at] for r in rows)]
    escaped = [[escape(row[at]) for at in kept[:-1]] + [row[-1]] for row in shown]
    widths = [max(columns(row[index]) for row in escaped) for index in range(len(kept))]
    return "\n".join(
        "  ".join(
            text + " " * (width - columns(text)) for text, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in escaped
    )


def _review(source: ApplySource) -> str:
    """Where an apply was reviewed, and by which proposals it was covered."""
    proposals = ", ".join(one[:8] for one in source.proposals)
    return " ".join(filter(None, (*source.links, proposals and f"(proposal {proposals})")))


def log_json(entries: Sequence[LogEntry]) -> list[Json]:
    return [to_json(entry, times=time_text) for entry in entries]


def _words(change: LogChange) -> str:
    words = _WORDS.get(change.op)
    return f"{change.op} {change.subject}" if words is None else words.format(change.subject)
