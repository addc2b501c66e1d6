"""The expansions that a shell makes in a text: `${NAME}` outside of single quotes, comments and
here-documents with a quoted end. By the Bash Reference Manual, sections 3.1.2 (quoting), 3.5.3
(parameter expansion) and 3.6.6 (here-documents).

And where such a text stands that no shell reads: programs get `$HOME/data`, `${DATA:-/tmp}` and
`~/data` as they are written. Only words that a shell would have taken as a path or a name are told:
a sentence, a program for awk or a pattern may have a `$` of its own.
"""

import re
import shlex
from collections.abc import Iterator, Sequence

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.tokens import names_secret
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.text.yaml_nodes import Mapping, Node, Scalar, place_of
from sgpu_decl.text.yaml_nodes import Sequence as Items

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


_VARIABLE = re.compile(r"\$(?:\{([A-Z][A-Z0-9_]+)(?::?[-=?+][^{}]*)?\}|([A-Z][A-Z0-9_]+)\b)")
_HOME = re.compile(r"~/")
_WORD = re.compile(r"[\w./:=,@%+~-]*")
_SHELLS = SHELLS | {"fish", "ssh"}
# What only a rank knows, so that no reference of ours could stand for it.
_OF_RANKS = re.compile(
    r"(LOCAL_|GROUP_|NODE_|ROLE_)?(RANK|WORLD_SIZE)|NUM_NODES|MASTER_(ADDR|PORT)|(SGPU|TORCHELASTIC)_.*"
)


def has_shell_references(text: str) -> bool:
    """Whether there may be one in a text: what costs least to know of a whole file."""
    return "~" in text or _VARIABLE.search(text) is not None


def shell_references(root: Mapping, *, project: bool) -> Iterator[Diagnostic]:
    """One warning for each value of a run with one, where its program gets it unread.

    Args:
        project: the root is that of a project, with runs by their names under `runs`.
    """
    if not project:
        yield from _of_run(root)
        return
    runs, defaults = root.entries.get("runs"), root.entries.get("defaults")
    blocks = [*runs.entries.values()] if isinstance(runs, Mapping) else []
    if isinstance(defaults, Mapping) and "run" in defaults.entries:
        blocks.append(defaults.entries["run"])
    for block in (*blocks, root.entries.get("functions")):
        if isinstance(block, Mapping):
            yield from _of_run(block)


def _of_run(run: Mapping) -> Iterator[Diagnostic]:
    for field in ("args", "matrix", "parameters"):
        yield from _inside(run.entries.get(field))
    command, env = run.entries.get("command"), run.entries.get("env")
    if isinstance(command, Items) and not any(map(_starts_shell, command.items)):
        yield from _inside(command)
    if isinstance(env, Mapping):
        yield from _inside(env.entries.get("variables"))


def _starts_shell(node: Node) -> bool:
    return isinstance(node, Scalar) and node.text.rpartition("/")[2] in _SHELLS


def _inside(node: Node | None) -> Iterator[Diagnostic]:
    if isinstance(node, Scalar):
        yield from _of_scalar(node)
    elif isinstance(node, Items):
        for item in node.items:
            yield from _inside(item)
    elif isinstance(node, Mapping):
        for value in node.entries.values():
            yield from _inside(value)


def _of_scalar(node: Scalar) -> Iterator[Diagnostic]:
    text = node.text
    names = [braced or plain for braced, plain in _VARIABLE.findall(text)]
    if not names and not _HOME.match(text):
        return
    if not _WORD.fullmatch(_VARIABLE.sub("", text)):
        return
    match = _VARIABLE.search(text)
    yield Diagnostic(
        code="shell_reference",
        severity=Severity.WARNING,
        summary=f"no shell reads this: `{match[0][:80] if match else '~/'}` stays as it is",
        place=place_of(node),
        hint=_hint(names[0] if names else "HOME"),
    )


def _hint(name: str) -> str:
    if _OF_RANKS.fullmatch(name):
        return f"read `{name}` from the environment in your program, or write a text `command`"
    if names_secret(name):
        return f"give it by `env.secrets`, as `env:{name}`, and read it in your program"
    return f"write `${{env.{name}}}` for the value that it has where sgpu is called"
