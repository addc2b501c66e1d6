"""A plan for people: each change with its reason and place, and a line that counts them last."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.model.address import Kind
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.plan import Action, Change, FieldChange, Plan, Reason
from sgpu_decl.planner.field_changes import new_values
from sgpu_decl.views.cell_groups import CellGroup, group_because, group_what, grouped
from sgpu_decl.views.errors_text import SEVERITY_COLOURS
from sgpu_decl.views.plan_fields import ChangedLines, changed_entrypoint, changed_lines, sides
from sgpu_decl.views.plan_job_fields import in_words_of_yaml
from sgpu_decl.views.plan_words import (
    INCOMPLETE,
    because,
    caused_here,
    changes_something,
    code_words,
    environment_words,
    estimate_words,
    field_note,
    launches,
    only_moved,
    others_by_cause,
    package_words,
    path_words,
    platform_lines,
    stops_active,
    summary_line,
    value,
    what,
)
from sgpu_decl.views.terminal import Colour, columns, count, escape, paint, shorten, wrap

_UNCHANGED_SHOWN = 10
_PAIRS_SHOWN = 6
_VALUES_SHOWN = 40
_CELLS_SHOWN = 10
_PACKAGES_SHOWN = 40
_PACKAGE_COLOURS = {"+": Colour.GREEN, "~": Colour.YELLOW, "-": Colour.RED}
_SYMBOLS: Mapping[Action, tuple[str, Colour]] = MappingProxyType(
    {
        Action.CREATE: ("+", Colour.GREEN),
        Action.UPDATE: ("~", Colour.YELLOW),
        Action.REPLACE: ("-/+", Colour.RED),
        Action.DESTROY: ("-", Colour.RED),
        Action.ADOPT: ("=", Colour.CYAN),
        Action.FORGET: (".", Colour.DIM),
        Action.NO_OP: (" ", Colour.DIM),
    }
)


def render(plan: Plan, *, now: datetime, colour: bool = False, width: int | None = None) -> str:
    """Return the plan as text, ended by a newline.

    Args:
        now: what ages count from.
        width: of the terminal, in columns: long values are cut to it, and long sentences go on
            in the next line. Without a terminal, values are cut to 100.
    """
    plan = in_words_of_yaml(plan)
    paper = _Paper(plan, now=now, colour=colour, width=width)
    stopping = [change for change in plan.changes if stops_active(change)]
    others = grouped(
        change for change in plan.changes if caused_here(change) and not stops_active(change)
    )
    unchanged = grouped(
        change
        for change in plan.changes
        if change.idle and change.kind is not Kind.ENVIRONMENT and change.cause is None
    )
    lost = [check for check in plan.checks if check.code == "work_lost"]
    checks = [check for check in plan.checks if check.code != "work_lost"]
    blocks = itertools.chain(
        (
            paper.group(item) if isinstance(item, CellGroup) else paper.change(item, ())
            for item in others
        ),
        [paper.others(), paper.unchanged(unchanged), paper.stopping(stopping, lost)],
        [paper.checks(checks)],
        [paper.closing()],
    )
    # Ten thousand changes are text at once, not lines of all of them first.
    text = "\n\n".join(filter(None, map("\n".join, blocks))) + "\n"
    head = [escape(line) for line in platform_lines(plan)]
    if not changes_something(plan):
        head.append(paper.bold(summary_line(plan)))
    return "\n\n".join(filter(None, ("\n".join(head), text))).rstrip("\n") + "\n"


class _Paper:
    """How lines are laid out: the settings of one rendering."""

    def __init__(self, plan: Plan, *, now: datetime, colour: bool, width: int | None) -> None:
        self._plan = plan
        self._now = now
        self._colour = colour
        self._terminal = width
        self._width = max(60, width or 100)

    def bold(self, text: str) -> str:
        return paint(text, Colour.BOLD, on=self._colour)

    def change(self, change: Change, lost: Sequence[Diagnostic]) -> Iterator[str]:
        yield from self._title(
            self._head(change.action, str(change.address)),
            what(change),
            because(change, self._plan, self._now),
            only_moved=only_moved(change),
        )
        for check in lost:
            yield f"      lost: {escape(check.summary)}"
        yield from self._contents(change)

    def group(self, group: CellGroup) -> Iterator[str]:
        """Cells of a matrix that change alike: what they share, then what tells them apart."""
        yield from self._title(
            self._head(group.shared.action, group.address),
            group_what(group),
            group_because(group.changes, self._plan),
            only_moved=only_moved(group.shared),
        )
        yield from self._contents(group.shared)
        if group.varying:
            paths = ", ".join(map(path_words, group.varying))
            yield shorten(f"      different in each: {paths}", self._width)
        yield "      matrix:"
        width = max((columns(axis) for axis, _ in group.axes), default=0)
        for axis, texts in group.axes:
            values = ", ".join(texts[:_VALUES_SHOWN])
            more = len(texts) - _VALUES_SHOWN
            line = f"        {_pad(axis, width)}  {values}" + (f", {more:,} more" * (more > 0))
            yield shorten(line, self._width)
        if not group.axes:
            for change in group.changes[:_CELLS_SHOWN]:
                yield shorten(f"        {escape(change.address.key)}", self._width)
            more = len(group.changes) - _CELLS_SHOWN
            if more > 0:
                yield f"        ({count(more, 'more run')})"

    def _title(self, head: str, done: str, why: str, *, only_moved: bool) -> Iterator[str]:
        """What happens and why; where a history is moved, why nothing else happens."""
        if only_moved:
            yield f"{head}  {done}; {why}"
        else:
            yield f"{head}  {done}"
            yield f"      because: {why}"

    def _head(self, action: Action, address: str) -> str:
        symbol, colour = _SYMBOLS[action]
        mark = paint(f"{symbol:>3}", colour, on=self._colour)
        return f"{mark} {self.bold(escape(address))}"

    def _contents(self, change: Change) -> Iterator[str]:
        """Fields, code and environment."""
        first = change.reason is Reason.FIRST_RUN
        if first or (change.prior is None and all(field.added for field in change.fields)):
            yield from self._first_fields(new_values(change.fields))
        else:
            yield from self._changed_fields(change)
            yield from (f"      _air.py  {line}" for line in changed_entrypoint(change))
        if change.code is not None:
            yield f"      code: {code_words(change.code)}"
        if change.environment is not None:
            yield from self._environment(change)
        if change.unchanged:
            hidden = count(change.unchanged, "unchanged field")
            yield paint(f"      ({hidden} hidden)", Colour.DIM, on=self._colour)

    def _environment(self, change: Change) -> Iterator[str]:
        """Of an environment each package; of a run that it has one, and which."""
        environment = change.environment
        if change.kind is not Kind.ENVIRONMENT:
            words = ", ".join(
                escape(str(item)) for item in change.depends_on if item.kind is Kind.ENVIRONMENT
            )
            if environment is not None and environment.packages:
                words += f", {environment_words(environment, whole=False).partition(',')[0]}"
            yield f"      environment: {words}"
        elif environment is not None and change.action is not Action.CREATE:
            for package in environment.packages[:_PACKAGES_SHOWN]:
                line = package_words(package)
                yield "      " + paint(line, _PACKAGE_COLOURS[line[0]], on=self._colour)
            more = len(environment.packages) - _PACKAGES_SHOWN
            if more > 0:
                yield f"      ({count(more, 'more package')})"

    def others(self) -> Iterator[str]:
        """What this branch does not cause, one line for each cause."""
        for words, changes in others_by_cause(self._plan):
            names = ", ".join(escape(str(change.address)) for change in changes)
            line = f"    {count(len(changes), 'change')} {words}: {names}"
            yield shorten(line, 2 * self._width)

    def unchanged(self, items: Sequence[Change | CellGroup]) -> Iterator[str]:
        for item in items[:_UNCHANGED_SHOWN]:
            if isinstance(item, CellGroup):
                why = f"{group_what(item)}: {group_because(item.changes, self._plan)}"
            else:
                why = because(item, self._plan, self._now)
            yield f"    {escape(str(item.address))}  {why}"
        rest = items[_UNCHANGED_SHOWN:]
        more = sum(len(item.changes) if isinstance(item, CellGroup) else 1 for item in rest)
        if more > 0:
            yield f"    ({count(more, 'more unchanged run')})"

    def stopping(self, changes: Sequence[Change], lost: Sequence[Diagnostic]) -> Iterator[str]:
        if not changes:
            return
        yield paint("These changes stop active runs:", Colour.RED, on=self._colour)
        for change in changes:
            yield ""
            mine = [check for check in lost if check.address == str(change.address)]
            yield from self.change(change, mine)

    def checks(self, checks: Sequence[Diagnostic]) -> Iterator[str]:
        for check in checks:
            head = f"{check.severity}[{check.code}]"
            about = f"{escape(check.address)}: " if check.address else ""
            text = wrap(f"{head}: {about}{escape(check.summary)}", self._terminal)
            colour = SEVERITY_COLOURS[check.severity]
            yield paint(head, colour, on=self._colour) + text.removeprefix(head)
            if check.place:
                yield f"  --> {escape(str(check.place))}"
            if check.hint:
                yield wrap(f"  hint: {escape(check.hint)}", self._terminal)

    def closing(self) -> Iterator[str]:
        plan = self._plan
        if launches(plan):
            yield f"Estimate: {estimate_words(plan.estimate)}."
        if not plan.complete:
            yield INCOMPLETE
        if any(check.severity is Severity.ERROR for check in plan.checks):
            yield "This plan cannot be applied: see the errors above."
        if changes_something(plan):
            yield self.bold(summary_line(plan))

    def _first_fields(self, values: Iterable[tuple[str, Json]]) -> Iterator[str]:
        """Compactly, several to a line: everything is new, so places would only be noise."""
        room = self._width - 6
        line, used = "", 0
        for path, after in values:
            shown = _scalar_text if isinstance(after, str | int | float) else _field_text
            item, width = shown(path, after, room - 1)
            if line and used + width + 3 > room:
                yield f"      {line},"
                line = ""
            line, used = (f"{line}, {item}", used + 2 + width) if line else (item, width)
        if line:
            yield f"      {line}"

    def _changed_fields(self, change: Change) -> Iterator[str]:
        fields = change.fields
        room = max(12, (self._width - 40) // 2)
        several = [changed_lines(field, self._width - 10) for field in fields]
        rows = [
            (
                path_words(field.path),
                lines.amount if lines else " -> ".join(sides(field, room)),
                _where(field, field_note(field, change)),
            )
            for field, lines in zip(fields, several, strict=True)
        ]
        first = max((columns(row[0]) for row in rows), default=0)
        second = max((columns(row[1]) for row in rows), default=0)
        for (path, values, origin), lines in zip(rows, several, strict=True):
            line = f"      {_pad(path, first)}  {_pad(values, second)}  {origin}"
            yield line.rstrip()
            if lines:
                yield from self._lines(lines)

    def _lines(self, lines: ChangedLines) -> Iterator[str]:
        for old, new in lines.pairs[:_PAIRS_SHOWN]:
            if old is not None:
                yield "        " + paint(f"- {old}", Colour.RED, on=self._colour)
            if new is not None:
                yield "        " + paint(f"+ {new}", Colour.GREEN, on=self._colour)
        more = sum(len(pair) - pair.count(None) for pair in lines.pairs[_PAIRS_SHOWN:])
        if more:
            yield f"        ({count(more, f'more changed {lines.kind}')})"


def _field_text(path: str, after: Json, room: int) -> tuple[str, int]:
    """A new field, and how wide that is."""
    text = shorten(f"{path_words(path)}: {value(after, path)}", room)
    return text, columns(text)


# Thousands of runs share most of their values. `typed`, because `1` is not `true`.
_scalar_text = lru_cache(maxsize=1024, typed=True)(_field_text)


def _where(field: FieldChange, note: str) -> str:
    place = escape(str(field.origin)) if field.origin else ""
    return " ".join(filter(None, (place, f"({note})" if note else "")))


def _pad(text: str, width: int) -> str:
    return text + " " * (width - columns(text))
