"""A file to its validated runs: the whole way, with everything that is wrong at once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from sgpu_decl.config.enabled import run_if_enabled
from sgpu_decl.config.loaded import Loaded, LoadedJob, LoadedRun
from sgpu_decl.config.plain_values import project_shape, run_shape
from sgpu_decl.config.project_files import ParsedFiles, ProjectFiles
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
from sgpu_decl.config.target_overrides import OF_TARGETS, declared_targets, with_target
from sgpu_decl.config.user_references import user_findings
from sgpu_decl.diagnostics.diagnostic import Diagnostic, has_errors, in_order
from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.diagnostics.place import VARIABLE_PREFIX, Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.jsonable import Spec, digest
from sgpu_decl.model.target import BASE, Mode
from sgpu_decl.text import yaml_nodes
from sgpu_decl.text.near_references import has_near_references, near_references
from sgpu_decl.text.overrides import set_value
from sgpu_decl.text.shell_text import has_shell_references, shell_references
from sgpu_decl.text.variables import GivenValues, read_values, read_variables, reference_findings

_LACKS = frozenset({"missing_key", "no_entrypoint"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What the values of a file depend on, beside the file.

    Attributes:
        target: the target whose overrides apply.
        variables: `--var` options, in order.
        sets: `--set` options, in order; they come after the target's overrides.
        variable_files: the contents and names of `--var-file` files, in order.
        environ: what `${env.NAME}` refers to.
        git: asked at most once for `commit`, `branch` and `dirty`.
        text_arguments: tells which arguments of an entrypoint are text: they are taken as written.
    """

    target: str | None
    variables: Sequence[tuple[str, str]] = ()
    sets: Sequence[tuple[str, str]] = ()
    variable_files: Sequence[tuple[bytes, str]] = ()
    environ: Mapping[str, str]
    git: Callable[[], Mapping[str, str]]
    text_arguments: TextArguments = no_source


def read(parsed: ParsedFiles, overrides: Overrides) -> tuple[Loaded | None, tuple[Diagnostic, ...]]:
    """Validate a run or project file, and the files that it includes.

    Returns:
        What they say, `None` where anything is wrong, and every finding in order. Findings never
        repeat text that looks like a token.
    """
    files, findings = parsed
    values, more = read_values(overrides.variable_files)
    findings += more
    loaded: Loaded | None = None
    if files is not None:
        loaded, content_findings = _of_files(files, overrides, values)
        if any(
            one.code == "merge_key" for one in findings
        ):  # what it would have brought is no lack
            content_findings = tuple(one for one in content_findings if one.code not in _LACKS)
        findings += content_findings
    ordered = masked_in_order(findings)
    return (None if has_errors(ordered) else loaded), ordered


def _of_files(
    files: ProjectFiles, overrides: Overrides, values: tuple[yaml_nodes.Mapping, ...]
) -> tuple[Loaded, tuple[Diagnostic, ...]]:
    root, context, findings = with_options(files, overrides, values)
    context = replace(context, text_arguments=overrides.text_arguments)
    name: str | None = None
    jobs: tuple[LoadedJob, ...] = ()
    removed: tuple[Address, ...] = ()
    left_out: Iterable[Address] = ()
    mode, production = Mode.PRODUCTION, False
    if files.kind == "run":
        start = Place(files.file, root.line, root.column)
        root, enabled, new_findings = run_if_enabled(root, context)
        declared_runs: tuple[DeclaredRun, ...] = ()
        if enabled:
            declared_runs, more = read_run(root, None, start, context)
            new_findings += more
        elif isinstance(run_name := root.entries.get("name"), yaml_nodes.Scalar):
            left_out = (Address.run(run_name.text),)
        own_places = {one.config.name: start for one in declared_runs}
        new_findings += tuple(order_findings(declared_runs, own_places, own_places))
        new_findings += tuple(own_name_findings(root))
    else:
        project, new_findings = read_project(root, context)
        declared_runs, name = project.runs, project.name
        jobs, mode = tuple(map(_loaded_job, project.jobs)), project.mode
        production, left_out = project.production, project.left_out
        removed = project.removed
    runs = tuple(loaded_run(one) for one in declared_runs)
    if context.references:
        shared = "the target has `mode: production`" if production else None
        if mode is not Mode.DEVELOPMENT and not yaml_nodes.is_nothing(root.entries.get("state")):
            shared = shared or "several users share the state"
        new_findings += tuple(user_findings(runs, jobs, shared=shared))
    return (
        Loaded(
            kind=files.kind, file=files.file, project_name=name, target=overrides.target,
            runs=runs,
            config_digest=digest_of(runs, jobs, mode, removed), jobs=jobs, mode=mode,
            production=production,
            targets=files.targets, included=files.included, removed=removed,
            left_out=tuple(left_out),
        ),
        (*findings, *new_findings),
    )  # fmt: skip


def with_options(
    files: ProjectFiles, overrides: Overrides, values: tuple[yaml_nodes.Mapping, ...] = ()
) -> tuple[yaml_nodes.Mapping, ReferenceContext, tuple[Diagnostic, ...]]:
    """Lay the target and the options over the files, and read their variables.

    Args:
        values: the mappings in the files of `--var-file`.

    Returns:
        The root without targets and variables, what its references may refer to, and what is wrong.
    """
    target, options, environ = overrides.target, overrides.variables, overrides.environ
    is_project = files.kind == "project"
    shape = project_shape() if is_project else run_shape()
    root, findings = with_target(files.root, target, shape, OF_TARGETS if is_project else ())
    for path, value in overrides.sets:
        root, new_findings = set_value(root, path, value, shape)
        findings += new_findings
    texts = (*files.texts, *(value for _, value in overrides.sets))
    if any(map(has_near_references, texts)):
        findings += tuple(near_references(root, runs=is_project))
    if any(map(has_shell_references, texts)):
        findings += tuple(shell_references(root, project=is_project))
    root, block = yaml_nodes.without(root, "variables")
    given = GivenValues(options=tuple(options), environment=_of_environment(environ), files=values)
    variables, new_findings = read_variables(block, given)
    context = ReferenceContext(
        variables=variables.values, types=variables.types,
        target=target or BASE, project=None, environ=environ, git=cache(overrides.git),
        references=any("${" in text for text in texts)
        or any("${" in text for _, text in options)
        or bool(given.environment or values),
        targets=declared_targets(files.root), folders=files.folders, run_files=files.run_files,
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
        spec=Spec.of(one.config.model_dump(mode="json", exclude_defaults=True)),
    )


def digest_of(
    runs: Iterable[LoadedRun],
    jobs: Iterable[LoadedJob] = (),
    mode: Mode = Mode.PRODUCTION,
    removed: Iterable[Address] = (),
) -> str:
    """The digest of what files say, whatever the order of the files and of what they hold."""
    lines = [f"{run.address} {run.spec.text}" for run in runs]
    lines += [f"{job.address} {job.spec.text}" for job in jobs]
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
