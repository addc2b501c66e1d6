"""The YAML of an import. What sgpu would refuse is taken back, and counts as lost."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import yaml

from sgpu_decl.config.file_reader import Overrides, read
from sgpu_decl.config.job import Job
from sgpu_decl.config.project import ProjectFile
from sgpu_decl.config.project_files import nothing_included, read_files
from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.errors import InvalidInput
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.importing.foreign_tool import FieldTranslation
from sgpu_decl.importing.translation import NEXT, Fate, Keys, changed, lost
from sgpu_decl.model.jsonable import Json
from sgpu_decl.text import yaml_nodes
from sgpu_decl.text.yaml_format import formatted
from sgpu_decl.text.yaml_nodes import Node, resolve
from sgpu_decl.text.yaml_reader import load_file

NEEDED = frozenset({"name", "gpus", "type", "command"})
"""The fields that no run is without."""
_FILE = "imported.yaml"
_CODE = "not_importable"
_MISSING = frozenset({"missing_key", "no_entrypoint"})


class _Dumper(yaml.SafeDumper):
    """Quotes what our reader, which is one of YAML 1.2, would take for something else than text."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  PyYAML's signature
        return True

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        if kind is not yaml.ScalarNode or not implicit[0]:
            return str(super().resolve(kind, value, implicit))  # type: ignore[no-untyped-call]
        return f"tag:yaml.org,2002:{_TAGS[type(resolve(value))]}"


_TAGS = {str: "str", int: "int", float: "float", bool: "bool", type(None): "null"}


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    )


_Dumper.add_representer(str, _represent_text)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenYaml:
    """The YAML, the fields, some of which are lost now, the defaults that are left, and warnings
    about the YAML."""

    text: str
    fields: tuple[FieldTranslation, ...]
    defaults: tuple[FieldTranslation, ...]
    findings: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Put:
    """A value in the YAML: its path there, and which of the values of which translation it is."""

    path: Keys
    of: int
    number: int

    @property
    def is_needed(self) -> bool:
        return _is_needed(self.path)


def written(
    fields: Sequence[FieldTranslation], defaults: Sequence[FieldTranslation], header: str
) -> WrittenYaml:
    """The YAML that says what the fields became.

    Args:
        header: comments in front of it.

    Raises:
        InvalidInput: what no run is without is missing, or refused.
    """
    said = [*defaults, *_once(fields)]
    while True:
        content, puts = _assembled(said)
        text = header + yaml.dump(
            content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100
        )
        findings = _findings(text, content)
        errors = [one for one in findings if one.severity is Severity.ERROR]
        if not errors:
            return WrittenYaml(
                text=formatted(text, _FILE)[0] or text,
                fields=tuple(said[len(defaults) :]),
                defaults=tuple(one for one in said[: len(defaults)] if _says_something(one)),
                findings=findings,
            )
        causes = [(error, _cause(error, text, puts)) for error in errors]
        wrong = [(error, put) for error, put in causes if put is not None and not put.is_needed]
        if not wrong:
            error, put = causes[0]
            raise _refused(error, None if put is None else said[put.of], said)
        for of in {put.of for _, put in wrong}:
            numbers = {put.number for _, put in wrong if put.of == of}
            error = next(error for error, put in wrong if put.of == of)
            said[of] = _without(said[of], numbers, error)


def _without(one: FieldTranslation, numbers: set[int], error: Diagnostic) -> FieldTranslation:
    """A field without some of its values. It is lost, unless it has what no run is without."""
    puts = [put for number, put in enumerate(one.translation.puts) if number not in numbers]
    if not any(_is_needed(path) for path, _ in puts):
        return replace(one, translation=lost(error.summary, error.hint))
    note = "; ".join(filter(None, (one.translation.note, f"without the rest: {error.summary}")))
    return replace(one, translation=changed(note, *puts, hint=error.hint))


def _is_needed(path: Keys) -> bool:
    """Whether a path is that of a field which no run is without: in a run file, or in a project."""
    return path[-1] in NEEDED and len(path) in (1, 3)


def _says_something(one: FieldTranslation) -> bool:
    return one.translation.fate is not Fate.LOST


def _once(fields: Iterable[FieldTranslation]) -> Iterator[FieldTranslation]:
    """The fields, of which one is lost that sets a field of ours to another value than one before
    has."""
    values: dict[Keys, tuple[Json, FieldTranslation]] = {}
    for one in fields:
        puts = [(keys, value) for keys, value in one.translation.puts if keys[-1] != NEXT]
        others = [values[keys] for keys, value in puts if values.get(keys, (value,))[0] != value]
        if others:
            note = f"`{'.'.join(others[0][1].path)}` says something else for the same"
            yield replace(one, translation=lost(note, "remove one of them"))
            continue
        values |= {keys: (value, one) for keys, value in puts}
        yield one


