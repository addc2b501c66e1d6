"""The one format of YAML files: `sgpu fmt`.

The text is rewritten line by line, with the places that the parser gives. Whitespace alone changes:
values, their order, quotes, brackets, block texts and comments stay.
"""

import re

import yaml

from sgpu_decl.diagnostics.diagnostic import Diagnostic, has_errors
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.text.file_limits import PROJECT_FILE, limits_for, too_large
from sgpu_decl.text.yaml_layout import BlockText, Unreadable, YamlLayout, layout_of
from sgpu_decl.text.yaml_reader import decoded, load

_STEP = 2
_BLANKS = " \t"
_COLON = re.compile(r"[ \t]*:[ \t]*")
_AFTER_COLON = " \t,]}#"  # and the end of the line
_OUTSIDE = re.compile(r"(?:---|\.\.\.)(?:[ \t]|$)|%")


def formatted(text: str | bytes, file: str) -> tuple[str | None, tuple[Diagnostic, ...]]:
    """The text of a YAML file in the format of sgpu.

    Before it is returned, it is read again, unless empty lines and blanks at the ends of lines are
    all that goes: it says the same values in the same order, with the same comments at the same
    values, and formatting it once more changes nothing.

    Args:
        file: how the user named it, for places.

    Returns:
        The text, or `None` where it cannot be formatted, and why not.
    """
    limits = limits_for(text, file)
    source, refused = decoded(text, file)
    if source is None:
        return None, refused
    if len(source) > limits.size:
        return None, (too_large(file, limits),)
    try:
        layout = layout_of(source, depth=limits.depth)
        once = _Writer(layout).rewritten()
    except (yaml.YAMLError, Unreadable):
        _, findings = load(source, file, limits=PROJECT_FILE)
        if has_errors(findings):
            return None, findings
        raise
    if once.text != source and not _same_lines(layout, once.text):
        try:
            again = _Writer(layout_of(once.text, depth=limits.depth)).rewritten()
        except (yaml.YAMLError, Unreadable):
            again = None
        if again != once:
            return None, (_unsafe(file),)
    return once.text, ()


def _same_lines(layout: YamlLayout, text: str) -> bool:
    """Whether a text has the same lines but for empty ones and for blanks at their ends. These mean
    something only inside of values of several lines."""
    if layout.several_lines:
        return False
    before = (line.rstrip(_BLANKS) for line in layout.lines)
    return list(filter(None, before)) == list(filter(None, text.split("\n")))


def _unsafe(file: str) -> Diagnostic:
    return Diagnostic(
        code="format_unsafe",
        summary="formatting would change what the file says, so it stays as it is",
        place=Place(file, 1, 1),
        hint="format it by hand; please report it with the file: this is a fault of sgpu",
    )


@dataclass(slots=True, frozen=True)
class _Rewritten:
    """A text, what it says, and its comments, each with the number of values before it."""

    text: str
    values: list[object]
    comments: list[tuple[int, str]]


@dataclass(slots=True, frozen=True)
class _Level:
    """An open collection that is written by indentation: its column before and after."""

    old: int
    new: int
    is_sequence: bool


