"""One change of a plan in GitHub Markdown: its row, and its fields, folded."""

import html
from collections.abc import Iterator, Sequence
from datetime import datetime

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Kind
from sgpu_decl.model.plan import Action, Change, EnvironmentChange, FieldChange, Plan
from sgpu_decl.views.cell_groups import CellGroup, group_because
from sgpu_decl.views.change_groups import ChangeGroup, Item, is_new
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
_NAMED_TWICE = 5  # of those that have a line of their own as well
_FIELDS = ("| field | before | after | where | |", "|---|---|---|---|---|")
_NEW_FIELDS = ("| field | value | where |", "|---|---|---|")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """A table that a click opens: the lines before its rows and after them."""

    opening: tuple[str, ...]
    rows: Iterator[str]
    closing: tuple[str, ...] = ("", "</details>")


def change_row(item: Item, plan: Plan, now: datetime) -> str:
    """The row of a change, or of several that are shown as one."""
    if isinstance(item, Change):
        action = f"**{item.action}**" if item.destructive else action_words(item)
        why = _with_move(item, because(item, plan, now, literal=code))
        return f"| {action} | {cell(_address(item))} | {cell(why)} |"
    if isinstance(item, CellGroup):
        named = f"{_address(item)}, {count(len(item.changes), 'run')}"
    else:
        most = _NAMED_TWICE if all(item.own) else _VALUES_SHOWN
        names = [_label(one) for one in item.changes]
        named = f"{_amount(item)}: {_listing(names, most)}"
    why = _with_move(item.shared, group_because(item.changes, plan, literal=code))
    return f"| {action_words(item.shared)} | {cell(named)} | {cell(why)} |"


def _with_move(change: Change, why: str) -> str:
    return "; ".join(filter(None, (moved_words(change, literal=code), why)))


def has_folds(item: Item) -> bool:
    """Whether a change has more to show than its row."""
    change = item if isinstance(item, Change) else item.shared
    own = isinstance(item, ChangeGroup) and any(item.own)
    return bool(_packages(change) or change.fields or change.code is not None or own)


def folds(item: Item) -> Iterator[Fold]:
    """What a change has more than its row: the packages of an environment, fields and code."""
    change = item if isinstance(item, Change) else item.shared
    if isinstance(item, ChangeGroup):
        named = _amount(item)
    else:
        address = html.escape(shorten(escape(str(item.address)), _ADDRESS_COLUMNS))
        named = f"<code>{address}</code>"
    if (environment := _packages(change)) is not None:
        words = environment_words(environment, whole=change.action is Action.CREATE)
        yield Fold(
            opening=(
                f"<details><summary>{named} {html.escape(words)}</summary>",
                "",
                "| package | before | after |",
                "|---|---|---|",
            ),
            rows=_package_rows(environment),
        )
    if change.fields or change.code is not None:
        header = _NEW_FIELDS if is_new(change) else _FIELDS
        yield Fold(
            opening=(
                f"<details><summary>{named}{': all' * isinstance(item, ChangeGroup)}</summary>",
                "",
                *header,
            ),
            rows=_rows(change, item if isinstance(item, CellGroup) else None),
        )
    if isinstance(item, ChangeGroup) and (any(item.own) or _is_long(item)):
        yield Fold(
            opening=(
                f"<details><summary>{named}: each one</summary>", "",
                f"| {item.shared.kind} | fields | where |", "|---|---|---|",
            ),
            rows=_own_rows(item),
        )  # fmt: skip


def _address(item: Change | CellGroup) -> str:
    return code(shorten(escape(str(item.address)), _ADDRESS_COLUMNS))


def _label(change: Change) -> str:
    """The name of a run or job where its kind is said."""
    return code(shorten(escape(change.address.label), _ADDRESS_COLUMNS))


def _is_long(group: ChangeGroup) -> bool:
    """Whether its row does not name all."""
    return len(group.changes) > _VALUES_SHOWN


def _amount(group: ChangeGroup) -> str:
    return count(len(group.changes), str(group.shared.kind))


def _listing(items: Sequence[str], most: int) -> str:
    more = len(items) - most
    return ", ".join(items[:most]) + (f" and {more:,} more" if more > 0 else "")


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


def _own_rows(group: ChangeGroup) -> Iterator[str]:
    """What each of a group has that not all have alike, in one row. Those that have nothing of
    their own are left out if they are named already."""
    for change, fields in zip(group.changes, group.own, strict=True):
        shown = [f"{cell(code(field.path))} {_sides(field)[1]}" for field in fields]
        if change.code != group.shared.code:
            shown += [f"code: {cell(code_words(change.code, literal=code))}"] if change.code else []
        if not shown and not _is_long(group):
            continue
        place = next((field.origin for field in fields if field.origin is not None), None)
        where = cell(code(f"{place.file}:{place.line}")) if place is not None else ""
        yield f"| {cell(_label(change))} | {', '.join(shown)} | {where} |"


def _where(field: FieldChange) -> str:
    return cell(code(str(field.origin))) if field.origin else ""


def _rows(change: Change, group: CellGroup | None) -> Iterator[str]:
    """The fields of a change, then its code and its cells. What is new has one side."""
    new = is_new(change)
    for field in change.fields:
        before, after = _sides(field)
        note = field_note(field, change)
        old, rest = ("", "") if new else (f" {before} |", f" {note} |")
        yield f"| {cell(code(field.path))} |{old} {after} | {_where(field)} |{rest}"
    old, rest = ("", "") if new else (" |", " |")
    if lines := changed_entrypoint(change):
        yield f"| `_air.py` |{old} {'<br>'.join(cell(code(line)) for line in lines)} | |{rest}"
    if change.code is not None:
        yield f"| code |{old} {cell(code_words(change.code, literal=code))} | |{rest}"
    if group is not None:
        yield from (f"| {name} |{old} {text} | |{rest}" for name, text in _cells(group))


def _cells(group: CellGroup) -> Iterator[tuple[str, str]]:
    """What tells the cells of a matrix apart."""
    for path in group.varying:
        yield cell(code(path)), "different in each"
    for axis, texts in group.axes:
        values = ", ".join(_value(text) for text in texts[:_VALUES_SHOWN])
        more = len(texts) - _VALUES_SHOWN
        rest = f", {more:,} more" if more > 0 else ""
        yield cell(code(f"matrix.{axis}")), f"{cell(values)}{rest}"
    if not group.axes:
        keys = [cell(_value(change.address.key)) for change in group.changes[:_VALUES_SHOWN]]
        more = len(group.changes) - _VALUES_SHOWN
        keys += [count(more, "more run")] if more > 0 else []
        yield "matrix", "<br>".join(keys)


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
