"""How the lines of a YAML text are used: where values, keys and brackets begin and end.

Lines and columns count from 0, as those of the parser do.
"""

import re
from dataclasses import field

from yaml import events

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.text.composer import events_of
from sgpu_decl.text.yaml_reader import LINE_BREAK

_HEADER = re.compile(r"(?<![^ \t])([|>][-+0-9]*)(?=[ \t]|$)")
_DIGIT = re.compile(r"[1-9]")
_Span = tuple[int, int, int, int]
"""The first line and column of what the parser gives, and the line and column behind it."""


class Unreadable(Exception):
    """The reader would stop in this text."""


@dataclass(slots=True, frozen=True)
class BlockText:
    """The lines of a `|` or `>` after its first. `last` is the last one, with the empty lines below
    the text. `digit` is the indentation that the first line names, 0 where it names none."""

    last: int
    digit: int
    keeps_empty_lines: bool


@dataclass(slots=True)
class YamlLayout:
    """A text by its lines.

    Attributes:
        counts: by line, how many values have begun when it ends, where one begins in it.
        ends: by line, the column in which its last value or bracket ends; 0 where none ends.
        values: what the text says: the values in their order, with quotes, anchors and tags, and
            where collections begin and end. Texts with equal `values` mean the same.
        inside: the lines that begin inside of a value.
        several_lines: whether there is a value of several lines, a block text or another one.
        keys: by line, the columns in which keys end, in their order.
        key_starts: by line, the column of the key of a mapping that is written by indentation.
        last_lines: by the line in which a value of several lines begins: the line of its end.
        brackets: by line, the column of a bracket or brace that is not closed in it.
        block_texts: by the line of its `|` or `>`.
        open_end: the text ends in a block text, and adding a line break would change that.
    """

    lines: list[str]
    counts: list[int]
    ends: list[int]
    values: list[object] = field(default_factory=list)
    inside: set[int] = field(default_factory=set)
    several_lines: bool = False
    keys: dict[int, list[int]] = field(default_factory=dict)
    key_starts: dict[int, int] = field(default_factory=dict)
    last_lines: dict[int, int] = field(default_factory=dict)
    brackets: dict[int, int] = field(default_factory=dict)
    block_texts: dict[int, BlockText] = field(default_factory=dict)
    open_end: bool = False


def layout_of(source: str, *, depth: int) -> YamlLayout:
    """Read the layout of a text without a byte order mark.

    Args:
        depth: how many collections may lie in each other.

    Raises:
        yaml.YAMLError: it is not YAML.
        Unreadable: the collections are too deep, or there are several documents.
    """
    reader = _Reader(source, depth)
    documents = 0
    for event in events_of(source):
        if isinstance(event, events.ScalarEvent):
            reader.scalar(event)
        elif isinstance(event, events.CollectionStartEvent):
            reader.open(event)
        elif isinstance(event, events.CollectionEndEvent):
            reader.close(event)
        elif isinstance(event, events.AliasEvent):
            reader.alias(event)
        elif isinstance(event, events.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise Unreadable
    return reader.layout


class _Reader:
    """Makes a layout of the events of a text, one event after the other."""

    def __init__(self, source: str, depth: int) -> None:
        lines = LINE_BREAK.split(source)
        size = len(lines)
        self.layout = YamlLayout(lines=lines, counts=[0] * size, ends=[0] * size)
        self._depth = depth
        self._count = 0
        self._is_mapping = False  # the innermost open collection
        self._is_key = False  # what comes next
        self._bracket: tuple[int, int] | None = None  # the outermost one that is open
        self._above: list[tuple[bool, bool, tuple[int, int] | None]] = []

    def scalar(self, event: events.ScalarEvent) -> None:
        layout = self.layout
        layout.values.append((event.value, event.style))
        if event.anchor is not None or event.tag is not None:
            layout.values.append((event.anchor, event.tag))
        first, begin, last, end = span = _span(event)
        if first != last:
            self._lines(event, span)
        elif begin != end:  # an empty value has no text
            self._count += 1
            layout.counts[last] = self._count
            layout.ends[last] = end
            if self._is_key:
                layout.keys.setdefault(last, []).append(end)
                if self._bracket is None:
                    layout.key_starts[last] = begin
        self._is_key = self._is_mapping and not self._is_key

    def _lines(self, event: events.ScalarEvent, span: _Span) -> None:
        """A value of several lines."""
        layout = self.layout
        layout.several_lines = True
        first, _, last, end = span
        self._count += 1
        layout.counts[first] = self._count
        if event.style in ("|", ">"):
            _block_text(layout, span)
            return
        layout.ends[last] = end
        layout.inside.update(range(first + 1, last + 1))
        if self._bracket is None:
            layout.last_lines[first] = last

    def open(self, event: events.CollectionStartEvent) -> None:
        if len(self._above) >= self._depth:
            raise Unreadable
        self._above.append((self._is_mapping, self._is_key, self._bracket))
        self._is_mapping = self._is_key = isinstance(event, events.MappingStartEvent)
        is_flow = bool(event.flow_style)  # PyYAML gives None for some
        self.layout.values.append((self._is_mapping, is_flow, event.anchor, event.tag))
        if is_flow and self._bracket is None:
            self._bracket = _span(event)[:2]

    def close(self, event: events.CollectionEndEvent) -> None:
        self.layout.values.append(None)
        closed = self._bracket
        self._is_mapping, self._is_key, self._bracket = self._above.pop()
        if closed is not None:
            _, _, last, end = _span(event)
            self.layout.ends[last] = end
            if self._bracket is None and closed[0] != last:
                self.layout.last_lines[closed[0]] = last
                self.layout.brackets[closed[0]] = closed[1]
        self._is_key = self._is_mapping and not self._is_key

    def alias(self, event: events.AliasEvent) -> None:
        first, begin, last, end = _span(event)
        self.layout.values.append(event.anchor)
        self._count += 1
        self.layout.counts[first] = self._count
        self.layout.ends[last] = end
        if self._is_key and self._bracket is None:
            self.layout.key_starts[first] = begin
        self._is_key = self._is_mapping and not self._is_key


def _span(event: events.Event) -> _Span:
    start, end = event.start_mark, event.end_mark
    assert start is not None and end is not None  # noqa: S101, PT018  the parser gives both
    return start.line, start.column, end.line, end.column


def _block_text(layout: YamlLayout, span: _Span) -> None:
    first, begin, last, end = span
    header = _HEADER.search(layout.lines[first], begin)
    if header is None:  # its tag stands on a line of its own
        return
    digit = _DIGIT.search(header[1])
    layout.ends[first] = header.end(1)
    layout.block_texts[first] = BlockText(
        last if end else last - 1,
        int(digit[0]) if digit else 0,
        keeps_empty_lines="+" in header[1],
    )
    layout.open_end = end > 0 and "-" not in header[1]
