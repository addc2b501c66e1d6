"""The expansions that a shell makes in a text: `${NAME}` outside of single quotes, comments and
here-documents with a quoted end. By the Bash Reference Manual, sections 3.1.2 (quoting), 3.5.3
(parameter expansion) and 3.6.6 (here-documents)."""

import re
import shlex
from collections.abc import Iterator, Sequence

from sgpu_decl.frozen_dataclass import dataclass

SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=")
"""The begin of a word that sets a variable."""
_PLAIN_NAMES = SHELLS - {"ksh"}  # in a `ksh`, a name may have a dot
_WITH_A_VALUE = frozenset({"--rcfile", "--init-file"})
_HERE = re.compile(r"<<(-?)[ \t]*(?:'([^'\n]*)'|\"([^\"\n]*)\"|(\\?[^\s;&|<>()'\"]+))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """`text` is all of it, from `${`; without an end, it goes on to the end of its line."""

    text: str
    ended: bool


def shell_tokens(text: str) -> Iterator[str]:
    """The words and operators of a text. Raises ValueError at a quote without its end."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return lexer


def shell_words(command: Sequence[str]) -> Iterator[int]:
    """The positions of those words of a command that a shell in it reads as a script: in
    `bash -euo pipefail -c TEXT`, that of the text."""
    for start, word in enumerate(command):
        if word.rpartition("/")[2] in _PLAIN_NAMES:
            position = _script_after(command, start + 1)
            if position is not None:
                yield position


def _script_after(command: Sequence[str], at: int) -> int | None:
    """The position of the script of a shell whose options begin at `at`."""
    reads_text = False
    while at < len(command) and command[at][:1] in ("-", "+") and command[at] not in ("-", "--"):
        word = command[at]
        short = "" if word.startswith("--") else word[1:]
        reads_text = reads_text or "c" in short
        at += 1 + short.lower().count("o") + (word in _WITH_A_VALUE)
    at += at < len(command) and command[at] in ("-", "--")
    return at if reads_text and at < len(command) else None


def expansions(text: str) -> Iterator[Expansion]:
    """The `${…}` that a shell expands, in order. Those inside of another one are no expansions of
    their own: `${A:-${b.c}}` is none of `${b.c}` while `A` has a value."""
    at, quoted = 0, False
    outer: list[tuple[bool, int]] = []  # of each open `$(`: whether it is in quotes, and its depth
    depth = 0
    documents: list[tuple[str, bool, bool]] = []
    while at < len(text):
        letter = text[at]
        if (after := _literal_end(text, at, quoted=quoted)) is not None:
            at = after
        elif letter == '"':
            quoted = not quoted
            at += 1
        elif text.startswith("${", at):
            end = _end(text, at + 2, quoted=quoted)
            yield Expansion(text=text[at : end or _line_end(text, at)], ended=end is not None)
            at = end or len(text)
        elif text.startswith("$(", at):
            outer.append((quoted, depth))
            quoted, depth = False, 0
            at += 2
        elif letter in "()" and not quoted:
            if letter == ")" and depth == 0 and outer:
                quoted, depth = outer.pop()
            else:
                depth = max(0, depth + (1 if letter == "(" else -1))
            at += 1
        elif not quoted and (here := _HERE.match(text, at)) is not None:
            literal = here[4] is None or here[4].startswith("\\")
            name = next(item for item in here.groups()[1:] if item is not None)
            documents.append((name.removeprefix("\\"), literal, here[1] == "-"))
            at = here.end()
        elif letter == "\n" and documents and not quoted:
            at += 1
            for name, literal, indented in documents:
                body, at = _document(text, at, name, indented=indented)
                yield from () if literal else _in_document(body)
            documents = []
        else:
            at += 1


def _literal_end(text: str, at: int, *, quoted: bool) -> int | None:
    """The position after what a shell takes as it is, or does not read: a letter after a backslash,
    text in single quotes, a comment; `None` if there is none."""
    letter = text[at]
    if letter == "\\":
        return at + 2
    if quoted:
        return None
    if letter == "'":
        return _after(text, "'", at + 1)
    if text.startswith("$'", at):
        return _after_ansi(text, at + 2)
    if letter == "#" and (at == 0 or text[at - 1] in " \t\n;&|()"):
        return _line_end(text, at)
    return at + 3 if text.startswith("<<<", at) else None


def _after(text: str, mark: str, at: int) -> int:
    found = text.find(mark, at)
    return len(text) if found < 0 else found + 1


def _line_end(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found


def _after_ansi(text: str, at: int) -> int:
    while at < len(text) and text[at] != "'":
        at += 2 if text[at] == "\\" else 1
    return at + 1


def _end(text: str, at: int, *, quoted: bool) -> int | None:
    """The position after the `}` of an expansion that has begun before `at`."""
    open_braces, inner = 1, False
    while at < len(text):
        letter = text[at]
        if letter == "\\":
            at += 2
            continue
        if letter == "'" and not quoted and not inner:
            at = _after(text, "'", at + 1)
            continue
        if letter == '"':
            inner = not inner
        elif text.startswith("${", at):
            open_braces += 1
            at += 1
        elif letter == "}":
            open_braces -= 1
            if open_braces == 0:
                return at + 1
        at += 1
    return None


def _document(text: str, at: int, name: str, *, indented: bool) -> tuple[str, int]:
    """The body of a here-document that begins at `at`, and the position after its end. Without an
    end it is none: `$((1 << n))`."""
    start = at
    while at < len(text):
        end = _line_end(text, at)
        line = text[at:end]
        if (line.lstrip("\t") if indented else line) == name:
            return text[start:at], end
        at = end + 1
    return "", start


def _in_document(body: str) -> Iterator[Expansion]:
    at = 0
    while at < len(body):
        if body[at] == "\\":
            at += 2
        elif body.startswith("${", at):
            end = _end(body, at + 2, quoted=True)
            yield Expansion(text=body[at : end or _line_end(body, at)], ended=end is not None)
            at = end or len(body)
        else:
            at += 1
