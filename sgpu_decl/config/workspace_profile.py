"""A profile of a workspace as YAML text: what was found of sgpu's assumptions, by id."""

import math
from collections.abc import Iterator
from dataclasses import replace

from sgpu_decl.diagnostics.diagnostic import Diagnostic, has_errors
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.model.assumptions import Profile, Value, assumptions, fits, kind_of
from sgpu_decl.text.yaml_nodes import Node, Scalar, Sequence, place_of, resolve
from sgpu_decl.text.yaml_reader import load


def read_profile(text: str | bytes, file: str) -> tuple[Profile | None, tuple[Diagnostic, ...]]:
    """Read a profile.

    Returns:
        The profile, `None` where something is wrong, and all that is.
    """
    document, diagnostics = load(text, file)
    if document is None:
        return None, tuple(map(_about_profiles, diagnostics))
    values: dict[str, Value] = {}
    wrong: list[Diagnostic] = [*diagnostics]
    for id_, node in document.root.entries.items():
        assumption = assumptions().get(id_)
        if assumption is None:
            near = nearest(id_, assumptions())
            wrong.append(
                Diagnostic(
                    code="unknown_key",
                    summary=f"sgpu makes no assumption `{id_}`",
                    place=document.root.keys[id_],
                    hint=f"did you mean `{near}`?" if near else "remove it",
                )
            )
            continue
        value = _value(node)
        if value is None or not fits(assumption, value):
            wrong.append(
                Diagnostic(
                    code="wrong_type",
                    summary=f"`{id_}` is {kind_of(assumption.expected)}",
                    place=place_of(node),
                    hint=f"such as {_flow(assumption.expected)}",
                )
            )
            continue
        if isinstance(value, int | float) and not 0 <= value < math.inf:
            wrong.append(
                Diagnostic(
                    code="out_of_range",
                    summary=f"`{id_}` must be a number, 0 or more",
                    place=place_of(node),
                    hint=f"such as {_flow(assumption.expected)}",
                )
            )
            continue
        values[id_] = value
    return (None if has_errors(wrong) else Profile(values)), tuple(wrong)


def _about_profiles(diagnostic: Diagnostic) -> Diagnostic:
    if diagnostic.code != "empty_file":
        return diagnostic
    return replace(diagnostic, hint="write what was found into it, such as `read-limit: 5242880`")


def profile_text(profile: Profile) -> str:
    """The YAML of a profile, which `read_profile` reads."""
    return "".join(_lines(profile))


def _lines(profile: Profile) -> Iterator[str]:
    for id_, assumption in assumptions().items():
        if id_ in profile.found:
            value = profile.found[id_]
            if value != assumption.expected:
                yield f"# expected: {_flow(assumption.expected)}\n"
            yield f"{id_}: {_flow(value)}\n"


def _flow(value: Value) -> str:
    """As YAML, on one line."""
    import json

    return json.dumps(list(value) if isinstance(value, tuple) else value)


def _value(node: Node) -> Value | None:
    if isinstance(node, Sequence):
        items = [_value(one) for one in node.items]
        texts = tuple(one for one in items if isinstance(one, str))
        return texts if len(texts) == len(items) else None
    if not isinstance(node, Scalar):
        return None
    return resolve(node.text) if node.plain else node.text
