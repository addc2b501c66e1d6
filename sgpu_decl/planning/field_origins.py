"""Where the fields of a plan come from, for `plan --blame`."""

from collections.abc import Mapping

from sgpu_decl.config.field_places import Places
from sgpu_decl.config.loaded import Loaded, LoadedJob, LoadedRun
from sgpu_decl.config.value_origins import Chains, layer_names
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.address import Address
from sgpu_decl.model.plan import FieldOrigin, Plan
from sgpu_decl.planning.project import Project
from sgpu_decl.planning.project_file import overrides_of, text_of


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
        for field in change.fields:
            if field.origin is not None:
                own = chains.get(change.address) or Chains(layers)
                found[change.address, field.path] = own.get(field.path, field.origin)
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
