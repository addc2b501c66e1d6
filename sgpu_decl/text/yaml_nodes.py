"""What a YAML file holds, before it means anything: values that know where they were written.

Nodes are never changed once read: an override or a resolved reference makes new ones, so that
aliases may share a node.
"""

from dataclasses import replace
from typing import NamedTuple, TypeAlias

from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.text.core_schema import is_null


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
