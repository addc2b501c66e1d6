"""The values that the Tab key offers, from files alone: neither a backend is asked nor the store of
a shared state, of which the copy of this machine is read."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from sgpu_decl.api import Location, Session
from sgpu_decl.cli.commands import COMMANDS, SUBCOMMANDS
from sgpu_decl.distribution import shipped_folder
from sgpu_decl.errors import SgpuError

if TYPE_CHECKING:
    from sgpu_decl.model.state import Resource

_WIDEST = 70
_OF_FILE = (
    "requires", "project", "mode", "include", "state", "variables", "targets", "removed",
)  # fmt: skip
"""Blocks of a project that belong to the file: nobody changes them for one command."""

Offers = Iterable[tuple[str, str]]
"""Values, each with what stands beside it."""


def offered(kinds: Sequence[str], context: click.Context, incomplete: str) -> list[CompletionItem]:
    """The values of these kinds that begin with what was typed. What cannot be read offers none:
    there is nowhere to say why."""
    items = []
    for kind in kinds:
        if kind in ("files", "folders"):
            items.append(CompletionItem(incomplete, type=kind))
            continue
        try:
            candidates = list(KINDS[kind](context, incomplete))
        except (SgpuError, OSError):
            continue
        items += [
            CompletionItem(value, help=text)
            for value, text in candidates
            if value.startswith(incomplete)
        ]
    return items


def _first_words(text: str) -> str:
    """What fits beside a value: the first sentence, or its beginning."""
    first = text.partition(". ")[0].partition(": ")[0]
    return first if len(first) <= _WIDEST else first[: _WIDEST - 1] + "…"


def _session(context: click.Context) -> "Session":
    project, target = context.params.get("project"), context.params.get("target")
    location = Location(project=Path(project) if project else None, target=target, offline=True)
    return context.with_resource(Session.open(location))


def _recorded(context: click.Context) -> "list[Resource]":
    """What the state has; nothing where it cannot be read, or was never read on this machine: what
    the files declare is offered all the same."""
    try:
        return _session(context).state.resources()
    except SgpuError:
        return []


def _runs(context: click.Context, incomplete: str) -> Offers:
    """Names of runs; after `train#`, its attempts, the newest first."""
    name, sign, _ = incomplete.partition("#")
    runs: dict[str, int] = {}
    for resource in _recorded(context):
        if resource.last is not None and (sign or not resource.gone):
            number = resource.last.ref.number
            runs[resource.address.name] = max(number, runs.get(resource.address.name, 0))
    if sign:
        return [(f"{name}#{number}", "") for number in range(runs.get(name, 0), 0, -1)]
    return [(run, f"{count} attempt{'s' * (count > 1)}") for run, count in runs.items()]


def _planned_runs(context: click.Context, incomplete: str) -> Offers:
    """Names of runs that can be planned: those of the file too, which may not have started yet."""
    offers = dict(_runs(context, incomplete))
    if "#" not in incomplete:
        for name in _session(context).declared_runs():
            offers.setdefault(name, "")
    return offers.items()


def _addresses(context: click.Context, _: str) -> Offers:
    return [(str(item.address), item.backend) for item in _recorded(context)]


def _targets(context: click.Context, _: str) -> Offers:
    context.params["target"] = None  # it is what is being typed
    return [(name, "") for name in _session(context).targets()]


def _settable_paths(context: click.Context, incomplete: str) -> Offers:
    """The fields that `--set` takes: those below what was typed, `.` after a block."""
    file = _session(context).file
    if file is None or file.name not in ("sgpu.yml", "sgpu.yaml"):
        return _fields("run", incomplete, without=("name", "variables", "targets"))
    if incomplete.startswith("runs.") and incomplete.count(".") == 1:
        return [(f"runs.{name}.", "") for name in _session(context).declared_runs()]
    return _fields("project", incomplete, without=_OF_FILE)


def _fields(schema: str, incomplete: str, *, without: Sequence[str] = ()) -> Offers:
    document = json.loads((shipped_folder("schemas") / f"{schema}.v1.schema.json").read_text())
    *above, _ = incomplete.split(".")
    node: Mapping[str, Any] = document
    for part in above:
        fields, values = _below(node, document)
        below = fields.get(part, values)
        if below is None:
            return
        node = below
    prefix = "".join(f"{part}." for part in above)
    for name, below in _below(node, document)[0].items():
        if not above and name in without:
            continue
        block = any(part is not None and part != {} for part in _below(below, document))
        yield f"{prefix}{name}{'.' if block else '='}", str(below.get("description", ""))


def _below(
    node: Mapping[str, Any], document: Mapping[str, Any]
) -> tuple[dict[str, Mapping[str, Any]], Mapping[str, Any] | None]:
    """The fields of a block, and what its other keys hold, None where it has no others."""
    fields: dict[str, Mapping[str, Any]] = {}
    values: Mapping[str, Any] | None = None
    for one in (node, *(part for key in ("anyOf", "oneOf", "allOf") for part in node.get(key, ()))):
        if "$ref" in one:
            more, others = _below(document["$defs"][one["$ref"].rpartition("/")[2]], document)
        else:
            more = one.get("properties", {})
            named = next(iter(one.get("patternProperties", {}).values()), None)
            others = one.get("additionalProperties") or named
            if one is not node and any(key in one for key in ("anyOf", "oneOf", "allOf")):
                more, others = _below(one, document)
        fields |= more
        if isinstance(others, Mapping):
            values = others
    return fields, values


def _explained_fields(_: click.Context, incomplete: str) -> Offers:
    """The fields that `sgpu explain` explains."""
    root, dot, rest = incomplete.partition(".")
    if not dot:
        return [("run", "The fields of a run."), ("project", "The fields of a project file.")]
    if root not in ("run", "project"):
        return []
    return [(f"{root}.{path[:-1]}", text) for path, text in _fields(root, rest)]


def _codes(_: click.Context, incomplete: str) -> Offers:
    if "." in incomplete:  # a field
        return []
    from sgpu_decl.diagnostics.codes import registry

    return [(code, entry.meaning) for code, entry in registry().items()]


def _failure_kinds(_: click.Context, incomplete: str) -> Offers:
    if "." in incomplete:  # a field
        return []
    from sgpu_decl.views.failure_text import failure_kinds

    return [(name, kind.meaning) for name, kind in failure_kinds().items()]


def _commands(context: click.Context, _: str) -> Offers:
    path = context.params.get("path") or ()
    table = SUBCOMMANDS.get(path[0], {}) if path else COMMANDS
    return [(name, line) for name, (_, line) in table.items()]


KINDS: dict[str, Callable[[click.Context, str], Offers]] = {
    "runs": _runs,
    "planned runs": _planned_runs,
    "addresses": _addresses,
    "targets": _targets,
    "settable paths": _settable_paths,
    "explained fields": _explained_fields,
    "codes": _codes,
    "failure kinds": _failure_kinds,
    "commands": _commands,
}
