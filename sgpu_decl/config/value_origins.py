"""Where the value of a field comes from: who wrote it, and over whom."""

from collections.abc import Iterator, Mapping

from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.field_origin import FieldOrigin, OriginRole
from sgpu_decl.text import yaml_nodes

__all__ = ["chains_in", "layer_names"]


def layer_names(root: yaml_nodes.Mapping) -> dict[Place, str]:
    """The layer that each value of a file belongs to (`target prod`, `defaults`, `presets`), by its
    place. Values of the runs and jobs themselves have none.

    Args:
        root: the file as it is written: without options, and before a target is applied.
    """
    names: dict[Place, str] = {
        place: layer
        for layer in ("defaults", "presets")
        if layer in root.entries
        for place in _places(root.entries[layer])
    }
    targets = root.entries.get("targets")
    for target, overrides in (
        targets.entries.items() if isinstance(targets, yaml_nodes.Mapping) else ()
    ):
        names |= dict.fromkeys(_places(overrides), f"target {target}")
    return names


def chains_in(
    node: yaml_nodes.Node, layers: Mapping[Place, str]
) -> dict[Place, tuple[FieldOrigin, ...]]:
    """What led to each value inside a node, by the place of the value: the value itself, the values
    that filled its references, and those that it replaced, the latest first."""
    return {
        yaml_nodes.place_of(one): tuple(_chain(one, layers))
        for one in _inside(node)
        if not isinstance(one, yaml_nodes.Mapping)
    }


def _chain(node: yaml_nodes.Node, layers: Mapping[Place, str]) -> Iterator[FieldOrigin]:
    role = OriginRole.VALUE
    at: yaml_nodes.Node | None = node
    while at is not None:
        place = yaml_nodes.place_of(at)
        yield FieldOrigin(place=place, role=role, layer=layers.get(place))
        for source in at.filled if isinstance(at, yaml_nodes.Scalar) else ():
            yield FieldOrigin(place=source, role=OriginRole.FILLED, layer=layers.get(source))
        role, at = OriginRole.REPLACED, at.before


def _places(node: yaml_nodes.Node) -> Iterator[Place]:
    return map(yaml_nodes.place_of, _inside(node))


def _inside(node: yaml_nodes.Node) -> Iterator[yaml_nodes.Node]:
    """A node and all below it."""
    yield node
    for below in yaml_nodes.children(node):
        yield from _inside(below)
