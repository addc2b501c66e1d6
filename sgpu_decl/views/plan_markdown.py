"""A plan as a comment on a pull request: one table, details folded."""

import html
import re
from collections.abc import Iterator, Sequence
from datetime import datetime

from sgpu_decl.model.plan import Action, Change, Check, Plan
from sgpu_decl.views.plan_words import (
    EFFECT_NOTES,
    because,
    code_words,
    estimate_words,
    path_words,
    summary_line,
    value,
)
from sgpu_decl.views.terminal import count, escape, shorten

__all__ = ["render"]

_ROWS_SHOWN = 200
_VALUE_COLUMNS = 80
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~@-])")


def render(plan: Plan, *, now: datetime) -> str:
    """Return the plan as GitHub Markdown, ended by a newline. `now` is what ages count from."""
    changed = [change for change in plan.changes if change.action is not Action.NO_OP]
    blocks = [
        [f"**{summary_line(plan)}**"],
        list(_table(changed, plan, now)),
        list(_details(changed)),
        [_check(check) for check in plan.checks],
        list(_closing(plan)),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _table(changes: Sequence[Change], plan: Plan, now: datetime) -> Iterator[str]:
    if not changes:
        return
    yield "| action | run | because |"
    yield "|---|---|---|"
    for change in changes[:_ROWS_SHOWN]:
        action = f"**{change.action}**" if change.destructive else str(change.action)
        why = _prose(because(change, plan, now))
        yield f"| {action} | {_code(str(change.address))} | {why} |"
    more = len(changes) - _ROWS_SHOWN
    if more > 0:
        yield f"| | | {count(more, 'more change')} |"


def _details(changes: Sequence[Change]) -> Iterator[str]:
    for change in changes[:_ROWS_SHOWN]:
        if not change.fields and change.code is None:
            continue
        address = html.escape(escape(str(change.address)))
        yield f"<details><summary><code>{address}</code></summary>"
        yield ""
        yield "| field | before | after | where | |"
        yield "|---|---|---|---|---|"
        for field in change.fields:
            where = _code(str(field.origin)) if field.origin else ""
            yield (
                f"| {_code(path_words(field.path))} | {_value(value(field.before))} "
                f"| {_value(value(field.after))} | {where} | {EFFECT_NOTES[field.effect]} |"
            )
        if change.code is not None:
            yield f"| code | | {_prose(code_words(change.code))} | | |"
        yield ""
        yield "</details>"


def _check(check: Check) -> str:
    about = f"{_code(str(check.address))}: " if check.address else ""
    place = f" at {_code(str(check.place))}" if check.place else ""
    hint = f"; {_prose(check.hint)}" if check.hint else ""
    return f"- **{check.severity}** {about}{_prose(check.summary)}{place}{hint}"


def _closing(plan: Plan) -> Iterator[str]:
    if any(change.launch and change.launch.token for change in plan.changes):
        yield f"Estimate: {_prose(estimate_words(plan.estimate))}."
    if not plan.complete:
        yield "Some runs were left out of this plan."


def _value(text: str) -> str:
    return _code(shorten(text, _VALUE_COLUMNS))


def _code(text: str) -> str:
    """A code span that its text cannot leave: the fence is longer than any run of backticks, and a
    table's bar is escaped."""
    safe = escape(text).replace("|", "\\|")
    longest = max((len(run) for run in re.findall("`+", safe)), default=0)
    fence = "`" * (longest + 1)
    space = " " if safe.startswith("`") or safe.endswith("`") else ""
    return f"{fence}{space}{safe}{space}{fence}"


def _prose(text: str) -> str:
    """Escape Markdown outside the literals that our messages put in backticks."""
    parts = escape(text).split("`")
    return "".join(
        _code(part) if index % 2 and index < len(parts) - 1 else _plain(part)
        for index, part in enumerate(parts)
    )


def _plain(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", html.escape(text, quote=False))
