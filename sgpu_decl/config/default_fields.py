"""`defaults` and `presets` of a project: fields that lie below those of each run and job.

The weakest first: `defaults`, `presets`, the run or job itself.
"""

from collections.abc import Iterator
from dataclasses import replace

from sgpu_decl.config.error_messages import unknown_keys
from sgpu_decl.config.plain_values import project_shape
from sgpu_decl.config.run_layers import merged_layers
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.text import yaml_nodes
from sgpu_decl.text.overrides import merge

_BLOCKS = {"run": "runs", "job": "jobs"}
"""The keys of `defaults`, and the blocks whose entries they are for."""
_PRESETS = {"run": ("tags",), "job": ("tags", "paused")}
"""Which presets are fields of runs and of jobs."""


def with_defaults(root: yaml_nodes.Mapping) -> tuple[yaml_nodes.Mapping, tuple[Diagnostic, ...]]:
    """Lay the runs and jobs of a project over its defaults and presets.

    Returns:
        The root without `defaults`, and what is wrong with that block by itself. Values that do not
        fit are found with the runs and jobs that have them.
    """
    root, defaults = yaml_nodes.without(root, "defaults")
    presets = root.entries.get("presets")
    findings = tuple(_findings(defaults)) if defaults is not None else ()
    entries = dict(root.entries)
    for kind, block in _BLOCKS.items():
        declared = entries.get(block)
        layer = _layer(kind, defaults, presets)
        if layer is not None and isinstance(declared, yaml_nodes.Mapping):
            merged = {name: _over(layer, node, kind) for name, node in declared.entries.items()}
            entries[block] = replace(declared, entries=merged)
    return replace(root, entries=entries), findings


def _layer(
    kind: str, defaults: yaml_nodes.Node | None, presets: yaml_nodes.Node | None
) -> yaml_nodes.Mapping | None:
    """What lies below each run, or each job."""
    block = defaults.entries.get(kind) if isinstance(defaults, yaml_nodes.Mapping) else None
    layer = block if isinstance(block, yaml_nodes.Mapping) else None
    if isinstance(presets, yaml_nodes.Mapping):
        given = presets.entries
        names = [name for name in _PRESETS[kind] if not yaml_nodes.is_nothing(given.get(name))]
        own = replace(presets, entries={name: given[name] for name in names})
        if names:
            layer = own if layer is None else _merged(kind, layer, own)
    return layer


def _over(layer: yaml_nodes.Mapping, node: yaml_nodes.Node, kind: str) -> yaml_nodes.Node:
    """A run or a job over the layer below it. It keeps its own place."""
    if not isinstance(node, yaml_nodes.Mapping):
        return node  # validation refuses it
    merged = _merged(kind, layer, node)
    return replace(merged, line=node.line, column=node.column, file=node.file, before=node.before)


def _merged(kind: str, base: yaml_nodes.Mapping, over: yaml_nodes.Mapping) -> yaml_nodes.Mapping:
    jobs = project_shape().keys["jobs"].values
    merged = merged_layers(base, over) if kind == "run" else merge(base, over, jobs)
    assert isinstance(merged, yaml_nodes.Mapping)  # noqa: S101  of two mappings
    return merged


def _findings(defaults: yaml_nodes.Node) -> Iterator[Diagnostic]:
    if not isinstance(defaults, yaml_nodes.Mapping):
        if not yaml_nodes.is_nothing(defaults):
            yield _no_mapping("defaults", yaml_nodes.place_of(defaults))
        return
    for kind in defaults.entries.keys() & _BLOCKS.keys():
        block = defaults.entries[kind]
        if not isinstance(block, yaml_nodes.Mapping) and not yaml_nodes.is_nothing(block):
            yield _no_mapping(f"defaults.{kind}", yaml_nodes.place_of(block))
        elif isinstance(block, yaml_nodes.Mapping) and kind == "run" and "name" in block.entries:
            yield Diagnostic(
                code="name_in_project",
                summary="a name belongs to one run, and these are the defaults of all runs",
                place=block.keys["name"],
                hint="remove `name`",
            )
    yield from unknown_keys(defaults, project_shape().keys["defaults"], "defaults")


def _no_mapping(what: str, place: Place) -> Diagnostic:
    return Diagnostic(
        code="wrong_type",
        summary=f"`{what}` must be a mapping",
        place=place,
        hint="write `defaults: {run: {…}, job: {…}}`",
    )
