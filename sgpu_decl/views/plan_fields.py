"""Both sides of a changed field, cut so that what differs can be seen."""

from collections.abc import Iterator, Sequence

from sgpu_decl.diagnostics.masks import masked
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.plan import Change, FieldChange, FieldDifference
from sgpu_decl.text.yaml_nodes import resolve
from sgpu_decl.views.plan_words import value
from sgpu_decl.views.terminal import columns, escape, shorten

_ABSENT = "(none)"
# Matching lines takes the square of their number: beyond this all of them are told as changed.
_MATCHED = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedLines:
    """The lines of a text that went and came, in pairs: one of a pair is None where nothing took
    its place. Safe to show, and not longer than asked for. `kind` is what a line is: `line`, or an
    `element` of a list."""

    kind: str
    pairs: tuple[tuple[str | None, str | None], ...]

    @property
    def amount(self) -> str:
        """`-1 +2 lines`."""
        return f"-{len(self.old)} +{len(self.new)} {self.kind}s"

    @property
    def old(self) -> tuple[str, ...]:
        return tuple(old for old, _ in self.pairs if old is not None)

    @property
    def new(self) -> tuple[str, ...]:
        return tuple(new for _, new in self.pairs if new is not None)


def sides(field: FieldChange | FieldDifference, room: int) -> tuple[str, str]:
    """Return the old and the new value of a field in one line each, at most `room` columns wide;
    long ones are cut around the first difference."""
    before = _ABSENT if field.added else value(field.before, field.path)
    after = _ABSENT if field.removed else value(field.after, field.path)
    if field.added or field.removed:
        return shorten(before, room), shorten(after, room)
    return _around(before, after, room)


def changed_entrypoint(change: Change) -> list[str]:
    """Return the lines of `_air.py` that differ from those of the last launch; each begins with
    `-` or `+`."""
    fields = [field for field in change.fields if field.path in {"entrypoint", "command"}]
    if not change.launches or all(field.added for field in fields):
        return []
    from sgpu_decl.rendering.templates import air_diff  # brings in jinja2

    return air_diff(
        {field.path: field.before for field in fields},
        {field.path: field.after for field in fields},
    )


def changed_lines(field: FieldChange | FieldDifference, room: int) -> ChangedLines | None:
    """Return the lines that differ, each at most `room` columns wide, where both sides are text and
    one has several lines, or both are lists: an element is a line then. Else None."""
    before, after = (masked(side, field.path) for side in (field.before, field.after))
    if isinstance(before, list) and isinstance(after, list):
        pairs = _pairs([_element(item) for item in before], [_element(item) for item in after])
        kind = "element"
    elif isinstance(before, str) and isinstance(after, str) and "\n" in before + after:
        pairs, kind = _pairs(before.split("\n"), after.split("\n")), "line"
    else:
        return None
    return ChangedLines(kind=kind, pairs=tuple(_cut(old, new, room) for old, new in pairs))


def _element(item: Json) -> str:
    """An element of a list: text as it is, if nothing else has the same signs."""
    return item if isinstance(item, str) and isinstance(resolve(item), str) else canonical(item)


def _pairs(old: list[str], new: list[str]) -> Iterator[tuple[str | None, str | None]]:
    head = _shared(old, new)
    old, new = old[head:], new[head:]
    tail = _shared(old[::-1], new[::-1])
    old, new = old[: len(old) - tail], new[: len(new) - tail]
    if len(old) + len(new) > _MATCHED:
        yield from _paired(old, new)
        return
    from difflib import SequenceMatcher  # 2 ms that few plans need

    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            yield from _paired(old[a:b], new[c:d])


def _paired(old: list[str], new: list[str]) -> Iterator[tuple[str | None, str | None]]:
    """Pair removed and added lines where there are as many of both."""
    if len(old) == len(new):
        yield from zip(old, new, strict=True)
        return
    yield from ((line, None) for line in old)
    yield from ((None, line) for line in new)


def _cut(old: str | None, new: str | None, room: int) -> tuple[str | None, str | None]:
    if old is not None and new is not None:
        return _around(_line(old), _line(new), room)
    return (
        None if old is None else shorten(_line(old), room),
        None if new is None else shorten(_line(new), room),
    )


def _line(text: str) -> str:
    """The line, in quotes if spaces at its ends would be invisible."""
    return escape(text if text and text == text.rstrip() else canonical(text))


def _shared(one: Sequence[str], two: Sequence[str]) -> int:
    """How many members both begin with."""
    both = enumerate(zip(one, two, strict=False))
    return next((at for at, (a, b) in both if a != b), min(len(one), len(two)))


def _around(before: str, after: str, room: int) -> tuple[str, str]:
    """Cut both at the same column, some columns ahead of the first difference."""
    if max(columns(before), columns(after)) <= room:
        return before, after
    differs = _shared(before, after)
    start = differs - room // 3
    if start <= 0:
        return shorten(before, room), shorten(after, room)
    return shorten("…" + before[start:], room), shorten("…" + after[start:], room)
