"""A file to its validated runs: the whole way, with everything that is wrong at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

from sgpu_decl.config.declaring import Declared, Surroundings, read_run
from sgpu_decl.config.run import RunConfig
from sgpu_decl.config.shaping import project_shape, run_shape
from sgpu_decl.config.sharing import read_project, unknown_keys
from sgpu_decl.diagnostics.diagnostic import Diagnostic, has_errors, in_order
from sgpu_decl.diagnostics.masking import mask
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.diagnostics.suggesting import nearest
from sgpu_decl.model.address import Address
from sgpu_decl.model.jsonable import digest
from sgpu_decl.model.target import BASE, misnamed
from sgpu_decl.text import limits, nodes
from sgpu_decl.text.loading import load
from sgpu_decl.text.merging import merge, set_value
from sgpu_decl.text.shape import Shape
from sgpu_decl.text.variables import read_variables

__all__ = ["Loaded", "LoadedRun", "read"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRun:
    """One run, or one cell of a matrix.

    Attributes:
        config: without the matrix; `args` holds the cell's values.
        places: where the user wrote each field, by its dotted path.
        spec: canonical JSON of the config without defaults, its name and the matrix.
    """

    address: Address
    config: RunConfig
    places: Mapping[str, Place] = field(compare=False)
    spec: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Everything that one file says.

    Attributes:
        runs: in the order of the file, the cells of a matrix in theirs.
        config_digest: of all addresses and specs: the same while nothing that matters changed.
        source: the file's text, for excerpts.
        unsupported: blocks of a project that are valid and that nothing acts on yet.
    """

    kind: Literal["run", "project"]
    file: str
    project_name: str | None
    target: str | None
    runs: tuple[LoadedRun, ...]
    config_digest: str
    source: str
    unsupported: tuple[tuple[str, Place], ...] = ()


def read(
    text: str | bytes,
    file: str,
    *,
    target: str | None,
    variables: Sequence[tuple[str, str]],
    sets: Sequence[tuple[str, str]],
    environ: Mapping[str, str],
    git: Callable[[], Mapping[str, str]],
) -> tuple[Loaded | None, tuple[Diagnostic, ...]]:
    """Read a run or project file.

    Args:
        file: how the user named it, for places.
        target: the target whose overrides apply.
        variables: `--var` options, in order.
        sets: `--set` options, in order; they come after the target's overrides.
        environ: what `${env.NAME}` refers to.
        git: asked at most once for `commit`, `branch` and `dirty`.

    Returns:
        What was read, `None` where anything is wrong, and every finding in order. Findings never
        repeat text that looks like a token.
    """
    document, found = load(text, file, limits=limits.limits_for(text, file))
    loaded: Loaded | None = None
    if document is not None:
        loaded, more = _of_document(
            document, target, tuple(variables), tuple(sets), environ, cache(git)
        )
        found += more
    ordered = in_order(_masked(one) for one in found)
    return (None if has_errors(ordered) else loaded), ordered


