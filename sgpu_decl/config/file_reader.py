"""A file to its validated runs: the whole way, with everything that is wrong at once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Literal

from sgpu_decl.config.loaded import Loaded, LoadedJob, LoadedRun
from sgpu_decl.config.plain_values import project_shape, run_shape
from sgpu_decl.config.project_reader import DeclaredJob, read_project
from sgpu_decl.config.run_reader import Declared, Surroundings, read_run
from sgpu_decl.config.target_overrides import with_target
from sgpu_decl.diagnostics.diagnostic import Diagnostic, has_errors, in_order
from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.jsonable import canonical, digest
from sgpu_decl.model.target import BASE, Mode
from sgpu_decl.text import file_limits, yaml_nodes
from sgpu_decl.text.near_references import has_near_references, near_references
from sgpu_decl.text.overrides import set_value
from sgpu_decl.text.shell_references import has_shell_references, shell_references
from sgpu_decl.text.variables import read_variables
from sgpu_decl.text.yaml_reader import load

__all__ = [
    "digest_of",
    "loaded_run",
    "overlaid",
    "read",
    "read_targets",
    "told",
]


_LACKS = frozenset({"missing_key", "no_entrypoint"})


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
    document, found = load(text, file, limits=file_limits.limits_for(text, file))
    return _read(document, found, target, tuple(variables), tuple(sets), environ, cache(git))


def read_targets(
    text: str | bytes,
    file: str,
    *,
    variables: Sequence[tuple[str, str]],
    sets: Sequence[tuple[str, str]],
    environ: Mapping[str, str],
    git: Callable[[], Mapping[str, str]],
) -> Mapping[str | None, tuple[Loaded | None, tuple[Diagnostic, ...]]]:
    """Read a file as it is for each of its targets, and before them without one (`None`).

    Args and what is returned for each: see `read`.
    """
    document, found = load(text, file, limits=file_limits.limits_for(text, file))
    targets = _targets(document) if document is not None else ()
    asked = cache(git)
    return {
        name: _read(document, found, name, tuple(variables), tuple(sets), environ, asked)
        for name in (None, *targets)
    }


def _targets(document: yaml_nodes.Document) -> tuple[str, ...]:
    block = document.root.entries.get("targets")
    names = block.entries if isinstance(block, yaml_nodes.Mapping) else {}
    return tuple(name for name in names if isinstance(names[name], yaml_nodes.Mapping))


def _read(
    document: yaml_nodes.Document | None,
    found: tuple[Diagnostic, ...],
    target: str | None,
    variables: Sequence[tuple[str, str]],
    sets: Sequence[tuple[str, str]],
    environ: Mapping[str, str],
    git: Callable[[], Mapping[str, str]],
) -> tuple[Loaded | None, tuple[Diagnostic, ...]]:
    loaded: Loaded | None = None
    if document is not None:
        loaded, more = _of_document(document, target, variables, sets, environ, git)
        if any(one.code == "merge_key" for one in found):  # what it would have brought is no lack
            more = tuple(one for one in more if one.code not in _LACKS)
        found += more
    ordered = told(found)
    return (None if has_errors(ordered) else loaded), ordered


def _of_document(
    document: yaml_nodes.Document,
    target: str | None,
    options: Sequence[tuple[str, str]],
    sets: Sequence[tuple[str, str]],
    environ: Mapping[str, str],
    git: Callable[[], Mapping[str, str]],
) -> tuple[Loaded | None, tuple[Diagnostic, ...]]:
    file, root = document.file, document.root
    kind: Literal["run", "project"] = "project" if file_limits.is_project(root, file) else "run"
    if kind == "run":  # it may have been read under the limits of a project
        if document.size > file_limits.RUN_FILE.size:
            return None, (file_limits.too_large(file, file_limits.RUN_FILE),)
        if document.nodes > file_limits.RUN_FILE.nodes:
            return None, (file_limits.too_many(file, file_limits.RUN_FILE),)
    root, around, found = overlaid(document, kind, target, options, sets, environ, git)
    name: str | None = None
    unsupported: tuple[tuple[str, Place], ...] = ()
    jobs: tuple[LoadedJob, ...] = ()
    mode = Mode.PRODUCTION
    if kind == "run":
        declared, wrong = read_run(root, None, Place(file, root.line, root.column), around)
    else:
        project, wrong = read_project(root, around)
        declared, name, unsupported = project.runs, project.name, project.unsupported
        jobs, mode = tuple(map(_loaded_job, project.jobs)), project.mode
    runs = tuple(loaded_run(one) for one in declared)
    return (
        Loaded(
            kind=kind, file=file, project_name=name, target=target, runs=runs,
            config_digest=digest_of(runs, jobs, mode), source=document.source, jobs=jobs,
            mode=mode, unsupported=unsupported, targets=_targets(document),
        ),
        (*found, *wrong),
    )  # fmt: skip


def overlaid(
    document: yaml_nodes.Document,
    kind: Literal["run", "project"],
    target: str | None,
    options: Sequence[tuple[str, str]],
    sets: Sequence[tuple[str, str]],
    environ: Mapping[str, str],
    git: Callable[[], Mapping[str, str]],
) -> tuple[yaml_nodes.Mapping, Surroundings, tuple[Diagnostic, ...]]:
    """Lay the target and the options over a file, and read its variables.

    Returns:
        The root without targets and variables, what its references may refer to, and what is wrong.
    """
    shape = run_shape() if kind == "run" else project_shape()
    root, found = with_target(document.root, target, shape)
    for path, value in sets:
        root, wrong = set_value(root, path, value, shape)
        found += wrong
    texts = (document.source, *(value for _, value in sets))
    if any(map(has_near_references, texts)):
        found += tuple(near_references(root, runs=kind == "project"))
    if any(map(has_shell_references, texts)):
        found += tuple(shell_references(root, project=kind == "project"))
    root, block = yaml_nodes.without(root, "variables")
    values, wrong = read_variables(block, options)
    around = Surroundings(
        variables=values, target=target or BASE, project=None, environ=environ, git=git,
        references="${" in document.source or bool(options) or any("${" in v for _, v in sets),
    )  # fmt: skip
    return root, around, (*found, *wrong)


def loaded_run(one: Declared) -> LoadedRun:
    address = Address.run(one.config.name, one.key)
    return LoadedRun(address=address, config=one.config, places=one.places, spec=one.spec)


def _loaded_job(one: DeclaredJob) -> LoadedJob:
    return LoadedJob(
        address=Address(Kind.JOB, one.name),
        config=one.config,
        places=one.places,
        place=one.place,
        spec=canonical(one.config.model_dump(mode="json", exclude_defaults=True)),
    )


def digest_of(
    runs: Iterable[LoadedRun], jobs: Iterable[LoadedJob] = (), mode: Mode = Mode.PRODUCTION
) -> str:
    lines = [f"{run.address} {run.spec}" for run in runs]
    lines += [f"{job.address} {job.spec}" for job in jobs]
    if mode is not Mode.PRODUCTION:
        lines.append(f"mode {mode}")
    return digest("\n".join(lines))


def told(found: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Findings in order, without any text that looks like a token."""
    return in_order(_masked(one) for one in found)


def _masked(found: Diagnostic) -> Diagnostic:
    summary, hint = mask(found.summary), found.hint and mask(found.hint)
    if summary == found.summary and hint == found.hint:
        return found
    return replace(found, summary=summary, hint=hint)
