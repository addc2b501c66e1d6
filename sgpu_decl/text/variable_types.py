"""The types of variables: which values fit, and what a value is taken for."""

from collections.abc import Iterator

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.text.overrides import filled_by
from sgpu_decl.text.yaml_nodes import Mapping, Node, Scalar, Value, place_of, resolve

TYPES = ("string", "number", "boolean", "list", "mapping")
_IN_WORDS = {
    "string": "text",
    "number": "a number",
    "boolean": "true or false",
    "list": "a list",
    "mapping": "a mapping",
}
_SHOWN = 80


def type_of(node: Node | None) -> str | None:
    """The type that a value has by its looks; `None` where that is not known before references are
    filled in."""
    if node is None:
        return None
    if not isinstance(node, Scalar):
        return "mapping" if isinstance(node, Mapping) else "list"
    if "${" in node.text:
        return None
    value = _value(node)
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else "string"


def typed(node: Node, kind: str | None) -> Node:
    """The value as its type takes it: what is text stays as it is written (`3.10`)."""
    return node._replace(plain=False) if kind == "string" and isinstance(node, Scalar) else node


def of_type(filled: Node, kind: str | None) -> Node:
    """A value whose references are filled in, as its type takes it. What comes from the
    surroundings (`${env.N}`) is text, and a number or a boolean is read from it as from an option;
    the value of another variable has a type of its own."""
    if kind not in ("number", "boolean") or not isinstance(filled, Scalar) or filled.filled:
        return filled
    return filled._replace(plain=True)


def misfit(
    name: str, node: Node, kind: str | None, values: tuple[Scalar, ...] | None, *, at: Node
) -> Iterator[Diagnostic]:
    """Find a value of another type than its variable, or that is none of the allowed ones.

    Args:
        at: where the value is given; for a reference, not where what it refers to stands.
    """
    own = type_of(node)
    text = kind == "string" and isinstance(node, Scalar)
    if kind is not None and own not in (kind, None) and not text:
        yield _finding(
            "wrong_type",
            f"the variable `{name}` must be {_IN_WORDS[kind]}, not {_shown(node)}",
            node,
            at,
            f"give it {_IN_WORDS[kind]}, or change its `type`",
        )
    elif values is not None and own is not None and not _is_among(node, values, kind):
        texts = [value.text for value in values]
        near = nearest(node.text, texts) if isinstance(node, Scalar) else None
        listed = ", ".join(f"`{text}`" for text in texts)
        yield _finding(
            "unknown_value",
            f"the variable `{name}` must be one of {listed}, not {_shown(node)}",
            node,
            at,
            f"did you mean `{near}`?" if near else "take one of these, or add it to `values`",
        )


def _is_among(node: Node, values: tuple[Scalar, ...], kind: str | None) -> bool:
    if not isinstance(node, Scalar):
        return False
    if kind == "string":
        return any(node.text == value.text for value in values)
    own = _value(node)
    return any(own == _value(value) and type(own) is type(_value(value)) for value in values)


def _value(node: Scalar) -> Value:
    return resolve(node.text) if node.plain else node.text


def _shown(node: Node) -> str:
    if not isinstance(node, Scalar):
        return _IN_WORDS["mapping" if isinstance(node, Mapping) else "list"]
    return f"`{node.text[:_SHOWN]}`"


def _finding(code: str, summary: str, node: Node, at: Node, hint: str) -> Diagnostic:
    sources = filled_by(node) if isinstance(node, Scalar) else () if node is at else (node,)
    related = [Related(place=place_of(one), note="its value comes from here") for one in sources]
    if at.before is not None:
        related.append(Related(place=place_of(at.before), note="its default is here"))
    return Diagnostic(
        code=code, summary=summary, place=place_of(at), hint=hint, related=tuple(related)
    )