def _refused(
    error: Diagnostic, one: FieldTranslation | None, fields: Sequence[FieldTranslation]
) -> InvalidInput:
    """The error of a file from which no run can be made: of one field, or of those that are lost if
    something is missing."""
    if one is not None and error.code not in _MISSING:
        summary = f"`{'.'.join(one.path)}` cannot be imported: {error.summary}"
        findings = (Diagnostic(code=_CODE, summary=summary, hint=error.hint, place=one.place),)
        return InvalidInput(summary, hint=error.hint, code=_CODE, diagnostics=findings)
    lacking = [one for one in fields if one.translation.fate is Fate.LOST and one.place]
    return InvalidInput(
        f"no run can be made of the file: {error.summary}",
        hint=error.hint,
        code=_CODE,
        diagnostics=tuple(
            Diagnostic(
                code=_CODE,
                summary=f"`{'.'.join(one.path)}` is lost: {one.translation.note}",
                hint=one.translation.hint,
                place=one.place,
            )
            for one in lacking
        ),
    )


def _assembled(said: Iterable[FieldTranslation]) -> tuple[dict[str, Any], list[_Put]]:
    """The values of translations as one mapping, and where each of them lies."""
    content: dict[str, Any] = {}
    puts: list[_Put] = []
    for of, one in enumerate(said):
        for number, (path, value) in enumerate(one.translation.puts):
            block: Any = content
            for key, below in pairwise(path):
                block = block.setdefault(key, [] if below == NEXT else {})
            key = str(len(block)) if isinstance(block, list) else path[-1]
            if isinstance(block, list):
                block.append(value)
            else:
                block[key] = value
            puts.append(_Put(path=(*path[:-1], key), of=of, number=number))
    return _ordered(content), puts


def _ordered(content: dict[str, Any]) -> dict[str, Any]:
    """A run or project file with its fields in the order of the reference."""
    if "runs" not in content:
        return _in_order(content, RunConfig.model_fields)
    runs = {name: _in_order(run, RunConfig.model_fields) for name, run in content["runs"].items()}
    jobs = {name: _in_order(job, Job.model_fields) for name, job in content["jobs"].items()}
    first = ("project", "variables", *ProjectFile.model_fields)
    return _in_order(content | {"runs": runs, "jobs": jobs}, first)


def _in_order(block: dict[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    ordered = {key: block[key] for key in (*fields, *block) if key in block}
    backend = ordered.get("backend", {})
    return ordered | ({"backend": backend["kind"]} if [*backend] == ["kind"] else {})


def _findings(text: str, content: Mapping[str, Any]) -> tuple[Diagnostic, ...]:
    """What is wrong with a file, without a target and with each of its targets. A variable without
    a value gets one with the command."""
    parsed = read_files(text, _FILE, nothing_included)
    variables = content.get("variables", {})
    given = [
        (name, "1")
        for name, said in variables.items()
        if isinstance(said, dict) and not said.keys() & {"default", "lookup"}
    ]
    found: dict[Diagnostic, None] = {}
    for target in (None, *content.get("targets", {})):
        overrides = Overrides(target=target, variables=given, environ={}, git=_revision)
        found |= dict.fromkeys(read(parsed, overrides)[1])
    return tuple(found)


def _revision() -> dict[str, str]:
    """In the place of that of the checkout."""
    return {"commit": "0" * 40, "branch": "main", "dirty": "false"}


def _cause(error: Diagnostic, text: str, puts: Sequence[_Put]) -> _Put | None:
    """The value that an error is about: the last one that starts at its place or before. An error
    at the start of the file is about none."""
    document, _ = load_file(text, _FILE)
    if document is None or error.place is None:
        return None
    end = (error.place.line, error.place.column)
    starts = [(_start(document.root, put.path), put) for put in puts]
    before = [(start, put) for start, put in starts if start <= end]
    return max(before, key=lambda one: one[0])[1] if before else None


def _start(node: Node, path: Keys) -> tuple[int, int]:
    start = (node.line, node.column)
    for key in path:
        if isinstance(node, yaml_nodes.Mapping):
            start = (node.keys[key].line, node.keys[key].column)
            node = node.entries[key]
        elif isinstance(node, yaml_nodes.Sequence):
            node = node.items[int(key)]
            start = (node.line, node.column)
    return start
