"""A plan as a comment on a pull request: GitHub Markdown that fits into a limit.

What a user wrote stands in code spans alone: GitHub would read it elsewhere as a mention
(`@somebody`) or a link (`#1`), and does so after backslashes too.
"""

import math
import re
from collections import Counter
from collections.abc import Generator, Hashable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import PurePath

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.plan import Change, Plan
from sgpu_decl.views.cell_groups import grouped
from sgpu_decl.views.change_groups import Item, joined
from sgpu_decl.views.markdown import code, prose, written_size
from sgpu_decl.views.plan_change_markdown import Fold, change_row, folds, has_folds
from sgpu_decl.views.plan_job_fields import in_words_of_yaml
from sgpu_decl.views.plan_words import (
    INCOMPLETE,
    caused_here,
    estimate_words,
    launches,
    others_by_cause,
    summary_line,
)
from sgpu_decl.views.terminal import count

LIMIT = 65_000
"""Bytes. A comment on GitHub has at most 65,536 characters."""
LEAST_LIMIT = 1_000
"""The counts, and what was left out, fit into this."""
_NOTES = 320  # bytes that are kept for the lines that say what was left out
_LONGEST_NAME = 64  # of a project or a target, in the first line
_SEE = "see `sgpu show PLAN`"
_HEADER = ("| action | run | because |", "|---|---|---|")
_EQUAL_SHOWN = 3
_LITERAL = re.compile(r"`[^`]*`")
_FIRST = (Severity.ERROR, Severity.WARNING, Severity.INFO)


def render(plan: Plan, *, now: datetime, limit: int = LIMIT) -> Iterator[str]:
    """Yield the plan as GitHub Markdown, in pieces that end with a newline.

    Args:
        now: what ages count from.
        limit: in bytes, at least `LEAST_LIMIT`; 0 for none. A longer plan lacks, in this order, the
            fields of its least important changes, equal checks beyond three, and changes. Each
            omission is counted.
    """
    plan = in_words_of_yaml(plan)
    changed = joined(grouped(filter(caused_here, plan.changes)), plan)
    changed.sort(key=_importance)
    head = [_marker(plan), "", f"**{summary_line(plan)}**", *_platforms(plan)]
    closing = list(_closing(plan))
    spent = sum(map(written_size, (*head, *closing))) + len("\n")
    rooms = _rooms(plan, changed, now, limit - spent - _NOTES) if limit else _NO_LIMIT
    yield "".join(f"{line}\n" for line in head)
    yield from _block(_rows(changed, plan, now, rooms.rows))
    yield from _block(_others(plan, now, rooms.others))
    yield from _block(_details(changed, rooms.fields))
    yield from _block(_checks(plan, rooms))
    yield from _block(closing)


def _platforms(plan: Plan) -> Iterator[str]:
    for one in plan.platforms:
        yield ""
        user = f" as {code(one.user)}" if one.user is not None else ""
        host = f": {code(one.host)}" if one.host else ""
        yield f"On {code(one.backend)}{host}{user}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rooms:
    """How many bytes each part may take. `every_check` is false where equal ones are counted."""

    rows: float
    others: float
    fields: float
    checks: float
    every_check: bool


_NO_LIMIT = _Rooms(
    rows=math.inf, others=math.inf, fields=math.inf, checks=math.inf, every_check=True
)


