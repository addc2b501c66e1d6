"""Fields of a run in layers: what stands above wins, field by field."""

from dataclasses import replace

from sgpu_decl.config.cross_field import ORIGINS
from sgpu_decl.config.plain_values import run_shape
from sgpu_decl.text import yaml_nodes
from sgpu_decl.text.core_schema import resolve
from sgpu_decl.text.overrides import in_full, merge
from sgpu_decl.text.shape import Shape

PACKAGE_FIELDS = frozenset({"use", *ORIGINS})
"""The fields of `env` that say which packages there are."""


def merged_layers(base: yaml_nodes.Node, over: yaml_nodes.Mapping | None) -> yaml_nodes.Node:
    """Lay one layer on another, key by key. The packages are one value: a layer that sets them
    replaces those below, and keeps the variables and secrets below."""
    if over is None or not isinstance(base, yaml_nodes.Mapping):
        return base if over is None else over
    shape = run_shape()
    old, new = (in_full_at(layer, "env", shape) for layer in (base, over))
    below, above = old.entries.get("env"), new.entries.get("env")
    if isinstance(below, yaml_nodes.Mapping) and _sets_packages(above):
        other_fields = {key: one for key, one in below.entries.items() if key not in PACKAGE_FIELDS}
        old = replace(old, entries={**old.entries, "env": replace(below, entries=other_fields)})
    return merge(old, new, shape)


def in_full_at(layer: yaml_nodes.Mapping, key: str, shape: Shape) -> yaml_nodes.Mapping:
    """A layer in which the value of a key is the block that it is short for."""
    value = layer.entries.get(key)
    if value is None:
        return layer
    return replace(layer, entries={**layer.entries, key: in_full(value, shape.below(key))})


def _sets_packages(env: yaml_nodes.Node | None) -> bool:
    """Whether a layer sets packages; `snapshot: false` and `lock: null` only remove those below."""
    entries = env.entries if isinstance(env, yaml_nodes.Mapping) else {}
    package_fields = (entries[key] for key in entries.keys() & PACKAGE_FIELDS)
    return any(
        not (isinstance(one, yaml_nodes.Scalar) and one.plain and not resolve(one.text))
        for one in package_fields
    )
