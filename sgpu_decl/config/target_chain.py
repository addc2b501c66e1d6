"""`extends` and `default` of targets: which others a target is laid over, and which one is used by
commands that name none."""

from collections.abc import Iterator, Mapping

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.text import yaml_nodes
from sgpu_decl.text.yaml_nodes import resolve

DEFAULT = "default"
EXTENDS = "extends"


def target_chain(targets: Mapping[str, yaml_nodes.Node], name: str) -> tuple[str, ...]:
    """The names of a target and of all that it extends, itself last: in the order in which they are
    laid over the file. A chain that is not valid ends where that shows."""
    chain: dict[str, None] = {}
    at: str | None = name
    while at is not None and at in targets and at not in chain:
        chain[at] = None
        extended = _extended(targets[at])
        at = extended.text if extended is not None else None
    return tuple(reversed(chain))


def has_key(root: yaml_nodes.Mapping, key: str) -> bool:
    """Whether a file has a key, for itself or in one of its targets."""
    targets = root.entries.get("targets")
    blocks = targets.entries.values() if isinstance(targets, yaml_nodes.Mapping) else ()
    return key in root.entries or any(_written(block, key) is not None for block in blocks)


def defaults_among(targets: Mapping[str, yaml_nodes.Node]) -> tuple[str, ...]:
    """The names of the targets with `default: true`; a valid file has one at most."""
    return tuple(name for name, overrides in targets.items() if _is_default(overrides) is True)


def default_findings(targets: Mapping[str, yaml_nodes.Node]) -> Iterator[Diagnostic]:
    """Find a second default, and what is neither true nor false."""
    for name, overrides in targets.items():
        node = _written(overrides, DEFAULT)
        if node is not None and not isinstance(_is_default(overrides), bool):
            yield Diagnostic(
                code="wrong_type",
                summary=f"`targets.{name}.default` must be true or false",
                place=yaml_nodes.place_of(node),
                hint="write `default: true` in the target of commands that name none",
            )
    places = {
        name: yaml_nodes.place_of(node)
        for name in defaults_among(targets)
        if (node := _written(targets[name], DEFAULT)) is not None
    }
    for first, name in zip(places, list(places)[1:], strict=False):
        yield Diagnostic(
            code="two_default_targets",
            summary=f"the targets `{first}` and `{name}` both are the default",
            place=places[name],
            hint="keep `default: true` in one of them",
            related=(Related(place=places[first], note=f"`{first}` is the default here"),),
        )


def _is_default(overrides: yaml_nodes.Node) -> object:
    node = _written(overrides, DEFAULT)
    return resolve(node.text) if isinstance(node, yaml_nodes.Scalar) and node.plain else None


def chain_findings(targets: Mapping[str, yaml_nodes.Node]) -> Iterator[Diagnostic]:
    """Find targets that extend no target, or themselves."""
    in_cycle: set[str] = set()
    for name, overrides in targets.items():
        written = _written(overrides, EXTENDS)
        extended = _extended(overrides)
        if written is not None and extended is None:
            yield Diagnostic(
                code="wrong_type",
                summary=f"`targets.{name}.extends` must be the name of a target",
                place=yaml_nodes.place_of(written),
                hint="write one name, such as `extends: staging`",
            )
        if extended is None:
            continue
        if extended.text not in targets:
            yield _unknown(name, extended, targets)
        elif name not in in_cycle and (cycle := _cycle(targets, name)):
            in_cycle.update(cycle)
            yield _cyclic(targets, cycle)


def _cycle(targets: Mapping[str, yaml_nodes.Node], name: str) -> tuple[str, ...]:
    """The names of the cycle that a target is part of, itself first; none if it is in none."""
    chain = tuple(reversed(target_chain(targets, name)))
    extended = _extended(targets[chain[-1]])
    return chain if extended is not None and extended.text == name else ()


def _cyclic(targets: Mapping[str, yaml_nodes.Node], cycle: tuple[str, ...]) -> Diagnostic:
    words = " → ".join(f"`{name}`" for name in (*cycle, cycle[0]))
    places = [(name, extended) for name in cycle if (extended := _extended(targets[name]))]
    first, *others = places
    return Diagnostic(
        code="cyclic_targets",
        summary=f"each of these targets extends the next one: {words}"
        if others
        else f"the target `{cycle[0]}` extends itself",
        place=yaml_nodes.place_of(first[1]),
        hint="remove one `extends`",
        related=tuple(
            Related(place=yaml_nodes.place_of(node), note=f"`{name}` extends `{node.text}`")
            for name, node in others
        ),
    )


def _unknown(
    name: str, extended: yaml_nodes.Scalar, targets: Mapping[str, yaml_nodes.Node]
) -> Diagnostic:
    others = [other for other in targets if other != name]
    near = nearest(extended.text, others)
    known = ", ".join(f"`{other}`" for other in others)
    hint = f"known: {known}" if known else "declare it under `targets`, or remove `extends`"
    return Diagnostic(
        code="unknown_extends",
        summary=f"`targets.{name}.extends` names no target: `{extended.text[:80]}`",
        place=yaml_nodes.place_of(extended),
        hint=f"did you mean `{near}`?" if near else hint,
    )


def _written(overrides: yaml_nodes.Node, key: str) -> yaml_nodes.Node | None:
    """The value of a key of a target, if it has one."""
    node = overrides.entries.get(key) if isinstance(overrides, yaml_nodes.Mapping) else None
    return None if yaml_nodes.is_nothing(node) else node


def _extended(overrides: yaml_nodes.Node) -> yaml_nodes.Scalar | None:
    node = _written(overrides, EXTENDS)
    return node if isinstance(node, yaml_nodes.Scalar) and node.text else None
