"""Reads a project file: its runs one by one, and its other blocks."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sgpu_decl.config.backend import remote_kind
from sgpu_decl.config.enabled import enabled_alone
from sgpu_decl.config.error_messages import ErrorExplainer
from sgpu_decl.config.job import Job
from sgpu_decl.config.job_checks import job_findings
from sgpu_decl.config.loaded import Places
from sgpu_decl.config.plain_values import Conversion, project_shape
from sgpu_decl.config.project import Functions, ProjectFile
from sgpu_decl.config.renames import rename_findings
from sgpu_decl.config.run_layers import with_defaults, with_shared_environment
from sgpu_decl.config.run_order import LeftOutRuns, order_findings
from sgpu_decl.config.run_reader import (
    DeclaredRun,
    ReferenceContext,
    at_new_places,
    cross_field_errors,
    read_run,
)
from sgpu_decl.config.schedule import timezone_findings
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.target import USER, Mode
from sgpu_decl.text.interpolation import interpolate
from sgpu_decl.text.yaml_nodes import (
    Mapping,
    Node,
    Scalar,
    Sequence,
    is_nothing,
    place_of,
    without,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredJob:
    """`place` is where the job is named."""

    name: str
    config: Job
    places: Places
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadProject:
    """`context` resolves references of the project; it has the project's name and environments."""

    name: str | None
    mode: Mode
    production: bool
    runs: tuple[DeclaredRun, ...]
    jobs: tuple[DeclaredJob, ...]
    removed: tuple[Address, ...]
    left_out: tuple[Address, ...]
    context: ReferenceContext


def read_project(
    root: Mapping, context: ReferenceContext
) -> tuple[ReadProject, tuple[Diagnostic, ...]]:
    """Read a project. Its targets and variables have been applied and removed."""
    root, new_findings = with_defaults(root)
    findings = list(new_findings)
    name = _name(root)
    context = replace(context, project=name)
    root, left_out, new_findings = enabled_alone(root, context)
    findings += new_findings
    of_runs = {one.name: place for one, place in left_out.items() if one.kind is Kind.RUN}
    left_out_runs = LeftOutRuns(target=context.target, places=of_runs)
    head = replace(root, entries={key: node for key, node in root.entries.items() if key != "runs"})
    if context.references:
        scope = context.scope({})
        changed = interpolate(head, scope)
        head = changed if isinstance(changed, Mapping) else head
        findings += scope.findings
    environments = head.entries.get("environments")
    if not isinstance(environments, Mapping):
        environments = Mapping({}, {}, root.line, root.column, root.file)
    context = replace(context, environments=environments)
    functions = head.entries.get("functions")
    if isinstance(functions, Mapping):
        head, _ = without(head, "functions")
        findings += at_new_places(_function_findings(functions, environments), findings)
    project, new_findings = _head(head, context)
    findings += (*new_findings, *_prefix_findings(head, project))
    runs: list[DeclaredRun] = []
    places = {one.place for one in findings}
    block = root.entries.get("runs")
    if isinstance(block, Mapping):
        for key, node in block.entries.items():
            declared_runs, new_findings = _run(key, node, block.keys[key], context)
            runs += declared_runs
            # An error that runs share is reported once.
            new_findings = tuple(one for one in new_findings if one.place not in places)
            places.update(one.place for one in new_findings)
            findings += new_findings
    elif block is not None and not is_nothing(block):
        findings.append(
            Diagnostic(
                code="wrong_type",
                summary="`runs` must be a mapping of runs by name",
                place=root.keys["runs"],
                hint="write `runs: {train: {…}}`",
            )
        )
    if isinstance(block, Mapping):
        findings += order_findings(runs, block.entries, block.keys, left_out_runs)
    findings += job_findings(head.entries.get("jobs"), block, left_out_runs)
    findings += _removed_and_declared(root)
    findings += rename_findings(root)
    findings += timezone_findings(root)
    read = ReadProject(
        name=name,
        mode=project.mode if project else Mode.PRODUCTION,
        production=project is not None
        and "mode" in project.model_fields_set
        and project.mode is Mode.PRODUCTION,
        runs=tuple(runs),
        jobs=_jobs(head, project),
        removed=tuple(map(Address.parse, project.removed)) if project else (),
        left_out=tuple(left_out),
        context=context,
    )
    return read, tuple(findings)


