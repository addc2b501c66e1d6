"""A plan as a comment on a pull request: one table, details folded."""

import html
from collections.abc import Iterator, Sequence
from datetime import datetime

from sgpu_decl.model.address import Kind
from sgpu_decl.model.plan import Action, Change, Check, FieldChange, Plan
from sgpu_decl.views.cell_groups import CellGroup, group_because, grouped
from sgpu_decl.views.markdown import cell, code, prose
from sgpu_decl.views.plan_fields import changed_entrypoint, changed_lines, sides
from sgpu_decl.views.plan_words import (
    because,
    code_words,
    environment_words,
    estimate_words,
    field_note,
    launches,
    path_words,
    summary_line,
)
from sgpu_decl.views.terminal import count, escape

__all__ = ["render"]

_ROWS_SHOWN = 200
_VALUE_COLUMNS = 80
_LINES_SHOWN = 6
_VALUES_SHOWN = 40


def render(plan: Plan, *, now: datetime) -> str:
    """Return the plan as GitHub Markdown, ended by a newline. `now` is what ages count from."""
    changed = grouped(change for change in plan.changes if change.action is not Action.NO_OP)
    blocks = [
        [f"**{summary_line(plan)}**"],
        list(_table(changed, plan, now)),
        list(_details(changed)),
        [_check(check) for check in plan.checks],
        list(_closing(plan)),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _table(items: Sequence[Change | CellGroup], plan: Plan, now: datetime) -> Iterator[str]:
    if not items:
        return
    yield "| action | run | because |"
    yield "|---|---|---|"
    for item in items[:_ROWS_SHOWN]:
        if isinstance(item, CellGroup):
            runs = f"{code(item.address)}, {count(len(item.changes), 'run')}"
            why = cell(prose(group_because(item, plan)))
            yield f"| {item.shared.action} | {cell(runs)} | {why} |"
            continue
        action = f"**{item.action}**" if item.destructive else str(item.action)
        why = cell(prose(because(item, plan, now)))
        yield f"| {action} | {cell(code(str(item.address)))} | {why} |"
    more = len(items) - _ROWS_SHOWN
    if more > 0:
        yield f"| | | {count(more, 'more change')} |"


def _details(items: Sequence[Change | CellGroup]) -> Iterator[str]:
    for item in items[:_ROWS_SHOWN]:
        group = item if isinstance(item, CellGroup) else None
        change = group.shared if group is not None else item
        assert isinstance(change, Change)  # noqa: S101  a group holds one
        if change.kind is Kind.ENVIRONMENT:
            yield from _packages(change)
        if not change.fields and change.code is None:
            continue
        address = html.escape(escape(str(item.address)))
        yield f"<details><summary><code>{address}</code></summary>"
        yield ""
        yield "| field | before | after | where | |"
        yield "|---|---|---|---|---|"
        for field in change.fields:
            where = cell(code(str(field.origin))) if field.origin else ""
            before, after = _sides(field)
            yield (
                f"| {cell(code(path_words(field.path)))} | {before} | {after} "
                f"| {where} | {field_note(field, change)} |"
            )
        if lines := changed_entrypoint(change):
            yield f"| `_air.py` | | {'<br>'.join(cell(code(line)) for line in lines)} | | |"
        if change.code is not None:
            yield f"| code | | {cell(prose(code_words(change.code)))} | | |"
        if group is not None:
            yield from _cells(group)
        yield ""
        yield "</details>"


def _cells(group: CellGroup) -> Iterator[str]:
    """What tells the cells of a matrix apart."""
    for path in group.varying:
        yield f"| {cell(code(path_words(path)))} | | different in each | | |"
    for axis, texts in group.axes:
        values = ", ".join(code(text) for text in texts[:_VALUES_SHOWN])
        more = len(texts) - _VALUES_SHOWN
        rest = f", {more:,} more" if more > 0 else ""
        yield f"| {cell(code(f'matrix.{axis}'))} | | {cell(values)}{rest} | | |"
    if not group.axes:
        keys = [cell(code(change.address.key)) for change in group.changes[:_VALUES_SHOWN]]
        more = len(group.changes) - _VALUES_SHOWN
        keys += [count(more, "more run")] if more > 0 else []
        yield f"| matrix | | {'<br>'.join(keys)} | | |"


def _packages(change: Change) -> Iterator[str]:
    """The packages of an environment, folded."""
    environment = change.environment
    if environment is None or not environment.packages:
        return
    words = environment_words(environment, whole=change.action is Action.CREATE)
    address = html.escape(escape(str(change.address)))
    yield f"<details><summary><code>{address}</code> {html.escape(words)}</summary>"
    yield ""
    yield "| package | before | after |"
    yield "|---|---|---|"
    for package in environment.packages[:_ROWS_SHOWN]:
        before, after = (
            cell(code(side)) if side else "" for side in (package.before, package.after)
        )
        yield f"| {cell(code(package.name))} | {before} | {after} |"
    more = len(environment.packages) - _ROWS_SHOWN
    if more > 0:
        yield f"| {count(more, 'more package')} | | |"
    yield ""
    yield "</details>"


def _check(check: Check) -> str:
    about = f"{code(str(check.address))}: " if check.address else ""
    place = f" at {code(str(check.place))}" if check.place else ""
    hint = f"; {prose(check.hint)}" if check.hint else ""
    return f"- **{check.severity}** {about}{prose(check.summary)}{place}{hint}"


def _closing(plan: Plan) -> Iterator[str]:
    if launches(plan):
        yield f"Estimate: {prose(estimate_words(plan.estimate))}."
    if not plan.complete:
        yield "Some runs or jobs were left out of this plan."


def _sides(field: FieldChange) -> tuple[str, str]:
    lines = changed_lines(field, _VALUE_COLUMNS)
    if lines is not None:
        return _lines(lines.old), _lines(lines.new)
    before, after = sides(field, _VALUE_COLUMNS)
    return cell(code(before)), cell(code(after))


def _lines(lines: Sequence[str]) -> str:
    shown = [cell(code(line)) for line in lines[:_LINES_SHOWN]]
    more = len(lines) - _LINES_SHOWN
    return "<br>".join([*shown, *([count(more, "more line")] if more > 0 else [])])
