"""One change of a plan in GitHub Markdown: its row, and its fields, folded."""

import html
from collections.abc import Iterator, Sequence
from datetime import datetime

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Kind
from sgpu_decl.model.plan import Action, Change, EnvironmentChange, FieldChange, Plan
from sgpu_decl.views.cell_groups import CellGroup, group_because
from sgpu_decl.views.markdown import cell, code
from sgpu_decl.views.plan_fields import changed_entrypoint, changed_lines, sides
from sgpu_decl.views.plan_words import (
    action_words,
    because,
    code_words,
    environment_words,
    field_note,
    moved_words,
)
from sgpu_decl.views.terminal import count, escape, shorten

_ADDRESS_COLUMNS = 200  # of the values of a matrix, which may be long
_VALUE_COLUMNS = 80
_LINES_SHOWN = 6
_VALUES_SHOWN = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """A table that a click opens: the lines before its rows and after them."""

    opening: tuple[str, ...]
    rows: Iterator[str]
    closing: tuple[str, ...] = ("", "</details>")


def change_row(item: Change | CellGroup, plan: Plan, now: datetime) -> str:
    """The row of a change, or of the cells of a matrix that change alike."""
    if isinstance(item, CellGroup):
        runs = f"{_address(item)}, {count(len(item.changes), 'run')}"
        why = _with_move(item.shared, group_because(item, plan, literal=code))
        return f"| {action_words(item.shared)} | {cell(runs)} | {cell(why)} |"
    action = f"**{item.action}**" if item.destructive else action_words(item)
    why = _with_move(item, because(item, plan, now, literal=code))
    return f"| {action} | {cell(_address(item))} | {cell(why)} |"


def _with_move(change: Change, why: str) -> str:
    return "; ".join(filter(None, (moved_words(change, literal=code), why)))


def has_folds(item: Change | CellGroup) -> bool:
    """Whether a change has more to show than its row."""
    change = item.shared if isinstance(item, CellGroup) else item
    return bool(_packages(change) or change.fields or change.code is not None)


def folds(item: Change | CellGroup) -> Iterator[Fold]:
    """What a change has more than its row: the packages of an environment, fields and code."""
    change = item.shared if isinstance(item, CellGroup) else item
    address = html.escape(shorten(escape(str(item.address)), _ADDRESS_COLUMNS))
    if (environment := _packages(change)) is not None:
        words = environment_words(environment, whole=change.action is Action.CREATE)
        yield Fold(
            opening=(
                f"<details><summary><code>{address}</code> {html.escape(words)}</summary>",
                "",
                "| package | before | after |",
                "|---|---|---|",
            ),
            rows=_package_rows(environment),
        )
    if change.fields or change.code is not None:
        yield Fold(
            opening=(
                f"<details><summary><code>{address}</code></summary>",
                "",
                "| field | before | after | where | |",
                "|---|---|---|---|---|",
            ),
            rows=_rows(change, item if isinstance(item, CellGroup) else None),
        )


def _address(item: Change | CellGroup) -> str:
    return code(shorten(escape(str(item.address)), _ADDRESS_COLUMNS))


def _packages(change: Change) -> EnvironmentChange | None:
    """The environment whose packages differ; `None` if the change is about none."""
    environment = change.environment
    named = change.kind is Kind.ENVIRONMENT and environment is not None and environment.packages
    return environment if named else None


def _package_rows(environment: EnvironmentChange) -> Iterator[str]:
    for package in environment.packages:
        before, after = (
            cell(code(side)) if side else "" for side in (package.before, package.after)
        )
        yield f"| {cell(code(package.name))} | {before} | {after} |"


def _rows(change: Change, group: CellGroup | None) -> Iterator[str]:
    for field in change.fields:
        where = cell(code(str(field.origin))) if field.origin else ""
        before, after = _sides(field)
        note = field_note(field, change)
        yield f"| {cell(code(field.path))} | {before} | {after} | {where} | {note} |"
    if lines := changed_entrypoint(change):
        yield f"| `_air.py` | | {'<br>'.join(cell(code(line)) for line in lines)} | | |"
    if change.code is not None:
        yield f"| code | | {cell(code_words(change.code, literal=code))} | | |"
    if group is not None:
        yield from _cells(group)


def _cells(group: CellGroup) -> Iterator[str]:
    """What tells the cells of a matrix apart."""
    for path in group.varying:
        yield f"| {cell(code(path))} | | different in each | | |"
    for axis, texts in group.axes:
        values = ", ".join(_value(text) for text in texts[:_VALUES_SHOWN])
        more = len(texts) - _VALUES_SHOWN
        rest = f", {more:,} more" if more > 0 else ""
        yield f"| {cell(code(f'matrix.{axis}'))} | | {cell(values)}{rest} | | |"
    if not group.axes:
        keys = [cell(_value(change.address.key)) for change in group.changes[:_VALUES_SHOWN]]
        more = len(group.changes) - _VALUES_SHOWN
        keys += [count(more, "more run")] if more > 0 else []
        yield f"| matrix | | {'<br>'.join(keys)} | | |"


def _value(text: str) -> str:
    return code(shorten(escape(text), _VALUE_COLUMNS))


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
