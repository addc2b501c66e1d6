"""The `variables` block, and what fills it: options, the environment, and files of values."""

from collections.abc import Iterable, Iterator
from collections.abc import Mapping as Names
from collections.abc import Sequence as Items
from dataclasses import field, replace

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.diagnostics.place import VARIABLE_PREFIX, Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.text.interpolation import Scope
from sgpu_decl.text.lookups import lookup_value
from sgpu_decl.text.overrides import from_option
from sgpu_decl.text.variable_types import TYPES, misfit, type_of, typed
from sgpu_decl.text.yaml_nodes import Mapping, Node, Scalar, Sequence, is_nothing, place_of
from sgpu_decl.text.yaml_reader import load

_FIELDS = ("type", "default", "description", "values", "lookup")


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenValues:
    """Values that come from elsewhere than the block, the strongest first.

    Attributes:
        options: `--var name=value`, later ones win.
        environment: of `SGPU_VAR_name`, by the name of the variable.
        files: the mappings of `--var-file`, later ones win.
    """

    options: tuple[tuple[str, str], ...] = ()
    environment: Names[str, str] = field(default_factory=dict)
    files: tuple[Mapping, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """The variables of a file.

    Attributes:
        values: the value of every variable, with its references.
        types: the types of those that have one.
        allowed: the values that one may have, of those that limit them.
    """

    values: Names[str, Node]
    types: Names[str, str]
    allowed: Names[str, tuple[Scalar, ...]]


def read_variables(
    block: Node | None, given: GivenValues
) -> tuple[Variables, tuple[Diagnostic, ...]]:
    """Return every declared variable. Values with references are not checked here: see
    `reference_findings`.

    Args:
        block: the node of `variables`: each entry the default, or `{type, default, description,
            values}`.
    """
    findings: list[Diagnostic] = []
    declared: dict[str, Node] = {}
    keys: dict[str, Place] = {}
    if isinstance(block, Mapping):
        declared, keys = block.entries, block.keys
    elif block is not None and not is_nothing(block):
        findings.append(
            _wrong(
                "wrong_type",
                "`variables` must be a mapping",
                place_of(block),
                "write `variables: {name: value}`",
            )
        )
    findings += _undeclared(given, declared)
    values: dict[str, Node] = {}
    types: dict[str, str] = {}
    allowed: dict[str, tuple[Scalar, ...]] = {}
    for name, entry in declared.items():
        declaration, wrong = _declaration(name, entry)
        findings += wrong
        if declaration is None:
            continue
        if declaration.type is not None:
            types[name] = declaration.type
        if declaration.values is not None:
            allowed[name] = declaration.values
        value = _given_value(name, declaration, given) or declaration.default
        if value is not None:
            values[name] = typed(value, declaration.type)
            findings += misfit(name, value, declaration.type, declaration.values, at=value)
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
    return Variables(values=values, types=types, allowed=allowed), tuple(findings)


def reference_findings(variables: Variables, scope: Scope) -> Iterator[Diagnostic]:
    """Find variables that are of a wrong type, or none of the allowed values, once their references
    are filled in. References that lead nowhere are said where a variable is used."""
    for name, value in variables.values.items():
        limited = name in variables.types or name in variables.allowed
        if limited and isinstance(value, Scalar) and "${" in value.text:
            filled = scope.value("var", name, place_of(value)) or value
            kind, allowed = variables.types.get(name), variables.allowed.get(name)
            yield from misfit(name, filled, kind, allowed, at=value)


def full_declarations(root: Mapping) -> Mapping:
    """A file, or the overrides of a target, with each variable as `{default: …}`, so that a target
    that gives a value keeps the type and the description."""
    block = root.entries.get("variables")
    if not isinstance(block, Mapping):
        return root
    entries: dict[str, Node] = {
        name: entry if isinstance(entry, Mapping) else _with_default(entry, block.keys[name])
        for name, entry in block.entries.items()
    }
    return replace(root, entries={**root.entries, "variables": replace(block, entries=entries)})


def _with_default(value: Node, place: Place) -> Mapping:
    """A value of its own, where a layer below may look one up."""
    nothing = Scalar("", True, value.line, value.column, value.file)  # noqa: FBT003
    keys = dict.fromkeys(("default", "lookup"), place)
    entries: dict[str, Node] = {"default": value, "lookup": nothing}
    return Mapping(entries, keys, value.line, value.column, value.file)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declaration:
    type: str | None
    default: Node | None
    values: tuple[Scalar, ...] | None


def _declaration(name: str, entry: Node) -> tuple[_Declaration | None, list[Diagnostic]]:
    """What a variable may be; `None` if that is not clear."""
    if not isinstance(entry, Mapping):
        plain = None if is_nothing(entry) else entry
        return _Declaration(type=type_of(plain), default=plain, values=None), []
    wrong: list[Diagnostic] = []
    for key in entry.entries:
        if key not in _FIELDS:
            near = nearest(key, _FIELDS)
            known = ", ".join(_FIELDS)
            wrong.append(
                _wrong(
                    "unknown_key",
                    f"unknown key `{key}` in the variable `{name}`",
                    entry.keys[key],
                    f"did you mean `{near}`?"
                    if near
                    else f"known: {known}; a mapping as value stands under `default`",
                )
            )
    written = entry.entries.get("default")
    default = None if written is None or is_nothing(written) else written
    lookup = entry.entries.get("lookup")
    if lookup is not None and not is_nothing(lookup):
        value, new_findings = lookup_value(name, lookup)
        wrong += new_findings
        if default is not None:
            wrong.append(
                _wrong(
                    "contradiction",
                    f"the variable `{name}` has `default` and `lookup`",
                    entry.keys["lookup"],
                    "keep one of them; a target that replaces the other writes `default: null` or "
                    "`lookup: null`",
                )
            )
        default = default or value
    kind = entry.entries.get("type")
    named = None
    if kind is not None and not is_nothing(kind):
        named = kind.text if isinstance(kind, Scalar) and kind.text in TYPES else None
        if named is None:
            near = nearest(kind.text, TYPES) if isinstance(kind, Scalar) else None
            wrong.append(
                _wrong(
                    "unknown_value",
                    f"`type` of the variable `{name}` must be one of {_listed(TYPES)}",
                    entry.keys["type"],
                    f"did you mean `{near}`?" if near else "leave it out: the default has a type",
                )
            )
    values = entry.entries.get("values")
    allowed: tuple[Scalar, ...] | None = None
    if values is not None and not is_nothing(values):
        items = values.items if isinstance(values, Sequence) else ()
        allowed = tuple(item for item in items if isinstance(item, Scalar))
        if not allowed or len(allowed) < len(items):
            wrong.append(
                _wrong(
                    "wrong_type",
                    f"`values` of the variable `{name}` must be a list of single values",
                    entry.keys["values"],
                    "write `values: [small, large]`",
                )
            )
            allowed = None
    declaration = _Declaration(
        type=named or (None if kind is not None and wrong else type_of(default)),
        default=default,
        values=allowed,
    )
    return declaration, wrong


def _given_value(name: str, declaration: _Declaration, given: GivenValues) -> Node | None:
    """The strongest value that is given for a variable; it knows the default that it replaces."""
    options = dict(given.options)
    if name in options:
        return _from_text(options[name], f"--var {name}", declaration)
    if name in given.environment:
        return _from_text(given.environment[name], f"{VARIABLE_PREFIX}{name}", declaration)
    for values in reversed(given.files):
        node = values.entries.get(name)
        if node is not None and not is_nothing(node):
            return _over(node, declaration.default)
    return None


def _from_text(text: str, option: str, declaration: _Declaration) -> Node:
    if declaration.type in ("list", "mapping"):
        return _over(from_option(text, option), declaration.default)
    return Scalar(text, True, 1, 1, option, declaration.default)  # noqa: FBT003


def _over(node: Node, default: Node | None) -> Node:
    if isinstance(node, Scalar):
        return node._replace(before=default)
    return replace(node, before=default)


def _undeclared(given: GivenValues, declared: Names[str, Node]) -> Iterator[Diagnostic]:
    options = [(name, Place(f"--var {name}", 1, 1)) for name, _ in given.options]
    in_files = [item for values in given.files for item in values.keys.items()]
    for name, place in dict((*in_files, *options)).items():
        if name not in declared:
            yield _wrong(
                "unknown_variable",
                f"no variable `{name}` is declared",
                place,
                _nearest_hint(name, declared) or "declare it under `variables`",
            )
    for name in given.environment:
        if name not in declared:
            yield Diagnostic(
                code="unknown_variable",
                severity=Severity.WARNING,
                summary=f"the environment has `{VARIABLE_PREFIX}{name}`, and the file declares no "
                f"variable `{name}`",
                place=Place(f"{VARIABLE_PREFIX}{name}", 1, 1),
                hint=_nearest_hint(name, declared) or "unset it, or declare it under `variables`",
            )


def _nearest_hint(name: str, declared: Iterable[str]) -> str | None:
    near = nearest(name, tuple(declared))
    return f"did you mean `{near}`?" if near else None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _wrong(code: str, summary: str, place: Place, hint: str) -> Diagnostic:
    return Diagnostic(code=code, summary=summary, place=place, hint=hint)


def read_values(
    files: Items[tuple[bytes, str]],
) -> tuple[tuple[Mapping, ...], tuple[Diagnostic, ...]]:
    """The mappings in files, which are contents with names, and what is wrong with the others."""
    values: list[Mapping] = []
    findings: list[Diagnostic] = []
    for content, shown in files:
        document, new_findings = load(content, shown)
        findings += (_of_values(one) for one in new_findings)
        if document is not None:
            values.append(document.root)
    return tuple(values), tuple(findings)


def _of_values(finding: Diagnostic) -> Diagnostic:
    if finding.code not in ("not_a_mapping", "empty_file"):
        return finding
    return replace(finding, hint="write a line `NAME: VALUE` for each variable")
