"""`enabled` and `targets` of runs and jobs: a target may leave some out. What it leaves out is not
checked, because its values may exist in other targets only."""

from collections.abc import Iterator
from dataclasses import replace

from sgpu_decl.config.run_reader import ReferenceContext
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.target import BASE
from sgpu_decl.text import yaml_nodes
from sgpu_decl.text.interpolation import interpolate
from sgpu_decl.text.yaml_nodes import Mapping, Node, Scalar, Sequence, place_of, resolve

ENABLED, TARGETS, _OLD = "enabled", "targets", "renamed_from"
_BLOCKS = {"runs": Kind.RUN, "jobs": Kind.JOB}
Findings = tuple[Diagnostic, ...]


def enabled_alone(
    root: Mapping, context: ReferenceContext
) -> tuple[Mapping, dict[Address, Place], Findings]:
    """The root of a project without the runs and jobs that its target leaves out, and without the
    fields that say so.

    Returns:
        The root; what is left out, with the place of its name, also by the name that it had before;
        what is wrong with the fields.
    """
    left_out: dict[Address, Place] = {}
    findings: list[Diagnostic] = []
    entries = dict(root.entries)
    for key, kind in _BLOCKS.items():
        block = entries.get(key)
        if not isinstance(block, Mapping):
            continue
        kept: dict[str, Node] = {}
        for name, node in block.entries.items():
            if not isinstance(node, Mapping) or node.entries.keys().isdisjoint((ENABLED, TARGETS)):
                kept[name] = node
                continue
            enabled, more = _is_enabled(node, f"{key}.{name}", context)
            findings += more
            if enabled:
                kept[name] = yaml_nodes.without_keys(node, ENABLED, TARGETS)
                continue
            old = node.entries.get(_OLD)
            for one in (name, old.text if isinstance(old, Scalar) else ""):
                if one:
                    left_out[Address(kind, one.removeprefix(f"{kind}."))] = block.keys[name]
        if kept != block.entries:
            keys = {name: block.keys[name] for name in kept}
            entries[key] = replace(block, entries=kept, keys=keys)
    return replace(root, entries=entries), left_out, tuple(findings)


def run_if_enabled(root: Mapping, context: ReferenceContext) -> tuple[Mapping, bool, Findings]:
    """The root of a run file without `enabled`, and whether its target has the run. `targets` of a
    run file are its overrides."""
    if ENABLED not in root.entries:
        return root, True, ()
    enabled, findings = _is_enabled(root, "", context)
    return yaml_nodes.without_keys(root, ENABLED), enabled, findings


def _is_enabled(node: Mapping, path: str, context: ReferenceContext) -> tuple[bool, Findings]:
    fields: dict[str, Node | None] = {}
    scope = context.scope({})
    for key in (ENABLED, TARGETS):
        value = node.entries.get(key)
        given = None if yaml_nodes.is_nothing(value) else value
        fields[key] = interpolate(given, scope) if given is not None else None
    if scope.findings:
        return True, tuple(scope.findings)
    findings: list[Diagnostic] = []
    flag, names = fields[ENABLED], fields[TARGETS]
    said = resolve(flag.text) if isinstance(flag, Scalar) and flag.plain else None
    prefix = f"{path}." if path else ""
    if flag is not None and not isinstance(said, bool):
        findings.append(
            Diagnostic(
                code="wrong_type",
                summary=f"`{prefix}{ENABLED}` must be true or false",
                place=place_of(flag),
                hint=f"write `{ENABLED}: false`",
            )
        )
    if names is not None:
        findings += _wrong_targets(names, f"{prefix}{TARGETS}", context)
    here = names is None or any(
        isinstance(one, Scalar) and one.text == context.target for one in _items(names)
    )
    return bool(findings) or (said is not False and here), tuple(findings)


def _wrong_targets(names: Node, path: str, context: ReferenceContext) -> Iterator[Diagnostic]:
    if not isinstance(names, Sequence) or not all(isinstance(one, Scalar) for one in names.items):
        yield Diagnostic(
            code="wrong_type",
            summary=f"`{path}` must be a list of names of targets",
            place=place_of(names),
            hint=f"write `{TARGETS}: [prod]`; what differs in a target stands in the root, under "
            "`targets`",
        )
        return
    for one in _items(names):
        if isinstance(one, Scalar) and one.text not in (BASE, *context.targets):
            near = nearest(one.text, context.targets)
            known = ", ".join(f"`{name}`" for name in context.targets)
            hint = f"known: {known}" if known else "declare it: `targets: {prod: {…}}`"
            yield Diagnostic(
                code="undeclared_target",
                summary=f"`{path}` names no target of the project: `{one.text[:80]}`",
                place=place_of(one),
                hint=f"did you mean `{near}`?" if near else hint,
            )


def _items(names: Node) -> tuple[Node, ...]:
    return names.items if isinstance(names, Sequence) else ()
