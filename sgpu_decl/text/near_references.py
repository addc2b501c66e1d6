"""Misspelt references: `${vars.lr}`, `${ var.lr }`, `${{ matrix.lr }}`.

They are not filled in. A shell reports them, so text for a shell is not checked here. In other
fields nothing else would report them."""

import re
from collections.abc import Iterator

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.text.interpolation import SPACES
from sgpu_decl.text.yaml_nodes import Mapping, Node, Scalar, Sequence, place_of

_DOTTED = re.compile(r"\$\{\{?\s*([A-Za-z_]{2,20})\s*\.\s*([A-Za-z0-9_]+)\s*\}?\}")
_OUTPUT = re.compile(r"\$\{\{?\s*runs?\s*\.\s*([A-Za-z0-9_-]+)\s*\.\s*output(?:s|_dir)?\s*\}?\}")
_OTHER_NAMES = {
    "vars": "var", "variable": "var", "variables": "var",
    "envs": "env", "environ": "env", "environment": "env",
}  # fmt: skip
_LONG = 6  # letters of a name that may have another one in it; three are soon another word
# The fields of a run whose values a program gets as they are, and those that a shell may read.
_ARGUMENTS = frozenset({"args", "matrix", "parameters"})
_SHELL = "command"


def has_near_references(text: str) -> bool:
    """Whether a text has one: a quick check of a whole file."""
    return "${" in text and any(_misspelt(text))


def near_references(root: Mapping, *, runs: bool) -> Iterator[Diagnostic]:
    """One finding for each value with one: an error in arguments, else a warning.

    Args:
        runs: the root is that of a project, with runs by their names under `runs`.
    """
    yield from _inside(root, (), runs=runs)


def _inside(node: Node, path: tuple[str, ...], *, runs: bool) -> Iterator[Diagnostic]:
    if isinstance(node, Scalar):
        yield from _of_scalar(node, path, runs=runs)
    elif isinstance(node, Sequence):
        for item in node.items:
            yield from _inside(item, path, runs=runs)
    else:
        for key, value in node.entries.items():
            yield from _inside(value, (*path, key), runs=runs)


def _of_scalar(node: Scalar, path: tuple[str, ...], *, runs: bool) -> Iterator[Diagnostic]:
    if "${" not in node.text:
        return
    in_run = (runs and path[:1] == ("runs",)) or path[:2] == ("defaults", "run")
    field = path[2:3] if in_run else path[:1]
    if field == (_SHELL,):
        return
    for written, meant in _misspelt(node.text):
        error = bool(field) and field[0] in _ARGUMENTS
        yield Diagnostic(
            code="near_reference",
            severity=Severity.ERROR if error else Severity.WARNING,
            summary=f"`{written[:80]}` is not a reference, so it is not filled in",
            place=place_of(node),
            hint=f"did you mean `{meant}`?",
        )
        return


def _misspelt(text: str) -> Iterator[tuple[str, str]]:
    """What is not a reference, and the one that was probably meant."""
    for match in _DOTTED.finditer(text):
        if (meant := _meant(match)) is not None:
            yield match[0], meant
    for match in _OUTPUT.finditer(text):
        meant = f"${{run.{match[1]}.output}}"
        if meant != match[0]:
            yield match[0], meant


def _meant(match: re.Match[str]) -> str | None:
    """The reference that was probably meant; `None` for a right one, or one of another program."""
    space, name = match.groups()
    known = space if space in SPACES else _near(space.lower())
    meant = f"${{{known}.{name}}}"
    return None if known is None or meant == match[0] else meant


def _near(word: str) -> str | None:
    if word in SPACES or word in _OTHER_NAMES:
        return _OTHER_NAMES.get(word, word)
    return next((space for space in SPACES if _alike(word, space)), None)


def _alike(word: str, space: str) -> bool:
    """Whether one is the other but for letters that are doubled or in another order, or in a long
    name any one letter. `bar`, `vae` and `metric` are words of their own."""
    doubled = len(set(word)) < len(word) and set(word) == set(space)
    if doubled or sorted(word) == sorted(space):
        return True
    return len(space) >= _LONG and _distance(word, space) == 1


def _distance(one: str, other: str) -> int:
    """How many letters have to be put in, left out or replaced."""
    row = list(range(len(other) + 1))
    for count, letter in enumerate(one, start=1):
        before, row[0] = row[0], count
        for index, its in enumerate(other, start=1):
            changed = before + (letter != its)
            before, row[index] = row[index], min(changed, row[index] + 1, row[index - 1] + 1)
    return row[-1]
