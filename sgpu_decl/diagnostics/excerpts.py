"""A finding as text, with the line it is about:

error[unknown_key]: unknown key `gpu`
  --> run.yaml:3:1
   |
 3 | gpu: 4
   | ^
hint: did you mean `gpus`?
"""

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.escapes import printable
from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.diagnostics.place import Place

# The line breaks of YAML 1.1, which libyaml counts; `str.splitlines` knows more.
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_WIDTH = 100
_KEY_LINES = 100


def excerpt(
    diagnostic: Diagnostic,
    source: str,
    *,
    marked: Callable[[str], str] = str,
    fitted: Callable[[str], str] = str,
) -> str:
    """Return the finding as lines of text, without a line break at the end.

    Args:
        source: the text of the file that the places name. A place that lies outside it (another
            file, the command line) is named without an excerpt.
        marked: gives the colour of the finding to its code and its caret.
        fitted: breaks a long sentence into lines.
    """
    head = f"{diagnostic.severity}[{diagnostic.code}]"
    first = fitted(f"{head}: {printable(mask(diagnostic.summary))}")
    lines = [marked(head) + first.removeprefix(head)]
    home = diagnostic.place.file if diagnostic.place else None
    if diagnostic.place is not None:
        lines += _shown(diagnostic.place, source, marked)
    for other in diagnostic.related:
        text = source if other.place.file == home else ""
        lines.append(fitted(f"note: {printable(mask(other.note))}"))
        lines += _shown(other.place, text, marked)
    if diagnostic.hint:
        lines.append(fitted(f"hint: {printable(mask(diagnostic.hint))}"))
    return "\n".join(lines)


def _shown(place: Place, source: str, marked: Callable[[str], str]) -> list[str]:
    if place.is_option:  # it has no lines
        return [f"  --> {printable(mask(place.file))}"]
    head = f"  --> {printable(place.file)}:{place.line}:{place.column}"
    lines = _lines(source)
    if not 1 <= place.line <= len(lines) or not source:
        return [head]
    line = _hidden_if_key(lines, place.line - 1)
    at = len(mask(lines[place.line - 1][: place.column - 1]))
    start = max(0, at - _WIDTH // 2) if len(line) > _WIDTH else 0
    piece = line[start : start + _WIDTH]
    before = printable(piece[: at - start])
    more, ended = "…" if start else "", "…" if start + _WIDTH < len(line) else ""
    number = str(place.line)
    gutter = " " * (len(number) + 2)
    return [
        head,
        f"{gutter}|",
        f" {number} | {more}{printable(piece)}{ended}".rstrip(),
        f"{gutter}| {' ' * (len(more) + _cells(before))}{marked('^')}",
    ]


def _hidden_if_key(lines: tuple[str, ...], index: int) -> str:
    """The line, masked; a line inside a PEM private key is hidden whole."""
    for earlier in range(index - 1, max(-1, index - _KEY_LINES), -1):
        if "-----END" in lines[earlier]:
            break
        if "PRIVATE KEY-----" in lines[earlier]:
            return "***"
    return mask(lines[index])


def _cells(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) != 0 for char in text)


@lru_cache(maxsize=2)
def _lines(source: str) -> tuple[str, ...]:
    return tuple(_BREAK.split(source))
