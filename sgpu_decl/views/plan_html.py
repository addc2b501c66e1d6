"""A plan as a notebook shows it: one table, the details of each change folded."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.model.address import Kind
from sgpu_decl.model.plan import Action, Change, Plan
from sgpu_decl.views.notebook_html import code, page, prose, table
from sgpu_decl.views.plan_fields import sides
from sgpu_decl.views.plan_job_fields import in_words_of_yaml
from sgpu_decl.views.plan_words import (
    action_words,
    because,
    code_words,
    environment_words,
    estimate_words,
    field_note,
    launches,
    moved_words,
    path_words,
    platform_lines,
    summary_line,
)
from sgpu_decl.views.terminal import count

_ROWS = 200
_COLUMNS = 80


def render(plan: Plan, *, now: datetime) -> str:
    """Return the plan as HTML. `now` is what ages count from."""
    plan = in_words_of_yaml(plan)
    changed = [change for change in plan.changes if not change.idle]
    return page(
        "".join(f"<div>{code(line)}</div>" for line in platform_lines(plan)),
        f"<b>{prose(summary_line(plan))}</b>",
        _changes(changed, plan, now),
        "".join(_details(changed)),
        "".join(f"<div>{_check(check)}</div>" for check in plan.checks),
        _closing(plan),
    )


def _changes(changes: Sequence[Change], plan: Plan, now: datetime) -> str:
    if not changes:
        return ""
    rows = [
        (action_words(change), code(str(change.address)), prose(_why(change, plan, now)))
        for change in changes[:_ROWS]
    ]
    more = len(changes) - _ROWS
    return table(("action", "run", "because"), rows) + (
        count(more, "more change") if more > 0 else ""
    )


def _why(change: Change, plan: Plan, now: datetime) -> str:
    return "; ".join(filter(None, (moved_words(change), because(change, plan, now))))


def _details(changes: Sequence[Change]) -> Iterator[str]:
    for change in changes[:_ROWS]:
        rows = [*_fields(change)]
        if change.code is not None:
            rows.append(("code", "", prose(code_words(change.code)), ""))
        if rows:
            head = ("field", "before", "after", "")
            yield _folded(code(str(change.address)), table(head, rows))
        environment = change.environment
        if environment is not None and environment.packages:
            whole = change.kind is Kind.ENVIRONMENT and change.action is Action.CREATE
            words = f"packages: {prose(environment_words(environment, whole=whole))}"
            packages = [
                (code(package.name), code(package.before or ""), code(package.after or ""))
                for package in environment.packages[:_ROWS]
            ]
            yield _folded(words, table(("package", "before", "after"), packages))


def _fields(change: Change) -> Iterator[tuple[str, str, str, str]]:
    for field in change.fields:
        before, after = sides(field, _COLUMNS)
        note = field_note(field, change)
        where = " ".join(filter(None, (str(field.origin or ""), f"({note})" if note else "")))
        yield code(path_words(field.path)), code(before), code(after), prose(where)


def _folded(summary: str, inside: str) -> str:
    return f"<details><summary>{summary}</summary>{inside}</details>"


def _check(check: Diagnostic) -> str:
    about = f"{code(check.address)}: " if check.address else ""
    place = f" at {code(str(check.place))}" if check.place else ""
    hint = f"; {prose(check.hint)}" if check.hint else ""
    return f"<b>{check.severity}</b> {about}{prose(check.summary)}{place}{hint}"


def _closing(plan: Plan) -> str:
    if launches(plan):
        return prose(f"Estimate: {estimate_words(plan.estimate)}.")
    return ""
