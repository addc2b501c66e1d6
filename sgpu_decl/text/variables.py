"""The `variables` block and the `--var` options that fill it."""

from collections.abc import Iterable

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.text.core_schema import is_null
from sgpu_decl.text.yaml_nodes import Mapping, Node, Scalar, place_of

_FIELDS = ("default", "description")


def read_variables(
    block: Node | None, options: Iterable[tuple[str, str]]
) -> tuple[dict[str, Scalar], tuple[Diagnostic, ...]]:
    """Return the value of every declared variable.

    Args:
        block: the node of `variables`: each entry a scalar, or `{default, description}`.
        options: `--var name=value`, later ones win. Their text is read as if unquoted.
    """
    findings: list[Diagnostic] = []
    given = dict(options)
    entries: dict[str, Node] = {}
    keys: dict[str, Place] = {}
    if isinstance(block, Mapping):
        entries, keys = block.entries, block.keys
    elif block is not None and not _nothing(block):
        findings.append(
            _wrong(
                "wrong_type",
                "`variables` must be a mapping",
                place_of(block),
                "write `variables: {name: value}`",
            )
        )
    for name in given:
        if name not in entries:
            near = nearest(name, entries)
            findings.append(
                _wrong(
                    "unknown_variable",
                    f"no variable `{name}` is declared",
                    Place(f"--var {name}", 1, 1),
                    f"did you mean `{near}`?" if near else "declare it under `variables`",
                )
            )
    values: dict[str, Scalar] = {}
    for name, entry in entries.items():
        default, wrong = _default(name, entry)
        findings += wrong
        if name in given:
            values[name] = Scalar(given[name], True, 1, 1, f"--var {name}", default)  # noqa: FBT003
        elif default is not None:
            values[name] = default
        elif not wrong:
            findings.append(
                _wrong(
                    "variable_without_value",
                    f"the variable `{name}` has no value",
                    keys[name],
                    f"give it: `--var {name}=…`, or a `default`",
                )
            )
            values[name] = Scalar("", False, keys[name].line, keys[name].column, keys[name].file)  # noqa: FBT003
    return values, tuple(findings)


def _default(name: str, entry: Node) -> tuple[Scalar | None, list[Diagnostic]]:
    if isinstance(entry, Scalar):
        return (None if _nothing(entry) else entry), []
    if not isinstance(entry, Mapping):
        return None, [
            _wrong(
                "wrong_type",
                f"the variable `{name}` must be a scalar",
                place_of(entry),
                "write `{default: …, description: …}`, or the default alone",
            )
        ]
    wrong: list[Diagnostic] = []
    for key in entry.entries:
        if key not in _FIELDS:
            near = nearest(key, _FIELDS)
            wrong.append(
                _wrong(
                    "unknown_key",
                    f"unknown key `{key}` in the variable `{name}`",
                    entry.keys[key],
                    f"did you mean `{near}`?" if near else "known: default, description",
                )
            )
    default = entry.entries.get("default")
    if default is None or _nothing(default):
        return None, wrong
    if not isinstance(default, Scalar):
        wrong.append(
            _wrong(
                "wrong_type",
                f"the default of `{name}` must be a scalar",
                entry.keys["default"],
                "variables hold one value",
            )
        )
        return None, wrong
    return default, wrong


def _nothing(node: Node) -> bool:
    return isinstance(node, Scalar) and node.plain and is_null(node.text)


def _wrong(code: str, summary: str, place: Place, hint: str) -> Diagnostic:
    return Diagnostic(code=code, summary=summary, place=place, hint=hint)
