"""Which names a document may have where, and where its scalars are text.

The shape of a run is derived once from the models of the config; this room knows only the value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = ["ANY", "TEXT", "Shape"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What may stand at one path.

    Attributes:
        text: scalars are taken as written (`3.10` stays `3.10`).
        keys: the names of a block's fields.
        values: the shape of every other key of a mapping; `None` where other keys are unknown.
        items: the shape of the members of a list.
        short: the key that a scalar in the place of the block stands for.
        elsewhere: names that one may look for here in vain, and why they are not.
    """

    text: bool = False
    keys: Mapping[str, "Shape"] = field(default_factory=lambda: MappingProxyType({}))
    values: "Shape | None" = None
    items: "Shape | None" = None
    anything: bool = False
    short: str | None = None
    elsewhere: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def closed(self) -> bool:
        """A block: names beyond `keys` are unknown."""
        return bool(self.keys) and self.values is None

    def below(self, key: str) -> "Shape | None":
        """The shape under one key, or `None` where there is no such key."""
        if self.anything:
            return self
        return self.keys.get(key) or self.values

    def at(self, path: Sequence[str]) -> "Shape | None":
        shape: Shape | None = self
        for key in path:
            if shape is None:
                return None
            shape = shape.below(key)
        return shape


ANY = Shape(anything=True)
TEXT = Shape(text=True)
