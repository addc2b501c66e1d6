"""A file to its validated runs: the whole way, with everything that is wrong at once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Literal

from sgpu_decl.config.loaded import Loaded, LoadedJob, LoadedRun
from sgpu_decl.config.plain_values import project_shape, run_shape
from sgpu_decl.config.project_reader import DeclaredJob, read_project
from sgpu_decl.config.run_order import order_findings
from sgpu_decl.config.run_reader import DeclaredRun, ReferenceContext, read_run
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
    "masked_in_order",
    "read",
    "read_targets",
    "with_options",
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
    document, findings = load(text, file, limits=file_limits.limits_for(text, file))
    return _read(document, findings, target, tuple(variables), tuple(sets), environ, cache(git))


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
    document, findings = load(text, file, limits=file_limits.limits_for(text, file))
    targets = _targets(document) if document is not None else ()
    cached_git = cache(git)
    return {
        name: _read(document, findings, name, tuple(variables), tuple(sets), environ, cached_git)
        for name in (None, *targets)
    }


def _targets(document: yaml_nodes.Document) -> tuple[str, ...]:
    block = document.root.entries.get("targets")
    names = block.entries if isinstance(block, yaml_nodes.Mapping) else {}
    return tuple(name for name in names if isinstance(names[name], yaml_nodes.Mapping))


def _read(
    document: yaml_nodes.Document | None,
    findings: tuple[Diagnostic, ...],
    target: str | None,
    variables: Sequence[tuple[str, str]],
    sets: Sequence[tuple[str, str]],
    environ: Mapping[str, str],
    git: Callable[[], Mapping[str, str]],
) -> tuple[Loaded | None, tuple[Diagnostic, ...]]:
    loaded: Loaded | None = None
    if document is not None:
        loaded, document_findings = _of_document(document, target, variables, sets, environ, git)
        if any(
            one.code == "merge_key" for one in findings
        ):  # what it would have brought is no lack
            document_findings = tuple(one for one in document_findings if one.code not in _LACKS)
        findings += document_findings
    ordered = masked_in_order(findings)
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
    root, context, findings = with_options(document, kind, target, options, sets, environ, git)
    name: str | None = None
    unsupported: tuple[tuple[str, Place], ...] = ()
    jobs: tuple[LoadedJob, ...] = ()
    mode = Mode.PRODUCTION
    if kind == "run":
        start = Place(file, root.line, root.column)
        declared_runs, new_findings = read_run(root, None, start, context)
        own_places = {one.config.name: start for one in declared_runs}
        new_findings += tuple(order_findings(declared_runs, own_places, own_places))
    else:
        project, new_findings = read_project(root, context)
        declared_runs, name, unsupported = project.runs, project.name, project.unsupported
        jobs, mode = tuple(map(_loaded_job, project.jobs)), project.mode
    runs = tuple(loaded_run(one) for one in declared_runs)
    return (
        Loaded(
            kind=kind, file=file, project_name=name, target=target, runs=runs,
            config_digest=digest_of(runs, jobs, mode), source=document.source, jobs=jobs,
            mode=mode, unsupported=unsupported, targets=_targets(document),
        ),
        (*findings, *new_findings),
    )  # fmt: skip


def with_options(
    document: yaml_nodes.Document,
    kind: Literal["run", "project"],
    target: str | None,
    options: Sequence[tuple[str, str]],
    sets: Sequence[tuple[str, str]],
    environ: Mapping[str, str],
    git: Callable[[], Mapping[str, str]],
) -> tuple[yaml_nodes.Mapping, ReferenceContext, tuple[Diagnostic, ...]]:
    """Lay the target and the options over a file, and read its variables.

    Returns:
        The root without targets and variables, what its references may refer to, and what is wrong.
    """
    shape = run_shape() if kind == "run" else project_shape()
    root, findings = with_target(document.root, target, shape)
    for path, value in sets:
        root, new_findings = set_value(root, path, value, shape)
        findings += new_findings
    texts = (document.source, *(value for _, value in sets))
    if any(map(has_near_references, texts)):
        findings += tuple(near_references(root, runs=kind == "project"))
    if any(map(has_shell_references, texts)):
        findings += tuple(shell_references(root, project=kind == "project"))
    root, block = yaml_nodes.without(root, "variables")
    values, new_findings = read_variables(block, options)
    context = ReferenceContext(
        variables=values, target=target or BASE, project=None, environ=environ, git=git,
        references="${" in document.source or bool(options) or any("${" in v for _, v in sets),
    )  # fmt: skip
    return root, context, (*findings, *new_findings)


def loaded_run(one: DeclaredRun) -> LoadedRun:
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


def masked_in_order(findings: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Findings in order, without any text that looks like a token."""
    return in_order(_masked(one) for one in findings)


def _masked(finding: Diagnostic) -> Diagnostic:
    summary, hint = mask(finding.summary), finding.hint and mask(finding.hint)
    if summary == finding.summary and hint == finding.hint:
        return finding
    return replace(finding, summary=summary, hint=hint)
