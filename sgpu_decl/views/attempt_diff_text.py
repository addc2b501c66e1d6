"""What differs between two attempts: text and JSON."""

from collections.abc import Iterator
from datetime import datetime
from typing import TypeAlias

from sgpu_decl.diagnostics.amounts import duration
from sgpu_decl.model.attempt_diff import AttemptDiff, FileDiff, ValueDiff
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.codec import to_json
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.plan import FieldDifference
from sgpu_decl.model.run_table import SYSTEM_METRICS
from sgpu_decl.views.plan_fields import changed_lines, sides
from sgpu_decl.views.plan_words import package_words, path_words
from sgpu_decl.views.status_json import attempt_object
from sgpu_decl.views.status_text import state_text
from sgpu_decl.views.terminal import Colour, escape, json_text, paint, shorten

_SIGNS = {"added": "+", "removed": "-", "changed": "~"}
_COLOURS = {"+": Colour.GREEN, "-": Colour.RED, "~": Colour.YELLOW, "@": Colour.CYAN}
_Line: TypeAlias = tuple[str, str]  # the sign that gives it its colour, and its text
_ROOM = 72  # columns of a value


def attempt_diff_text(diff: AttemptDiff, *, now: datetime, colour: bool) -> str:
    """The attempts, then what differs in each part; the parts that are the same in one line."""
    metrics = [one for one in diff.metrics if not one.name.startswith(SYSTEM_METRICS)]
    parts = {
        "config": [line for field in diff.fields for line in _field(field)],
        "code": [line for file in diff.files for line in _file(file)],
        "packages": [_signed(package_words(package)) for package in diff.packages],
        "results": [_value(one) for one in diff.results],
        "metrics": [_value(one) for one in metrics],
    }
    lines = [
        _head("-", diff.before, now, colour=colour),
        _head("+", diff.after, now, colour=colour),
    ]
    for name, inner in parts.items():
        if inner:
            lines += [
                "",
                f"{name}:",
                *(f"  {_painted(sign, line, on=colour)}" for sign, line in inner),
            ]
    same = [name for name, inner in parts.items() if not inner and name not in diff.unknown]
    if same:
        lines += ["", f"no difference in {', '.join(same)}"]
    lines += [f"not compared: {escape(gap)}" for gap in diff.gaps]
    return "\n".join(lines)


def attempt_diff_json(diff: AttemptDiff) -> dict[str, Json]:
    """`before` and `after` name the attempts; a side that is not there is null."""
    return {
        "before": attempt_object(diff.before),
        "after": attempt_object(diff.after),
        "fields": [
            {"path": field.path, "before": field.before, "after": field.after}
            for field in diff.fields
        ],
        "files": [
            {
                "path": file.path,
                "change": file.change,
                "diff": "".join(f"{line}\n" for line in file.lines) or None,
                "note": file.note,
            }
            for file in diff.files
        ],
        "packages": to_json(diff.packages),
        "results": to_json(diff.results),
        "metrics": to_json(diff.metrics),
        "not_compared": list(diff.gaps),
    }


def _head(sign: str, view: AttemptView, now: datetime, *, colour: bool) -> str:
    seconds = view.seconds(now)
    took = "" if seconds is None else f", {duration(seconds)}"
    return f"{sign} {escape(str(view.ref))} {state_text(str(view.state), colour=colour)}{took}"


def _field(field: FieldDifference) -> Iterator[_Line]:
    path = path_words(field.path)
    changed = changed_lines(field, _ROOM)
    if changed is None:
        sign = "+" if field.added else "-" if field.removed else "~"
        before, after = sides(field, _ROOM)
        values = after if field.added else before if field.removed else f"{before} -> {after}"
        yield _signed(f"{sign} {path}  {values}")
        return
    yield _signed(f"~ {path}  {changed.amount}")
    for old, new in changed.pairs:
        if old is not None:
            yield "-", f"    - {old}"
        if new is not None:
            yield "+", f"    + {new}"


def _file(file: FileDiff) -> Iterator[_Line]:
    note = f"  ({escape(file.note)})" if file.note else ""
    yield _signed(f"{_SIGNS[file.change]} {escape(file.path)}{note}")
    for line in file.lines:
        yield line[:1], f"    {line[:1]}{escape(line[1:].replace(chr(9), '    '))}"


def _value(one: ValueDiff) -> _Line:
    name = escape(one.name)
    if one.before is None or one.after is None:
        sign, value = ("+", one.after) if one.before is None else ("-", one.before)
        return _signed(f"{sign} {name}  {_brief(value)}")
    return _signed(f"~ {name}  {_brief(one.before)} -> {_brief(one.after)}")


def _brief(value: Json) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else json_text(value)
    return shorten(text, _ROOM)


def _signed(line: str) -> _Line:
    """A line that begins with its sign."""
    return line[0], line


def _painted(sign: str, line: str, *, on: bool) -> str:
    colour = _COLOURS.get(sign)
    return paint(line, colour, on=on) if colour else line