class _Writer:
    """Writes a text line by line. Comments and empty lines wait for the line that follows them,
    which says how deep they belong."""

    def __init__(self, layout: YamlLayout) -> None:
        self._layout = layout
        self._lines = layout.lines
        self._levels: list[_Level] = []
        self._closed: list[_Level] = []  # those that ended since the last line with a value
        self._opened: _Level | None = (
            None  # what the last line may have begun: it ends in `:` or `-`
        )
        self._waiting: list[tuple[int, str]] = []
        self._out: list[str] = []
        self._comments: list[tuple[int, str]] = []
        self._count = 0

    def rewritten(self) -> _Rewritten:
        lines, counts = self._lines, self._layout.counts
        number, total = 0, len(lines)
        while number < total:
            line = lines[number]
            content = line.lstrip(_BLANKS)
            column = len(line) - len(content)
            if not content:
                self._waiting.append((-1, ""))
            elif content[0] == "#":
                self._waiting.append((column, self._comment(content)))
            else:
                self._count = counts[number] or self._count
                number = self._value(number, column)
            number += 1
        self._closed = self._levels
        self._flush(-1, 0)
        end = "\n" if self._out and not self._layout.open_end else ""
        return _Rewritten("\n".join(self._out) + end, self._layout.values, self._comments)

    def _comment(self, text: str) -> str:
        comment = text.rstrip(_BLANKS)
        self._comments.append((self._count, comment))
        return comment

    def _value(self, number: int, column: int) -> int:
        """Write the line with a value, and the further lines of that; return the last of them."""
        layout, line = self._layout, self._lines[number]
        if column == 0 and _OUTSIDE.match(line):
            self._closed, self._levels = self._levels, []
            indent, start, prefix, opened = 0, 0, "", None
        else:
            indent, start, prefix, opened = self._start(number, column)
        self._flush(column, indent)
        self._opened = opened
        rest = self._rest(number, start)
        self._out.append(" " * indent + (prefix + rest if rest else prefix.rstrip(_BLANKS)))
        if number in layout.block_texts:
            return self._block_text(number, layout.block_texts[number])
        if number not in layout.last_lines:
            return number
        shift = indent - column
        bracket = layout.brackets.get(number)
        aligned = shift
        if bracket is not None:
            moved = indent + len(prefix) + len(self._edited(number, start, bracket))
            aligned = moved - bracket
        self._continuation(number, bracket, shift, aligned)
        return layout.last_lines[number]

    def _start(self, number: int, column: int) -> tuple[int, int, str, _Level | None]:
        """The new column of a line; where its content begins after each `- `; these; and the
        collection that it may begin."""
        line, key = self._lines[number], self._layout.key_starts.get(number)
        self._closed = []
        indent, prefix = None, ""
        level: _Level | None = None
        while line[column : column + 1] not in ("", "#"):
            mark = line[column]
            if mark in "-?:" and line[column + 1 : column + 2] in ("", " ", "\t"):
                level = self._level(column, is_sequence=mark == "-")
                indent = level.new if indent is None else indent
                prefix += mark + " "
                column = len(line) - len(line[column + 1 :].lstrip(_BLANKS))
                continue
            if column == key:
                level = self._level(column, is_sequence=False)
                indent = level.new if indent is None else indent
                end = self._layout.keys.get(number, [column])[0]
                is_open = line[end:].strip(_BLANKS) == ":" or ": #" in line[end:]
                return indent, column, prefix, level if is_open else None
            self._close(column)
            new = self._levels[-1].new + _STEP if self._levels else 0
            return new if indent is None else indent, column, prefix, None
        return indent or 0, column, prefix, level

    def _close(self, column: int) -> None:
        """End the collections that a value in this column cannot belong to."""
        while self._levels and self._levels[-1].old >= column:
            self._closed.append(self._levels.pop())

    def _level(self, column: int, *, is_sequence: bool) -> _Level:
        """The collection that an item or a key in this column belongs to. The items of a list may
        stand in the column of the key above them."""
        levels = self._levels
        while levels and (
            levels[-1].old > column
            or (levels[-1].old == column and levels[-1].is_sequence and not is_sequence)
        ):
            self._closed.append(levels.pop())
        if not levels or levels[-1].old < column or levels[-1].is_sequence is not is_sequence:
            new = levels[-1].new + _STEP if levels else 0
            levels.append(_Level(column, new, is_sequence))
        return levels[-1]

    def _flush(self, column: int, new: int) -> None:
        """Write the comments and empty lines that waited for a line in this column, whose new one
        is `new`. A comment goes with that line, unless it stands as deep as what ended before."""
        is_empty = False
        for old, comment in self._waiting:
            if old < 0:
                is_empty = bool(self._out and self._out[-1])
                continue
            if is_empty:
                self._out.append("")
                is_empty = False
            indent = new
            if old > column:
                levels = [level for level in self._closed if level.old <= old]
                indent = max((level.new for level in levels), default=new)
                if self._opened is not None and old > self._opened.old:
                    indent = max(indent, self._opened.new + _STEP)
            self._out.append(" " * indent + comment)
        if is_empty and column >= 0:
            self._out.append("")
        self._waiting.clear()

    def _rest(self, number: int, start: int) -> str:
        """A line from `start` on, with one space before its comment."""
        line, layout = self._lines[number], self._layout
        if number + 1 in layout.inside:
            return self._edited(number, start, len(line))
        comment = line.find("#", max(start, layout.ends[number]))
        if comment < 0:
            return self._edited(number, start, len(line)).rstrip(_BLANKS)
        text = self._edited(number, start, comment).rstrip(_BLANKS)
        shown = self._comment(line[comment:])
        return f"{text} {shown}" if text else shown

    def _edited(self, number: int, start: int, end: int) -> str:
        """A part of a line with one space after the `:` of each key."""
        line, keys = self._lines[number], self._layout.keys.get(number)
        if keys is None:
            return line[start:end]
        parts: list[str] = []
        for key in keys:
            if line.startswith(": ", key) and line[key + 2 : key + 3] not in _AFTER_COLON:
                continue  # it is right
            colon = _COLON.match(line, key)
            if colon is None or key > end:
                continue
            after = line[colon.end() : colon.end() + 1]
            # Without the space, `{a: }` would be the text `a:`.
            is_empty = after in ("", "#") or (after in ",]}" and colon[0].endswith(":"))
            parts += line[start:key], ":" if is_empty else ": "
            start = colon.end()
        return "".join(parts) + line[start:end]

    def _continuation(self, number: int, bracket: int | None, shift: int, aligned: int) -> None:
        """Write the further lines of quoted or plain text, or of brackets. What stands right of the
        bracket stays aligned with it."""
        layout = self._layout
        text_indent = self._levels[-1].new + _STEP if self._levels else 0
        for line in range(number + 1, layout.last_lines[number] + 1):
            content = self._lines[line].lstrip(_BLANKS)
            column = len(self._lines[line]) - len(content)
            self._count = layout.counts[line] or self._count
            if not content:
                if line in layout.inside or self._out[-1]:
                    self._out.append("")
                continue
            indent = text_indent
            if bracket is not None:
                indent = max(column + (aligned if column > bracket else shift), 0)
            self._out.append(" " * indent + self._rest(line, column))

    def _block_text(self, number: int, block: BlockText) -> int:
        """Write the lines of a `|` or `>` as they are, but for their indentation. Return the last
        of them: empty lines below count as text only where the `+` says it."""
        lines = self._lines[number + 1 : block.last + 1]
        parent = self._levels[-1] if self._levels else _Level(0, 0, is_sequence=False)
        if block.digit:
            old, new = parent.old + block.digit, parent.new + block.digit
        else:
            longest = max(lines, key=len, default="")  # of empty lines alone
            first = next((line for line in lines if line.strip(" ")), longest)
            old = len(first) - len(first.lstrip(" "))
            new = parent.new + _STEP if self._levels else 0
        while lines and not block.keeps_empty_lines and not lines[-1][old:]:
            if lines[-1].strip(" "):
                break
            lines.pop()
        for line in lines:
            self._out.append(" " * new + line[old:] if line[old:] or line.strip(" ") else "")
        return number + len(lines)
