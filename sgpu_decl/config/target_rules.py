"""`branch`, `requires` and `user` of a target: what an apply there needs."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from sgpu_decl.config.target_chain import target_chain
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.text import yaml_nodes

BRANCH, REQUIRES, USER = "branch", "requires", "user"
OF_RULES = (BRANCH, REQUIRES, USER)
_REVIEWED = "reviewed"
_FORMS = {
    BRANCH: ("the name of a branch", "write it out, such as `branch: main`"),
    REQUIRES: (
        "`reviewed`",
        "write `requires: reviewed`; a version of sgpu stands beside `project`",
    ),
    USER: (
        "the name of a user or of a service principal",
        "write it out: `me@example.com`, or the application id of a service principal",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRules:
    """`branch` and `user` have the place of what says so; `reviewed` has one if it is asked for."""

    branch: tuple[str, Place] | None = None
    reviewed: Place | None = None
    user: tuple[str, Place] | None = None


def target_rules(root: yaml_nodes.Mapping, target: str) -> TargetRules:
    """The rules of a target: its own, and those of targets that it extends."""
    rules = TargetRules()
    targets = _targets(root)
    for name in target_chain(targets, target):
        overrides = targets[name]
        entries = overrides.entries if isinstance(overrides, yaml_nodes.Mapping) else {}
        for key in entries.keys() & {*OF_RULES}:
            node = entries[key]
            if yaml_nodes.is_nothing(node):
                changed: object = None
            elif not isinstance(node, yaml_nodes.Scalar) or not _fits(key, node):
                continue  # validation refuses it
            else:
                place = yaml_nodes.place_of(node)
                changed = place if key == REQUIRES else (node.text, place)
            field = "reviewed" if key == REQUIRES else key
            rules = replace(rules, **{field: changed})  # type: ignore[arg-type]
    return rules


def rule_findings(root: yaml_nodes.Mapping) -> Iterator[Diagnostic]:
    """Find what is no rule, in all targets. A reference could be changed by an option."""
    for name, overrides in _targets(root).items():
        entries = overrides.entries if isinstance(overrides, yaml_nodes.Mapping) else {}
        for key in OF_RULES:
            node = entries.get(key)
            if node is None or yaml_nodes.is_nothing(node) or _fits(key, node):
                continue
            what, hint = _FORMS[key]
            yield Diagnostic(
                code="bad_target_rule",
                summary=f"`targets.{name}.{key}` must be {what}",
                place=yaml_nodes.place_of(node),
                hint=hint,
            )


def _fits(key: str, node: yaml_nodes.Node) -> bool:
    if not isinstance(node, yaml_nodes.Scalar) or "${" in node.text:
        return False
    return node.text == _REVIEWED if key == REQUIRES else bool(node.text.strip())


def _targets(root: yaml_nodes.Mapping) -> Mapping[str, yaml_nodes.Node]:
    block = root.entries.get("targets")
    return block.entries if isinstance(block, yaml_nodes.Mapping) else {}
