"""The overrides of a target, laid over the root of a file."""

from collections.abc import Collection, Iterator

from sgpu_decl.config.error_messages import unknown_keys
from sgpu_decl.config.target_chain import (
    DEFAULT,
    EXTENDS,
    chain_findings,
    default_findings,
    target_chain,
)
from sgpu_decl.config.target_rules import OF_RULES, rule_findings
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.target import misnamed
from sgpu_decl.text import yaml_nodes
from sgpu_decl.text.overrides import merge
from sgpu_decl.text.shape import Shape
from sgpu_decl.text.variables import full_declarations

OF_TARGETS = (DEFAULT, EXTENDS, *OF_RULES)
"""The fields that a target of a project has beside those that it changes."""


def declared_targets(root: yaml_nodes.Mapping) -> tuple[str, ...]:
    """The names of all targets of a file."""
    block = root.entries.get("targets")
    return tuple(block.entries) if isinstance(block, yaml_nodes.Mapping) else ()


def with_target(
    root: yaml_nodes.Mapping, target: str | None, shape: Shape, own: Collection[str] = ()
) -> tuple[yaml_nodes.Mapping, tuple[Diagnostic, ...]]:
    """Lay the chosen target, and before it those that it extends, over the root. Of the other
    targets only the names are checked.

    Args:
        own: the fields that a target has beside those that it changes.
    """
    whole = root
    root, block = yaml_nodes.without(full_declarations(root), "targets")
    targets, keys = (
        (block.entries, block.keys) if isinstance(block, yaml_nodes.Mapping) else ({}, {})
    )
    findings: list[Diagnostic] = []
    layers = {name: targets[name] for name in target_chain(targets, target)} if target else {}
    declared = _variables(root)
    is_given = not yaml_nodes.is_nothing(block)
    if block is not None and is_given and not isinstance(block, yaml_nodes.Mapping):
        place = yaml_nodes.place_of(block)
        findings.append(_wrong("wrong_type", "`targets` must be a mapping", place,
                               "write `targets: {dev: {…}}`"))  # fmt: skip
    for name, overrides in targets.items():
        findings += _misspelt_variables(name, _variables(overrides), declared)
        if hint := misnamed(name):
            findings.append(_wrong("bad_name", f"`{name}` is not a valid name for a target",
                                keys[name], hint))  # fmt: skip
        if not isinstance(overrides, yaml_nodes.Mapping):
            if yaml_nodes.is_nothing(overrides):
                continue
            place = yaml_nodes.place_of(overrides)
            findings.append(_wrong("wrong_type", f"`targets.{name}` must be a mapping",
                                place, "list the fields that differ"))  # fmt: skip
        elif "targets" in overrides.entries:
            findings.append(_wrong("unknown_key", f"a target cannot hold targets (`{name}`)",
                                overrides.keys["targets"], "write them side by side"))  # fmt: skip
        elif "include" in overrides.entries:
            findings.append(_wrong("unknown_key", f"a target cannot include files (`{name}`)",
                                overrides.keys["include"],
                                "name them in the `include` of the root file"))  # fmt: skip
        elif name not in layers:
            findings += unknown_keys(
                yaml_nodes.without_keys(overrides, "variables", *own), shape, f"targets.{name}"
            )
    if EXTENDS in own:
        findings += chain_findings(targets)
    if DEFAULT in own:
        findings += default_findings(targets)
        findings += rule_findings(whole)
    for overrides in layers.values():
        if isinstance(overrides, yaml_nodes.Mapping):
            layer = full_declarations(yaml_nodes.without_keys(overrides, *own))
            merged = merge(root, layer, shape)
            root = merged if isinstance(merged, yaml_nodes.Mapping) else root
    if target is not None and target not in targets:
        near = nearest(target, targets)
        known = ", ".join(f"`{name}`" for name in targets)
        place = yaml_nodes.place_of(root if block is None else block)
        hint = f"known: {known}" if known else "declare it under `targets`, or leave out `-t`"
        hint = f"did you mean `{near}`?" if near else hint
        findings.append(_wrong("unknown_target", f"there is no target `{target}`", place, hint))
    return root, tuple(findings)


def _variables(node: yaml_nodes.Node) -> yaml_nodes.Mapping | None:
    block = node.entries.get("variables") if isinstance(node, yaml_nodes.Mapping) else None
    return block if isinstance(block, yaml_nodes.Mapping) else None


def _misspelt_variables(
    target: str, own: yaml_nodes.Mapping | None, declared: yaml_nodes.Mapping | None
) -> Iterator[Diagnostic]:
    """A target may have variables of its own. One whose name is almost that of a variable of the
    file was probably meant to set that one."""
    if own is None or declared is None:
        return
    for name in own.entries:
        near = None if name in declared.entries else nearest(name, declared.entries)
        if near is not None:
            yield Diagnostic(
                code="unknown_variable",
                severity=Severity.WARNING,
                summary=f"the target `{target}` sets `{name}`, which the file does not declare",
                place=own.keys[name],
                hint=f"did you mean `{near}`?",
            )


def _wrong(code: str, summary: str, place: Place, hint: str) -> Diagnostic:
    return Diagnostic(code=code, summary=summary, place=place, hint=hint)