def _of_document(
    document: nodes.Document,
    target: str | None,
    options: Sequence[tuple[str, str]],
    sets: Sequence[tuple[str, str]],
    environ: Mapping[str, str],
    git: Callable[[], Mapping[str, str]],
) -> tuple[Loaded | None, tuple[Diagnostic, ...]]:
    file, root = document.file, document.root
    kind: Literal["run", "project"] = "project" if limits.is_project(root, file) else "run"
    if kind == "run":  # it may have been read under the limits of a project
        if document.size > limits.RUN_FILE.size:
            return None, (limits.too_large(file, limits.RUN_FILE),)
        if document.nodes > limits.RUN_FILE.nodes:
            return None, (limits.too_many(file, limits.RUN_FILE),)
    shape = run_shape() if kind == "run" else project_shape()
    root, found = _with_target(root, target, shape)
    for path, value in sets:
        root, wrong = set_value(root, path, value, shape)
        found += wrong
    root, block = _without(root, "variables")
    values, wrong = read_variables(block, options)
    found += wrong
    around = Surroundings(
        variables=values, target=target or BASE, project=None, environ=environ, git=git,
        references="${" in document.source or bool(options) or any("${" in v for _, v in sets),
    )  # fmt: skip
    name: str | None = None
    unsupported: tuple[tuple[str, Place], ...] = ()
    if kind == "run":
        declared, wrong = read_run(root, None, Place(file, root.line, root.column), around)
    else:
        project, wrong = read_project(root, around)
        declared, name, unsupported = project.runs, project.name, project.unsupported
    found += wrong
    runs = tuple(_loaded(one) for one in declared)
    lines = "\n".join(f"{run.address} {run.spec}" for run in runs)
    return (
        Loaded(
            kind=kind, file=file, project_name=name, target=target, runs=runs,
            config_digest=digest(lines), source=document.source, unsupported=unsupported,
        ),
        found,
    )  # fmt: skip


def _loaded(one: Declared) -> LoadedRun:
    address = Address.run(one.config.name, one.key)
    return LoadedRun(address=address, config=one.config, places=one.places, spec=one.spec)


def _with_target(
    root: nodes.Mapping, target: str | None, shape: Shape
) -> tuple[nodes.Mapping, tuple[Diagnostic, ...]]:
    """Lay the chosen target over the root; the names in the other targets are checked alone."""
    root, block = _without(root, "targets")
    targets, keys = (block.entries, block.keys) if isinstance(block, nodes.Mapping) else ({}, {})
    found: list[Diagnostic] = []
    if block is not None and not isinstance(block, nodes.Mapping):
        found.append(_wrong("wrong_type", "`targets` must be a mapping", nodes.place_of(block),
                            "write `targets: {dev: {…}}`"))  # fmt: skip
    for name, over in targets.items():
        if hint := misnamed(name):
            found.append(_wrong("bad_name", f"`{name}` is no name of a target",
                                keys[name], hint))  # fmt: skip
        if not isinstance(over, nodes.Mapping):
            if isinstance(over, nodes.Scalar) and over.plain and not over.text:
                continue
            found.append(_wrong("wrong_type", f"`targets.{name}` must be a mapping",
                                nodes.place_of(over), "list the fields that differ"))  # fmt: skip
        elif "targets" in over.entries:
            found.append(_wrong("unknown_key", f"a target cannot hold targets (`{name}`)",
                                over.keys["targets"], "write them side by side"))  # fmt: skip
        elif name == target:
            merged = merge(root, over)
            root = merged if isinstance(merged, nodes.Mapping) else root
        else:
            found += unknown_keys(_without(over, "variables")[0], shape, f"targets.{name}")
    if target is not None and target not in targets:
        near = nearest(target, targets)
        known = ", ".join(f"`{name}`" for name in targets)
        place = nodes.place_of(block) if block is not None else Place(root.file, 1, 1)
        hint = f"known: {known}" if known else "declare it under `targets`"
        hint = f"did you mean `{near}`?" if near else hint
        found.append(_wrong("unknown_target", f"there is no target `{target}`", place, hint))
    return root, tuple(found)


def _without(root: nodes.Mapping, key: str) -> tuple[nodes.Mapping, nodes.Node | None]:
    if key not in root.entries:
        return root, None
    entries = {name: node for name, node in root.entries.items() if name != key}
    return replace(root, entries=entries), root.entries[key]


def _wrong(code: str, summary: str, place: Place, hint: str) -> Diagnostic:
    return Diagnostic(code=code, summary=summary, place=place, hint=hint)


def _masked(found: Diagnostic) -> Diagnostic:
    summary, hint = mask(found.summary), found.hint and mask(found.hint)
    if summary == found.summary and hint == found.hint:
        return found
    return replace(found, summary=summary, hint=hint)