def _removed_and_declared(root: Mapping) -> Iterator[Diagnostic]:
    """The addresses of `removed` that the project declares all the same."""
    removed = root.entries.get("removed")
    for item in removed.items if isinstance(removed, Sequence) else ():
        kind, _, name = item.text.partition(".") if isinstance(item, Scalar) else ("", "", "")
        block = root.entries.get(f"{kind}s")
        name = name.partition("[")[0]
        if isinstance(block, Mapping) and name in block.entries:
            yield Diagnostic(
                code="removed_and_declared",
                summary=f"`{kind}.{name}` is in `removed`, and it is declared",
                place=place_of(item),
                hint=f"take it out of `removed`, or remove it from `{kind}s`",
                related=(Related(place=block.keys[name], note="it is declared here"),),
            )


def _name(root: Mapping) -> str | None:
    block = root.entries.get("project")
    name = block.entries.get("name") if isinstance(block, Mapping) else None
    return name.text if isinstance(name, Scalar) else None


def _head(
    head: Mapping, context: ReferenceContext
) -> tuple[ProjectFile | None, tuple[Diagnostic, ...]]:
    shape = project_shape()
    conversion = Conversion(folders=context.folders)
    data: dict[str, Any] = conversion.plain(head, shape)
    try:
        project = ProjectFile.model_validate(data)
    except ValidationError as error:
        explainer = ErrorExplainer(node=head, shape=shape, prefix="", place=place_of(head))
        errors = error.errors(include_url=False, include_input=False)
        return None, (*conversion.findings, *explainer.errors(errors))
    return project, tuple(conversion.findings)


def _jobs(head: Mapping, project: ProjectFile | None) -> tuple[DeclaredJob, ...]:
    block = head.entries.get("jobs")
    if project is None or not isinstance(block, Mapping):
        return ()
    prefix = project.presets.name_prefix if project.presets is not None else None
    return tuple(
        DeclaredJob(
            name=name,
            config=_with_prefix(project.jobs[name], name, prefix),
            places=Places(node),
            place=place,
        )
        for name, place in block.keys.items()
        if isinstance(node := block.entries[name], Mapping)
    )


def _with_prefix(job: Job, name: str, prefix: str | None) -> Job:
    return job.model_copy(update={"name": f"{prefix}{job.name or name}"}) if prefix else job


def _prefix_findings(head: Mapping, project: ProjectFile | None) -> Iterator[Diagnostic]:
    """Without the user in their names, the jobs of two developers would have the same ones."""
    presets = head.entries.get("presets")
    if project is None or project.mode is not Mode.DEVELOPMENT or not isinstance(presets, Mapping):
        return
    prefix = presets.entries.get("name_prefix")
    if isinstance(prefix, Scalar) and not is_nothing(prefix) and USER not in prefix.text:
        yield Diagnostic(
            code="prefix_without_user",
            summary=f"`name_prefix` holds no `{USER}`, and the target is for development: the jobs "
            "of two users would have the same names",
            place=place_of(prefix),
            hint=f"write `name_prefix: '[dev {USER}] '`, or leave it out",
        )


def _function_findings(block: Mapping, environments: Mapping) -> tuple[Diagnostic, ...]:
    """Check the block, even if no function is ever called."""
    block, findings = with_shared_environment(block, environments)
    shape = project_shape().keys["functions"]
    conversion = Conversion()
    data: dict[str, Any] = conversion.plain(block, shape)
    findings += tuple(conversion.findings)
    if isinstance(backend := data.get("backend"), dict):
        data["backend"] = {"kind": remote_kind().name, **backend}
    explainer = ErrorExplainer(node=block, shape=shape, prefix="functions", place=place_of(block))
    errors: list[ErrorDetails] = []
    try:
        Functions.model_validate(data)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        findings += tuple(at_new_places(explainer.errors(errors), findings))
    together = cross_field_errors({"entrypoint": "function", **data}, errors)
    return (*findings, *(explainer.placed(one) for one in together))


def _run(
    key: str, node: Node, place: Place, context: ReferenceContext
) -> tuple[tuple[DeclaredRun, ...], tuple[Diagnostic, ...]]:
    if not isinstance(node, Mapping):
        finding = Diagnostic(
            code="wrong_type",
            summary=f"`runs.{key}` must be a mapping",
            place=place,
            hint="a run needs `gpus`, `type`, and `entrypoint` or `command`",
        )
        return (), (finding,)
    return read_run(node, key, place, context)
