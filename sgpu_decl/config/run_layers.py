"""Fields of a run in layers: what stands above wins, field by field.

The weakest first: `defaults` of the project, its `run_as`, `presets`, the run or job itself. A run
that says `env: {use: NAME}` uses an environment that its project declares under `environments`.
"""

from collections.abc import Iterator
from dataclasses import replace

from sgpu_decl.config.cross_field import ORIGINS
from sgpu_decl.config.env import Env, EnvironmentBlock
from sgpu_decl.config.error_messages import unknown_keys
from sgpu_decl.config.plain_values import project_shape, run_shape
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.text import yaml_nodes
from sgpu_decl.text.overrides import in_full, merge
from sgpu_decl.text.shape import Shape
from sgpu_decl.text.yaml_nodes import Mapping, Node, Scalar, is_null, place_of, resolve

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
        if kind == "job" and not yaml_nodes.is_nothing(entries.get("run_as")):
            own = yaml_nodes.without_keys(root, *(entries.keys() - {"run_as"}))
            layer = own if layer is None else _merged(kind, layer, own)
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


_FIELDS = tuple(EnvironmentBlock.model_fields)
_SHORT = Shape(short=Env.short)


def with_shared_environment(
    run: Mapping, environments: Mapping | None
) -> tuple[Mapping, tuple[Diagnostic, ...]]:
    """Copy the fields of the environment that a run uses into its own `env`, with their places.

    Args:
        environments: the block of the project; `None` in a run file, which has none.

    Returns:
        The run, unchanged if it uses none, and the findings.
    """
    env, use = _env_and_use(run)
    if use is None:
        return run, ()
    blocks = environments.entries if environments is not None else {}
    shared = blocks.get(use.text)
    if not isinstance(shared, Mapping):
        return run, (_unknown(use, blocks, project=environments is not None),)
    both = [name for name in _FIELDS if name in env.entries]
    if both:
        return run, tuple(_twice(name, use, env) for name in both)
    merged = replace(
        env, entries={**env.entries, **shared.entries}, keys={**env.keys, **shared.keys}
    )
    return replace(run, entries={**run.entries, "env": merged}), ()


def _env_and_use(run: Mapping) -> tuple[Mapping, Scalar | None]:
    """The `env` block and the name in it."""
    env = run.entries.get("env")
    env = env and in_full(env, _SHORT)
    if not isinstance(env, Mapping):
        return run, None
    use = env.entries.get("use")
    if not isinstance(use, Scalar) or not use.text or (use.plain and is_null(use.text)):
        return env, None
    return env, use


def _unknown(use: Scalar, blocks: dict[str, Node], *, project: bool) -> Diagnostic:
    near = nearest(use.text, blocks)
    if near is not None:
        hint = f"did you mean `{near}`?"
    elif blocks:
        hint = "known: " + ", ".join(f"`{name}`" for name in blocks)
    elif project:
        hint = f"declare it: `environments: {{{use.text}: {{snapshot: true}}}}`"
    else:
        hint = "a run file declares its environment itself: `env: {snapshot: true}`"
    return Diagnostic(
        code="unknown_environment",
        summary=f"`env.use` names no environment: `{use.text[:80]}`",
        place=place_of(use),
        hint=hint,
    )


def _twice(name: str, use: Scalar, env: Mapping) -> Diagnostic:
    return Diagnostic(
        code="two_environments",
        summary=f"`env.use` is a whole environment, and `env.{name}` asks for another",
        place=env.keys[name],
        hint=f"move `{name}` to `environments.{use.text}`, or remove `use`; a target with another "
        "environment sets `use: null`",
        related=(Related(place=place_of(use), note="it is used here"),),
    )
