"""What a YAML file holds: values that know where they were written, and what an unquoted scalar
means, by the core schema of YAML 1.2.

PyYAML follows YAML 1.1, where `on` is true, `010` is 8 and `1:30` is 90. Here they are text, 10
and text. Source: https://yaml.org/spec/1.2.2/#1032-tag-resolution

Nodes are never changed once read: an override or a resolved reference makes new ones, so that
aliases may share a node.
"""

import re
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass

Value: TypeAlias = bool | int | float | str | None

_INFINITE = (".inf", ".Inf", ".INF")
_WORDS: dict[str, bool | float | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True,
    "false": False, "False": False, "FALSE": False,
    **{sign + dot: float(sign + "inf") for sign in ("", "+", "-") for dot in _INFINITE},
    ".nan": float("nan"), ".NaN": float("nan"), ".NAN": float("nan"),
}  # fmt: skip
_INT = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_MAY_START_VALUE = frozenset("+-.0123456789~nNtTfF")
# Python refuses to read longer integers for good reason: the time grows with the square.
_LONGEST = 1000


def resolve(text: str) -> Value:
    """Return what the unquoted `text` means. Numbers of more than 1,000 characters stay text."""
    if text and text[0] not in _MAY_START_VALUE:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _LONGEST or text[0] in "nNtTfF~":
        return text
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    return text


def is_null(text: str) -> bool:
    return text in _WORDS and _WORDS[text] is None


class Scalar(NamedTuple):
    """`text` as written; `plain` where it was unquoted, so that it may mean a number, a boolean or
    null. `before` is the node that an override replaced, `filled` has the values that references in
    it stood for. A tuple, for a file may hold a million.
    """

    text: str
    plain: bool
    line: int
    column: int
    file: str
    before: "Node | None" = None
    filled: "tuple[Scalar, ...]" = ()


@dataclass(slots=True, frozen=True)
class Sequence:
    """`reference` is the value that stood in its place: `${var.steps}`."""

    items: "tuple[Node, ...]"
    line: int
    column: int
    file: str
    before: "Node | None" = None
    reference: Scalar | None = None


@dataclass(slots=True, frozen=True)
class Mapping:
    """`keys` has the place of every key of `entries`; `reference` is as in `Sequence`."""

    entries: "dict[str, Node]"
    keys: dict[str, Place]
    line: int
    column: int
    file: str
    before: "Node | None" = None
    reference: Scalar | None = None


Node: TypeAlias = Scalar | Sequence | Mapping


@dataclass(slots=True, frozen=True, kw_only=True)
class Document:
    """A file that was read. `source` is its text without a byte order mark; `nodes` counts its
    values with aliases written out."""

    file: str
    source: str
    root: Mapping
    nodes: int
    size: int


def place_of(node: Node) -> Place:
    return Place(node.file, node.line, node.column)


def children(node: Node) -> tuple[Node, ...]:
    """The values directly inside a node."""
    if isinstance(node, Mapping):
        return tuple(node.entries.values())
    return node.items if isinstance(node, Sequence) else ()


def is_nothing(node: Node | None) -> bool:
    """Whether a value is not given: it is missing, empty or `null`."""
    return node is None or (isinstance(node, Scalar) and node.plain and is_null(node.text))


def without_keys(node: Mapping, *keys: str) -> Mapping:
    """A mapping that lacks some keys; itself if it has none of them."""
    if node.entries.keys().isdisjoint(keys):
        return node
    entries = {name: below for name, below in node.entries.items() if name not in keys}
    return replace(node, entries=entries)


def without(node: Mapping, key: str) -> tuple[Mapping, Node | None]:
    """A mapping that lacks one key, and the value that it had there."""
    if key not in node.entries:
        return node, None
    entries = {name: below for name, below in node.entries.items() if name != key}
    return replace(node, entries=entries), node.entries[key]