def _rooms(plan: Plan, changed: Sequence[Item], now: datetime, room: int) -> _Rooms:
    """Share `room` between the parts: what is left out first gets what the others leave."""
    rows = _size((*_HEADER, *(change_row(item, plan, now) for item in changed)), room)
    others = _size(_others(plan, now, math.inf), room - rows)
    changes = rows + others
    every = _size((line for line, _ in _check_lines(plan.checks, every=True)), room - changes)
    if changes + every <= room:
        rest = room - changes - every
        return _Rooms(rows=rows, others=others, checks=every, fields=rest, every_check=True)
    counted = _size((line for line, _ in _check_lines(plan.checks, every=False)), room)
    checks = min(counted, max(room // 3, room - changes))
    rows = min(rows, room - checks)
    others = min(others, room - checks - rows)
    rest = room - checks - rows - others
    return _Rooms(rows=rows, others=others, checks=checks, fields=rest, every_check=False)


def _size(lines: Iterable[str], room: int) -> int:
    """The size of a block of lines; some size beyond `room` if it does not fit."""
    size = 0
    for line in lines:
        size += written_size(line) + (not size)  # an empty line stands before a block
        if size > room:
            break
    return size


class _Room:
    """The bytes that are left for a part."""

    def __init__(self, size: float) -> None:
        self.left = size

    def take(self, *lines: str, keep: int = 0) -> bool:
        """Whether the lines fit, with `keep` bytes left; they are then taken."""
        size = sum(map(written_size, lines))
        if fits := size + keep <= self.left:
            self.left -= size
        return fits


def _block(lines: Iterable[str]) -> Iterator[str]:
    first = True
    for line in lines:
        yield f"\n{line}\n" if first else f"{line}\n"
        first = False


def _marker(plan: Plan) -> str:
    """The line by which the comment of a project and target is found again."""
    names = (plan.project_name or PurePath(plan.project).name, plan.target or "default")
    project, target = (_encoded(name)[:_LONGEST_NAME] for name in names)
    return f"<!-- sgpu:plan project={project} target={target} -->"


def _encoded(name: str) -> str:
    """A name that cannot end a comment of HTML: percent-encoded, as in a URL."""

    def percent(match: re.Match[str]) -> str:
        return "".join(f"%{byte:02X}" for byte in match[0].encode(errors="backslashreplace"))

    return re.sub(r"[^A-Za-z0-9_.-]|(?<=-)-|-$", percent, name)


def _importance(item: Item) -> tuple[bool, int]:
    change = item if isinstance(item, Change) else item.shared
    return not change.destructive, -change.action.severity


def _rows(items: Sequence[Item], plan: Plan, now: datetime, size: float) -> Iterator[str]:
    if not items:
        return
    room = _Room(size - 1)
    left_out = sum(map(_amount, items))
    if room.take(*_HEADER):
        yield from _HEADER
        for item in items:
            row = change_row(item, plan, now)
            if not room.take(row):
                break
            yield row
            left_out -= _amount(item)
    if left_out:
        yield f"\n{count(left_out, 'more change')}: {_SEE}."


def _others(plan: Plan, now: datetime, size: float) -> Iterator[str]:
    """What this branch does not cause, folded under one line for each cause."""
    room = _Room(size - 1)
    left_out = 0
    for words, changes in others_by_cause(plan):
        items = joined(changes, plan)
        rows = (change_row(item, plan, now) for item in items)
        title = f"<details><summary>{count(len(changes), 'change')} {words}</summary>"
        fold = Fold(opening=(title, "", *_HEADER), rows=rows)
        lines = list(_fold(fold, room))
        yield from lines
        shown = max(0, len(lines) - len(fold.opening) - len(fold.closing))
        left_out += sum(map(_amount, items[shown:]))
    if left_out:
        yield f"\n{count(left_out, 'more change')} of other causes: {_SEE}."


def _amount(item: Item) -> int:
    return 1 if isinstance(item, Change) else len(item.changes)


def _details(items: Sequence[Item], size: float) -> Iterator[str]:
    """The fields of each change, folded; the last block that fits may lack some."""
    room = _Room(size - 1)
    folded = [item for item in items if has_folds(item)]
    for at, item in enumerate(folded):
        for fold in folds(item):
            whole = yield from _fold(fold, room)
            if not whole:
                left_out = sum(map(_amount, folded[at:]))
                yield f"\n{count(left_out, 'change')} without all fields: {_SEE}."
                return


def _fold(fold: Fold, room: _Room) -> Generator[str, None, bool]:
    """The lines of a block, its tags closed wherever it is cut; returns whether it is whole."""
    if not room.take(*fold.opening, *fold.closing):
        return False
    yield from fold.opening
    whole = True
    for row in fold.rows:
        if not room.take(row):
            whole = False
            break
        yield row
    yield from fold.closing
    return whole


def _checks(plan: Plan, rooms: _Rooms) -> Iterator[str]:
    room = _Room(rooms.checks - 1)
    left_out = len(plan.checks)
    for line, amount in _check_lines(plan.checks, every=rooms.every_check):
        if not room.take(line):
            break
        yield line
        left_out -= amount
    if left_out:
        yield f"\n{count(left_out, 'more check')}: {_SEE}."


def _closing(plan: Plan) -> Iterator[str]:
    if launches(plan):
        yield f"Estimate: {prose(estimate_words(plan.estimate))}."
    if not plan.complete:
        yield INCOMPLETE


def _check_lines(checks: Sequence[Diagnostic], *, every: bool) -> Iterator[tuple[str, int]]:
    """Yield each line, errors first, and how many checks it stands for. Checks that say the same of
    many runs, with other names, share a line. Unless `every` one is asked for, those of one code
    beyond three are counted in a line of their own."""
    totals = Counter((check.severity, check.code) for check in checks)
    seen: Counter[tuple[Severity, str]] = Counter()
    lines = _alike(checks) if every else [[check] for check in checks]
    for first, *others in sorted(lines, key=lambda alike: _FIRST.index(alike[0].severity)):
        key = (first.severity, first.code)
        seen[key] += 1
        if every or seen[key] <= _EQUAL_SHOWN:
            yield _line(first) + _for_others(others), 1 + len(others)
        elif seen[key] == _EQUAL_SHOWN + 1:
            rest = totals[key] - _EQUAL_SHOWN
            places = f"{code(first.code)} at {totals[key]:,} places, {rest:,} of them left out"
            yield f"- **{first.severity}** {places}: see `sgpu show PLAN`", rest


def _alike(checks: Sequence[Diagnostic]) -> list[list[Diagnostic]]:
    """The checks, with those that differ in nothing but names in one list, if they are at least
    three and no errors."""
    by_words: dict[Hashable, list[Diagnostic]] = {}
    for check in checks:
        words = (_LITERAL.sub("", text) for text in (check.summary, check.hint or ""))
        key = (check.severity, check.code, *words) if check.address else id(check)
        by_words.setdefault(id(check) if check.severity is Severity.ERROR else key, []).append(
            check
        )
    return [
        part
        for alike in by_words.values()
        for part in ([alike] if len(alike) >= _EQUAL_SHOWN else [[check] for check in alike])
    ]


def _for_others(others: Sequence[Diagnostic]) -> str:
    if not others:
        return ""
    named = list(dict.fromkeys(code(one.address) for one in others if one.address))
    more = len(named) - _EQUAL_SHOWN
    rest = f" and {more:,} more" if more > 0 else ""
    return f". The same of {', '.join(named[:_EQUAL_SHOWN])}{rest}"


def _line(check: Diagnostic) -> str:
    about = f"{code(check.address)}: " if check.address else ""
    place = f" at {code(str(check.place))}" if check.place else ""
    hint = f"; {code(check.hint)}" if check.hint else ""
    return f"- **{check.severity}** {about}{code(check.summary)}{place}{hint}"
