"""A file to its validated runs: the whole way, with everything that is wrong at once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from sgpu_decl.config.include import ReadIncluded
from sgpu_decl.config.loaded import Loaded, LoadedJob, LoadedRun
from sgpu_decl.config.plain_values import project_shape, run_shape
from sgpu_decl.config.project_files import ProjectFiles, nothing_included, read_files
from sgpu_decl.config.project_reader import DeclaredJob, read_project
from sgpu_decl.config.renames import own_name_findings
from sgpu_decl.config.run_order import order_findings
from sgpu_decl.config.run_reader import (
    DeclaredRun,
    ReferenceContext,
    TextArguments,
    no_source,
    read_run,
)
from sgpu_decl.config.target_overrides import OF_TARGETS, with_target
from sgpu_decl.config.variable_files import read_values
from sgpu_decl.diagnostics.diagnostic import Diagnostic, has_errors, in_order
from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.diagnostics.place import VARIABLE_PREFIX, Place
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.jsonable import canonical, digest
from sgpu_decl.model.target import BASE, Mode
from sgpu_decl.text import yaml_nodes
from sgpu_decl.text.near_references import has_near_references, near_references
from sgpu_decl.text.overrides import set_value
from sgpu_decl.text.shell_references import has_shell_references, shell_references
from sgpu_decl.text.variables import GivenValues, read_variables, reference_findings

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
    read_included: ReadIncluded = nothing_included,
    variable_files: Sequence[tuple[bytes, str]] = (),
    text_arguments: TextArguments = no_source,
) -> tuple[Loaded | None, tuple[Diagnostic, ...]]:
    """Read a run or project file, and the files that it includes.

    Args:
        file: how the user named it, for places.
        target: the target whose overrides apply.
        variables: `--var` options, in order.
        sets: `--set` options, in order; they come after the target's overrides.
        environ: what `${env.NAME}` refers to.
        git: asked at most once for `commit`, `branch` and `dirty`.
        read_included: reads the files of `include`; without it, nothing is included.
        variable_files: the contents and names of `--var-file` files, in order.
        text_arguments: tells which arguments of an entrypoint are text: they are taken as written.

    Returns:
        What was read, `None` where anything is wrong, and every finding in order. Findings never
        repeat text that looks like a token.
    """
    files, findings = read_files(text, file, read_included)
    given, more = read_values(variable_files)
    findings += more
    return _read(
        files, findings, target, tuple(variables), tuple(sets), environ, cache(git), given,
        text_arguments,
    )  # fmt: skip


def read_targets(
    text: str | bytes,
    file: str,
    *,
    target: str | None,
    variables: Sequence[tuple[str, str]],
    sets: Sequence[tuple[str, str]],
    environ: Mapping[str, str],
    git: Callable[[], Mapping[str, str]],
    read_included: ReadIncluded = nothing_included,
    variable_files: Sequence[tuple[bytes, str]] = (),
    text_arguments: TextArguments = no_source,
) -> Mapping[str | None, tuple[Loaded | None, tuple[Diagnostic, ...]]]:
    """Read a file as it is for each of its targets, and before them without one (`None`).

    Args and what is returned for each: see `read`. The answer has an entry for `target` too if the
    files are so wrong that nobody knows their targets.
    """
    files, findings = read_files(text, file, read_included)
    given, more = read_values(variable_files)
    findings += more
    targets = _targets(files) if files is not None else ()
    cached_git = cache(git)
    return {
        name: _read(
            files,
            findings,
            name,
            tuple(variables),
            tuple(sets),
            environ,
            cached_git,
            given,
            text_arguments,
        )
        for name in dict.fromkeys((None, *targets, target))
    }


def _targets(files: ProjectFiles) -> tuple[str, ...]:
    block = files.root.entries.get("targets")
    names = block.entries if isinstance(block, yaml_nodes.Mapping) else {}
    return tuple(name for name in names if isinstance(names[name], yaml_nodes.Mapping))


def _read(
    files: ProjectFiles | None,
    findings: tuple[Diagnostic, ...],
    target: str | None,
    variables: Sequence[tuple[str, str]],
    sets: Sequence[tuple[str, str]],
    environ: Mapping[str, str],
    git: Callable[[], Mapping[str, str]],
    variable_files: tuple[yaml_nodes.Mapping, ...] = (),
    text_arguments: TextArguments = no_source,
) -> tuple[Loaded | None, tuple[Diagnostic, ...]]:
    loaded: Loaded | None = None
    if files is not None:
        loaded, content_findings = _of_files(
            files, target, variables, sets, environ, git, variable_files, text_arguments
        )
        if any(
            one.code == "merge_key" for one in findings
        ):  # what it would have brought is no lack
            content_findings = tuple(one for one in content_findings if one.code not in _LACKS)
        findings += content_findings
    ordered = masked_in_order(findings)
    return (None if has_errors(ordered) else loaded), ordered


def _of_files(
    files: ProjectFiles,
    target: str | None,
    options: Sequence[tuple[str, str]],
    sets: Sequence[tuple[str, str]],
    environ: Mapping[str, str],
    git: Callable[[], Mapping[str, str]],
    variable_files: tuple[yaml_nodes.Mapping, ...] = (),
    text_arguments: TextArguments = no_source,
) -> tuple[Loaded, tuple[Diagnostic, ...]]:
    root, context, findings = with_options(
        files, target, options, sets, environ, git, variable_files
    )
    context = replace(context, text_arguments=text_arguments)
    name: str | None = None
    jobs: tuple[LoadedJob, ...] = ()
    removed: tuple[Address, ...] = ()
    mode, production = Mode.PRODUCTION, False
    if files.kind == "run":
        start = Place(files.file, root.line, root.column)
        declared_runs, new_findings = read_run(root, None, start, context)
        own_places = {one.config.name: start for one in declared_runs}
        new_findings += tuple(order_findings(declared_runs, own_places, own_places))
        new_findings += tuple(own_name_findings(root))
    else:
        project, new_findings = read_project(root, context)
        declared_runs, name = project.runs, project.name
        jobs, mode = tuple(map(_loaded_job, project.jobs)), project.mode
        production = project.production
        removed = project.removed
    runs = tuple(loaded_run(one) for one in declared_runs)
    return (
        Loaded(
            kind=files.kind, file=files.file, project_name=name, target=target, runs=runs,
            config_digest=digest_of(runs, jobs, mode, removed), jobs=jobs, mode=mode,
            production=production,
            targets=_targets(files), included=files.included, removed=removed,
        ),
        (*findings, *new_findings),
    )  # fmt: skip


def with_options(
    files: ProjectFiles,
    target: str | None,
    options: Sequence[tuple[str, str]],
    sets: Sequence[tuple[str, str]],
    environ: Mapping[str, str],
    git: Callable[[], Mapping[str, str]],
    variable_files: tuple[yaml_nodes.Mapping, ...] = (),
) -> tuple[yaml_nodes.Mapping, ReferenceContext, tuple[Diagnostic, ...]]:
    """Lay the target and the options over the files, and read their variables.

    Returns:
        The root without targets and variables, what its references may refer to, and what is wrong.
    """
    is_project = files.kind == "project"
    shape = project_shape() if is_project else run_shape()
    root, findings = with_target(files.root, target, shape, OF_TARGETS if is_project else ())
    for path, value in sets:
        root, new_findings = set_value(root, path, value, shape)
        findings += new_findings
    texts = (*files.texts, *(value for _, value in sets))
    if any(map(has_near_references, texts)):
        findings += tuple(near_references(root, runs=is_project))
    if any(map(has_shell_references, texts)):
        findings += tuple(shell_references(root, project=is_project))
    root, block = yaml_nodes.without(root, "variables")
    given = GivenValues(
        options=tuple(options), environment=_of_environment(environ), files=variable_files
    )
    variables, new_findings = read_variables(block, given)
    context = ReferenceContext(
        variables=variables.values, types=variables.types,
        target=target or BASE, project=None, environ=environ, git=git,
        references=any("${" in text for text in texts)
        or any("${" in text for _, text in options)
        or bool(given.environment or variable_files),
        folders=files.folders, run_files=files.run_files,
    )  # fmt: skip
    findings += new_findings
    findings += tuple(reference_findings(variables, _named(context, root).scope(None)))
    return root, context, findings


def _named(context: ReferenceContext, root: yaml_nodes.Mapping) -> ReferenceContext:
    """With the name of the project, as far as it is known before the project is read."""
    project = root.entries.get("project")
    name = project.entries.get("name") if isinstance(project, yaml_nodes.Mapping) else None
    return replace(context, project=name.text) if isinstance(name, yaml_nodes.Scalar) else context


def _of_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The values of variables that the environment gives, by the names of the variables."""
    names = [name for name in environ if name.startswith(VARIABLE_PREFIX)]
    return {name.removeprefix(VARIABLE_PREFIX): environ[name] for name in names}


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
    runs: Iterable[LoadedRun],
    jobs: Iterable[LoadedJob] = (),
    mode: Mode = Mode.PRODUCTION,
    removed: Iterable[Address] = (),
) -> str:
    """The digest of what files say, whatever the order of the files and of what they hold."""
    lines = [f"{run.address} {run.spec}" for run in runs]
    lines += [f"{job.address} {job.spec}" for job in jobs]
    lines += [f"removed {address}" for address in removed]
    # A job's spec has it.
    lines += [
        f"renamed {run.config.renamed_from} {run.address}"
        for run in runs
        if run.config.renamed_from is not None
    ]
    lines.sort()
    if mode is not Mode.PRODUCTION:
        lines.append(f"mode {mode}")
    return digest("\n".join(lines))


def masked_in_order(findings: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Findings in order, without any text that looks like a token. Where a field says itself that
    it holds a password, it also knows what to write instead."""
    found = tuple(findings)
    said = {one.place for one in found if one.code == "password_in_url"}
    return in_order(
        _masked(one) for one in found if one.code != "literal_token" or one.place not in said
    )


def _masked(finding: Diagnostic) -> Diagnostic:
    summary, hint = mask(finding.summary), finding.hint and mask(finding.hint)
    if summary == finding.summary and hint == finding.hint:
        return finding
    return replace(finding, summary=summary, hint=hint)
