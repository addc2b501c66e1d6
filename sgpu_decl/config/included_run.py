"""An included run file as the fragment that says the same: its run under `runs`."""

from dataclasses import replace

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.text.yaml_nodes import (
    Mapping,
    Node,
    Scalar,
    is_nothing,
    place_of,
    without_keys,
)

_ITS_OWN = ("variables", "targets")
"""Blocks that fragments have, too."""


def is_run_file(root: Mapping) -> bool:
    from sgpu_decl.config.plain_values import project_shape, run_shape

    own = root.entries.keys() - {*_ITS_OWN}
    return not own & project_shape().keys.keys() and bool(own & run_shape().keys.keys())


def run_name(root: Mapping) -> Scalar | Diagnostic:
    """The name of the run in a run file. It becomes a key, in which nothing is filled in."""
    name = root.entries.get("name")
    if isinstance(name, Scalar) and not is_nothing(name) and "${" not in name.text:
        return name
    if isinstance(name, Scalar) and not is_nothing(name):
        return Diagnostic(
            code="bad_name",
            summary=f"the name of an included run holds a reference: `{name.text[:80]}`",
            place=place_of(name),
            hint="write the name out, or use `matrix` for several runs",
        )
    return Diagnostic(
        code="missing_key",
        summary="`name` is missing",
        place=place_of(root if name is None else name),
        hint="add `name`: in an included file it is the key of the run",
    )


def as_fragment(root: Mapping, name: Scalar) -> Mapping:
    """A run file as the fragment that says the same: its run under `runs`, and what its targets
    change of the run under `targets.TARGET.runs`."""
    place = place_of(name)
    entries: dict[str, Node] = {
        "runs": _holding(root, name.text, place, without_keys(root, "name", *_ITS_OWN))
    }
    if "variables" in root.entries:
        entries["variables"] = root.entries["variables"]
    targets = root.entries.get("targets")
    if isinstance(targets, Mapping):
        changed = {
            target: _target_of_run(overrides, name) for target, overrides in targets.entries.items()
        }
        entries["targets"] = replace(targets, entries=changed)
    elif targets is not None:
        entries["targets"] = targets
    keys = {key: root.keys.get(key, place) for key in entries}
    return replace(root, entries=entries, keys=keys)


def _target_of_run(overrides: Node, name: Scalar) -> Node:
    if not isinstance(overrides, Mapping):
        return overrides
    own = without_keys(overrides, "variables")
    place = place_of(overrides)
    entries: dict[str, Node] = {}
    keys: dict[str, Place] = {}
    if "variables" in overrides.entries:
        entries["variables"] = overrides.entries["variables"]
        keys["variables"] = overrides.keys["variables"]
    if own.entries:
        entries["runs"] = _holding(overrides, name.text, place, own)
        keys["runs"] = place
    return replace(overrides, entries=entries, keys=keys)


def _holding(near: Mapping, key: str, place: Place, node: Mapping) -> Mapping:
    return replace(near, entries={key: node}, keys={key: place})
