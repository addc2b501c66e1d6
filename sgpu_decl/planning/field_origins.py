"""Where the fields of a plan come from, for `plan --blame`: who wrote a value, and over whom."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sgpu_decl.config.loaded import Loaded, LoadedJob, LoadedRun, Places, locate
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.address import Address
from sgpu_decl.model.plan import FieldOrigin, OriginRole, Plan
from sgpu_decl.planning.project import Project
from sgpu_decl.planning.project_file import overrides_of, text_of
from sgpu_decl.text import yaml_nodes

Step = tuple[Place, OriginRole]


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


@dataclass(slots=True)
class Chains:
    """What led to each value inside a block: the value itself, the values that filled its
    references, and those that it replaced, the latest first. A value inside of a list or mapping
    that a reference stood for has the place of that reference, too."""

    layers: Mapping[Place, str]
    _by_path: dict[str, tuple[Step, ...]] = field(default_factory=dict)
    _by_place: dict[Place, tuple[Step, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, node: yaml_nodes.Mapping, layers: Mapping[Place, str]) -> "Chains":
        chains = cls(layers)
        chains._add(node, "", ())
        return chains

    def get(self, path: str, place: Place) -> tuple[FieldOrigin, ...]:
        """The chain of a field, whose value stands at a place. Some fields have another path than
        what they were read from (`env: gpu`)."""
        chain = self._by_path.get(path, ())
        if not chain or chain[0][0] != place:
            chain = self._by_place.get(place, ((place, OriginRole.VALUE),))
        return tuple(
            FieldOrigin(place=at, role=role, layer=self.layers.get(at)) for at, role in chain
        )

    def _add(self, node: yaml_nodes.Node, path: str, around: tuple[Step, ...]) -> None:
        """Add the members of a node, and all below; `around` is what led to the node itself."""
        inside: Iterable[tuple[str | int, yaml_nodes.Node]] = (
            node.entries.items()
            if isinstance(node, yaml_nodes.Mapping)
            else enumerate(node.items if isinstance(node, yaml_nodes.Sequence) else ())
        )
        for key, value in inside:
            place, below = locate(node, key), f"{path}.{key}" if path else str(key)
            if not isinstance(value, yaml_nodes.Mapping):
                own = (place, OriginRole.VALUE)
                chain = (own, *_behind(value, OriginRole.FILLED), *around)
                self._by_path[below] = self._by_place[place] = chain
            if not isinstance(value, yaml_nodes.Scalar):
                self._add(value, below, (*_behind(value, OriginRole.REFERENCE), *around))


def _behind(node: yaml_nodes.Node, role: OriginRole) -> Iterator[Step]:
    """What filled a value, and what it replaced.

    Args:
        role: what is known of a list or mapping that a reference stood for: the list is what
            `FILLED` the field, or the `REFERENCE` is how its members came there.
    """
    if isinstance(node, yaml_nodes.Scalar):
        for value in node.filled:
            yield yaml_nodes.place_of(value), OriginRole.FILLED
            yield from _behind(value, role)
    elif node.reference is not None:
        known = node if role is OriginRole.FILLED else node.reference
        yield yaml_nodes.place_of(known), role
    reference = None if isinstance(node, yaml_nodes.Scalar) else node.reference
    for replaced in (node.before, reference and reference.before):
        if replaced is not None:
            yield yaml_nodes.place_of(replaced), OriginRole.REPLACED
            yield from _behind(replaced, role)


def _places(node: yaml_nodes.Node) -> Iterator[Place]:
    return map(yaml_nodes.place_of, _inside(node))


def _inside(node: yaml_nodes.Node) -> Iterator[yaml_nodes.Node]:
    """A node and all below it."""
    yield node
    for below in yaml_nodes.children(node):
        yield from _inside(below)


def field_origins(
    plan: Plan, project: Project
) -> dict[tuple[Address, str], tuple[FieldOrigin, ...]]:
    """What led to each field that a plan shows, by its address and path. Fields that no
    file gives have none."""
    text = text_of(project)
    (files, _), (loaded, _) = text.parsed, text.values(overrides_of(project))
    if files is None or loaded is None:  # it was changed meanwhile
        return {}
    layers = layer_names(files.root)
    chains = _chains(loaded, layers)
    found: dict[tuple[Address, str], tuple[FieldOrigin, ...]] = {}
    for change in plan.changes:
        for changed in change.fields:
            if changed.origin is not None:
                own = chains.get(change.address) or Chains(layers)
                found[change.address, changed.path] = own.get(changed.path, changed.origin)
    return found


def _chains(loaded: Loaded, layers: Mapping[Place, str]) -> dict[Address, Chains]:
    """By address; the cells of a matrix share theirs."""
    by_node: dict[int, Chains] = {}
    chains: dict[Address, Chains] = {}
    declared: tuple[LoadedRun | LoadedJob, ...] = (*loaded.runs, *loaded.jobs)
    for one in declared:
        places = one.places
        if isinstance(places, Places):
            if id(places.node) not in by_node:
                by_node[id(places.node)] = Chains.of(places.node, layers)
            chains[one.address] = by_node[id(places.node)]
    return chains
