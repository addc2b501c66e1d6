"""Patterns of ignore files, as git reads and matches them.

This follows `dir.c` (`parse_path_pattern`, `match_basename`, `match_pathname`) and `wildmatch.c` of
git, byte by byte. `tests/code/test_git_rules.py` compares it with git itself.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

_SPECIAL = re.compile(rb"[*?\[\\]")
_CLASSES = {
    b"alnum": re.compile(rb"[A-Za-z0-9]"),
    b"alpha": re.compile(rb"[A-Za-z]"),
    b"blank": re.compile(rb"[ \t]"),
    b"cntrl": re.compile(rb"[\x00-\x1f\x7f]"),
    b"digit": re.compile(rb"[0-9]"),
    b"graph": re.compile(rb"[!-~]"),
    b"lower": re.compile(rb"[a-z]"),
    b"print": re.compile(rb"[ -~]"),
    b"punct": re.compile(rb"[!-/:-@\[-`{-~]"),
    b"space": re.compile(rb"[ \t\n\v\f\r]"),
    b"upper": re.compile(rb"[A-Z]"),
    b"xdigit": re.compile(rb"[0-9A-Fa-f]"),
}
_NEVER = rb"(?!)"


class Pattern(NamedTuple):
    """One line of an ignore file; `file` is relative to the root of the code. A pattern of the YAML
    has no file."""

    text: str
    file: str | None = None
    line: int | None = None

    @property
    def negative(self) -> bool:
        return self.text.startswith("!")


def patterns_of(content: str | Iterable[str], file: str | None = None) -> tuple[Pattern, ...]:
    """The patterns of an ignore file, by its whole text, or of a field of the YAML."""
    lines = content.removeprefix("\ufeff").split("\n") if isinstance(content, str) else content
    shown = (line.removesuffix("\r") for line in lines)
    return tuple(
        Pattern(line, file, number if file is not None else None)
        for number, line in enumerate(shown, 1)
        if line.strip(" ") and not line.startswith("#")
    )


class PatternList:
    """The patterns of one ignore file. The last one that matches decides.

    Args:
        ignore_case: `core.ignoreCase` of the repository.
    """

    def __init__(self, patterns: Sequence[Pattern], *, ignore_case: bool = False) -> None:
        self._ignore_case = ignore_case
        self._rules = [
            (pattern, rule)
            for pattern in reversed(patterns)
            if (rule := _rule(pattern.text, ignore_case)) is not None
        ]
        # Most entries match nothing: one search says so.
        self._any_name = _any(rule.regex for _, rule in self._rules if rule.by_name)
        self._any_path = _any(rule.regex for _, rule in self._rules if not rule.by_name)

    def match(
        self, path: str, *, folder: bool, without: bool = False, after: Pattern | None = None
    ) -> Pattern | None:
        """The pattern that decides about an entry itself, whatever holds for the folders above it.

        Args:
            path: relative to the folder of the ignore file, with `/`.
            without: pass over patterns that ignore, as git does for a file of its index.
            after: only what stands before this pattern.
        """
        whole = os.fsencode(path)
        if self._ignore_case:
            whole = whole.lower()
        name = whole.rpartition(b"/")[2]
        if not self._any_name.match(name) and not self._any_path.match(whole):
            return None
        waiting = after is not None
        for pattern, rule in self._rules:
            if waiting:
                waiting = pattern != after
            elif without and not pattern.negative:
                continue
            elif (folder or not rule.folders) and rule.regex.match(name if rule.by_name else whole):
                return pattern
        return None


@dataclass(frozen=True, slots=True)
class _Rule:
    """`folders`: it matches folders alone. `by_name`: it is matched against the last part of a
    path, and else against all of it."""

    regex: re.Pattern[bytes]
    folders: bool
    by_name: bool


def bad_pattern(pattern: str) -> str | None:
    """The error in a pattern; `None` if it can match something."""
    rule = _rule(pattern, False)  # noqa: FBT003
    return None if rule is not None and _NEVER not in rule.regex.pattern else "it matches nothing"


@lru_cache(maxsize=4096)
def _rule(text: str, ignore_case: bool) -> _Rule | None:  # noqa: FBT001 - cached by its arguments
    """Compile a line of an ignore file; `None` for one that matches nothing."""
    pattern = _without_trailing_spaces(os.fsencode(text.partition("\0")[0])).removeprefix(b"!")
    folders = pattern.endswith(b"/")
    pattern = pattern[:-1] if folders else pattern
    if not pattern:
        return None
    by_name = b"/" not in pattern
    pattern = pattern if by_name else pattern.removeprefix(b"/")
    special = _SPECIAL.search(pattern)
    start = special.start() if special else len(pattern)
    # git compares the plain start first, and what follows is a pattern of its own.
    plain = pattern[:start].lower() if ignore_case else pattern[:start]
    regex = re.escape(plain) + _translated(pattern[start:], ignore_case=ignore_case)
    return _Rule(re.compile(regex + rb"\Z", re.DOTALL), folders, by_name)


def _without_trailing_spaces(line: bytes) -> bytes:
    """A space that a backslash stands before stays."""
    position, end = 0, None
    while position < len(line):
        if line[position] == 0x20:
            end = position if end is None else end
        else:
            end = None
            if line[position] == 0x5C:
                position += 1
                if position == len(line):
                    return line
        position += 1
    return line if end is None else line[:end]


def _translated(pattern: bytes, *, ignore_case: bool) -> bytes:
    """The regular expression of a pattern; one that never matches where git gives up on it."""
    regex = []
    position = 0
    while position < len(pattern):
        match pattern[position : position + 1]:
            case b"\\":
                if position + 1 == len(pattern):
                    return _NEVER
                regex.append(re.escape(pattern[position + 1 : position + 2]))
                position += 2
            case b"?":
                regex.append(b"[^/]")
                position += 1
            case b"*":
                stars, position = _stars(pattern, position)
                regex.append(stars)
            case b"[":
                chosen, position = _class(pattern, position, ignore_case=ignore_case)
                if chosen is None:
                    return _NEVER
                regex.append(chosen)
            case plain:  # git folds these alone: no escaped byte, and no member of a class
                regex.append(re.escape(plain.lower() if ignore_case else plain))
                position += 1
    return b"".join(regex)


def _stars(pattern: bytes, start: int) -> tuple[bytes, int]:
    """`**` between slashes spans folders; any other number of stars stays within one."""
    end = start
    while pattern[end : end + 1] == b"*":
        end += 1
    if end - start == 1:
        return b"[^/]*", end
    rest = pattern[end:]
    at_start = start == 0 or pattern[start - 1 : start] == b"/"
    if not at_start or not (not rest or rest.startswith((b"/", b"\\/"))):
        return b"[^/]*", end
    if rest.startswith(b"/"):
        return b"(?:.*/)?", end + 1
    return b".*", end


def _class(pattern: bytes, start: int, *, ignore_case: bool) -> tuple[bytes | None, int]:
    """A class such as `[a-z]`, and where it ends; no class where git gives up on the pattern."""
    position = start + 1
    negated = pattern[position : position + 1] in (b"!", b"^")
    position += negated
    chosen: set[int] = set()
    before = b""
    first = True
    while True:
        mark = pattern[position : position + 1]
        if not mark:
            return None, position
        if mark == b"]" and not first:
            break
        first = False
        last = mark
        if mark == b"\\":
            position += 1
            last = pattern[position : position + 1]
            if not last:
                return None, position
            chosen.add(last[0])
        elif mark == b"-" and before and pattern[position + 1 : position + 2] not in (b"", b"]"):
            position += 1
            end = pattern[position : position + 1]
            if end == b"\\":
                position += 1
                end = pattern[position : position + 1]
                if not end:
                    return None, position
            chosen.update(_span(before[0], end[0], ignore_case=ignore_case))
            last = b""
        elif mark == b"[" and pattern[position + 1 : position + 2] == b":":
            closing = pattern.find(b"]", position + 2)
            if closing < 0:
                return None, position
            name = pattern[position + 2 : closing - 1]
            if closing - position < 3 or pattern[closing - 1 : closing] != b":":
                chosen.add(mark[0])
            else:
                known = _CLASSES.get(name)
                if known is None:
                    return None, position
                chosen.update(_members(known, name, ignore_case=ignore_case))
                position, last = closing, b""
        else:
            chosen.add(mark[0])
        before = last
        position += 1
    taken = (set(range(1, 256)) - chosen if negated else chosen) - {0x2F}
    body = b"".join(b"\\x%02x" % byte for byte in sorted(taken))
    return (b"[" + body + b"]" if body else _NEVER), position + 1


def _span(first: int, last: int, *, ignore_case: bool) -> set[int]:
    span = set(range(first, last + 1))
    if ignore_case:
        span |= {byte + 32 for byte in span if 0x41 <= byte <= 0x5A}
    return span


def _members(known: re.Pattern[bytes], name: bytes, *, ignore_case: bool) -> set[int]:
    if ignore_case and name == b"upper":
        known = _CLASSES[b"lower"]
    return {byte for byte in range(1, 256) if known.match(bytes([byte]))}


def _any(regexes: Iterable[re.Pattern[bytes]]) -> re.Pattern[bytes]:
    joined = b"|".join(b"(?:" + regex.pattern + b")" for regex in regexes)
    return re.compile(joined or _NEVER, re.DOTALL)
