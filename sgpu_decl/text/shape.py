"""Which names a document may have where, and where its scalars are text.

The shape of a run is derived once from the models of the config; this room knows only the value.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import NamedTuple

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.text import yaml_nodes
from sgpu_decl.text.yaml_nodes import is_null


class OtherToolKey(NamedTuple):
    """A name that another tool has for `fields` of ours."""

    fields: tuple[str, ...]
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What may stand at one path.

    Attributes:
        text: scalars are taken as written (`3.10` stays `3.10`).
        path: where scalars hold a path, what makes it relative to another folder: its text, and the
            way from there to the folder of its file.
        keys: the names of a block's fields.
        values: the shape of every other key of a mapping; `None` where other keys are unknown.
        items: the shape of the members of a list.
        short: the key that a scalar in the place of the block stands for.
        whole: a layer that has the block replaces that of the layer below, and is not merged.
        variant: gives the shape of a block by the text of its `short` key, or by `None` where it
            has none, if that key decides what else the block holds.
        elsewhere: names that one may look for here in vain, each with the hint for it.
        other_tools: names that other tools have for keys of this block.
    """

    text: bool = False
    path: Callable[[str, str], str] | None = None
    keys: Mapping[str, "Shape"] = field(default_factory=lambda: MappingProxyType({}))
    values: "Shape | None" = None
    items: "Shape | None" = None
    anything: bool = False
    short: str | None = None
    whole: bool = False
    variant: "Callable[[str | None], Shape] | None" = None
    elsewhere: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    other_tools: Mapping[str, OtherToolKey] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def closed(self) -> bool:
        """A block: names beyond `keys` are unknown."""
        return bool(self.keys) and self.values is None

    def below(self, key: str) -> "Shape | None":
        """The shape under one key or number of a member, or `None` where there is none."""
        if self.anything:
            return self
        return self.keys.get(key) or self.values or (self.items if key.isdecimal() else None)

    def of(self, node: yaml_nodes.Mapping) -> "Shape":
        """The shape of a block that may be a part of one: what it does not say may stand in
        another layer."""
        named = node.entries.get(self.short or "")
        if self.variant is None or not isinstance(named, yaml_nodes.Scalar):
            return self
        return self.variant(named.text)

    def of_whole(self, node: yaml_nodes.Node | None) -> "Shape":
        """The shape of a block that is whole."""
        if self.variant is None:
            return self
        shape = self.of(node) if isinstance(node, yaml_nodes.Mapping) else self
        return self.variant(None) if shape is self else shape

    def at(self, path: Sequence[str]) -> "Shape | None":
        shape: Shape | None = self
        for key in path:
            if shape is None:
                return None
            shape = shape.below(key)
        return shape


ANY = Shape(anything=True)
TEXT = Shape(text=True)


def as_written(node: yaml_nodes.Node, shape: Shape | None) -> yaml_nodes.Node:
    """A value with its scalars as text where the shape says so; `null` stays none."""
    if shape is None:
        return node
    if isinstance(node, yaml_nodes.Scalar):
        return node._replace(plain=False) if shape.text and not is_null(node.text) else node
    if isinstance(node, yaml_nodes.Sequence):
        return replace(node, items=tuple(as_written(item, shape.items) for item in node.items))
    entries = {key: as_written(value, shape.below(key)) for key, value in node.entries.items()}
    return replace(node, entries=entries)
