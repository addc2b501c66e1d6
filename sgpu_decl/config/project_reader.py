"""What a project file says beside its runs, and its runs one by one."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sgpu_decl.config.backend import remote_kind
from sgpu_decl.config.error_messages import Explained, unknown_key
from sgpu_decl.config.field_places import Places
from sgpu_decl.config.functions import Functions
from sgpu_decl.config.job import Job
from sgpu_decl.config.plain_values import Conversion, project_shape
from sgpu_decl.config.project import ProjectFile
from sgpu_decl.config.run_reader import Declared, Surroundings, beyond, crossed, read_run
from sgpu_decl.config.shared_environments import with_shared_environment
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.target import Mode
from sgpu_decl.text.interpolation import interpolate
from sgpu_decl.text.shape import Shape
from sgpu_decl.text.yaml_nodes import Mapping, Node, Scalar, place_of, without

__all__ = ["DeclaredJob", "ReadProject", "read_project", "unknown_keys"]

_NOT_YET = ("include",)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredJob:
    """`place` is where the job is named."""

    name: str
    config: Job
    places: Places
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadProject:
    """`around` is what references in the project mean, its name and environments included."""

    name: str | None
    mode: Mode
    runs: tuple[Declared, ...]
    jobs: tuple[DeclaredJob, ...]
    unsupported: tuple[tuple[str, Place], ...]
    around: Surroundings


def read_project(root: Mapping, around: Surroundings) -> tuple[ReadProject, tuple[Diagnostic, ...]]:
    """Read a project whose targets and variables are already taken out."""
    found: list[Diagnostic] = []
    name = _name(root)
    around = replace(around, project=name)
    head = replace(root, entries={key: node for key, node in root.entries.items() if key != "runs"})
    if around.references:
        scope = around.scope({})
        changed = interpolate(head, scope)
        head = changed if isinstance(changed, Mapping) else head
        found += scope.found
    environments = head.entries.get("environments")
    if not isinstance(environments, Mapping):
        environments = Mapping({}, {}, root.line, root.column, root.file)
    around = replace(around, environments=environments)
    functions = head.entries.get("functions")
    if isinstance(functions, Mapping):
        head, _ = without(head, "functions")
        found += beyond(_functions(functions, environments), found)
    project, wrong = _head(head)
    found += wrong
    runs: list[Declared] = []
    block = root.entries.get("runs")
    if isinstance(block, Mapping):
        for key, node in block.entries.items():
            declared, wrong = _run(key, node, block.keys[key], around)
            runs += declared
            found += beyond(wrong, found)  # what runs share is wrong once
    elif block is not None and not _nothing(block):
        found.append(
            Diagnostic(
                code="wrong_type",
                summary="`runs` must be a mapping of runs by name",
                place=root.keys["runs"],
                hint="write `runs: {train: {…}}`",
            )
        )
    found += _without_runs(head.entries.get("jobs"), block)
    unsupported = tuple(
        (key, root.keys[key])
        for key in _NOT_YET
        if key in root.entries and not _nothing(root.entries[key])
    )
    read = ReadProject(
        name=name,
        mode=project.mode if project else Mode.PRODUCTION,
        runs=tuple(runs),
        jobs=_jobs(head, project),
        unsupported=unsupported,
        around=around,
    )
    return read, tuple(found)


def unknown_keys(node: Node, shape: Shape, path: str) -> Iterator[Diagnostic]:
    """The keys in a partial block that its shape does not have."""
    if not isinstance(node, Mapping):
        return
    shape = shape.of(node)
    if shape.anything:
        return
    for key, value in node.entries.items():
        below = shape.below(key)
        if below is not None:
            yield from unknown_keys(value, below, f"{path}.{key}")
        elif shape.closed:
            yield unknown_key(key, shape, node.keys[key], path, shape)


def _name(root: Mapping) -> str | None:
    block = root.entries.get("project")
    name = block.entries.get("name") if isinstance(block, Mapping) else None
    return name.text if isinstance(name, Scalar) else None


def _head(head: Mapping) -> tuple[ProjectFile | None, tuple[Diagnostic, ...]]:
    shape = project_shape()
    conversion = Conversion()
    data: dict[str, Any] = conversion.plain(head, shape)
    try:
        project = ProjectFile.model_validate(data)
    except ValidationError as error:
        explained = Explained(node=head, shape=shape, prefix="", place=place_of(head))
        errors = error.errors(include_url=False, include_input=False)
        return None, (*conversion.found, *explained.errors(errors))
    return project, tuple(conversion.found)


def _jobs(head: Mapping, project: ProjectFile | None) -> tuple[DeclaredJob, ...]:
    block = head.entries.get("jobs")
    if project is None or not isinstance(block, Mapping):
        return ()
    return tuple(
        DeclaredJob(name=name, config=project.jobs[name], places=Places(node), place=place)
        for name, place in block.keys.items()
        if isinstance(node := block.entries[name], Mapping)
    )


def _functions(block: Mapping, environments: Mapping) -> tuple[Diagnostic, ...]:
    """What is wrong with the block, whether a function is ever called or not."""
    block, found = with_shared_environment(block, environments)
    shape = project_shape().keys["functions"]
    conversion = Conversion()
    data: dict[str, Any] = conversion.plain(block, shape)
    found += tuple(conversion.found)
    if isinstance(backend := data.get("backend"), dict):
        data["backend"] = {"kind": remote_kind().name, **backend}
    explained = Explained(node=block, shape=shape, prefix="functions", place=place_of(block))
    errors: list[ErrorDetails] = []
    try:
        Functions.model_validate(data)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        found += tuple(beyond(explained.errors(errors), found))
    together = crossed({"entrypoint": "function", **data}, errors)
    return (*found, *(explained.contradiction(one) for one in together))


def _run(
    key: str, node: Node, place: Place, around: Surroundings
) -> tuple[tuple[Declared, ...], tuple[Diagnostic, ...]]:
    if not isinstance(node, Mapping):
        wrong = Diagnostic(
            code="wrong_type",
            summary=f"`runs.{key}` must be a mapping",
            place=place,
            hint="a run needs `gpus`, `type`, and `entrypoint` or `command`",
        )
        return (), (wrong,)
    return read_run(node, key, place, around)


def _without_runs(jobs: Node | None, runs: Node | None) -> Iterator[Diagnostic]:
    """What jobs launch that is none of the project's runs, or more than one."""
    known = runs.entries if isinstance(runs, Mapping) else {}
    for name, job in jobs.entries.items() if isinstance(jobs, Mapping) else ():
        node = job.entries.get("run") if isinstance(job, Mapping) else None
        if not isinstance(node, Scalar) or "${" in node.text:
            continue
        run = known.get(node.text)
        if run is None:
            near = nearest(node.text, known)
            yield Diagnostic(
                code="unknown_run",
                summary=f"`jobs.{name}.run` names no run: `{node.text[:80]}`",
                place=place_of(node),
                hint=f"did you mean `{near}`?" if near else "it is a key under `runs`",
            )
        elif isinstance(run, Mapping) and "matrix" in run.entries:
            yield Diagnostic(
                code="run_of_matrix",
                summary=f"`jobs.{name}.run` names `{node.text[:80]}`, which has a matrix: a job "
                "launches one run",
                place=place_of(node),
                hint="declare the combination that the job is for as a run of its own",
            )


def _nothing(node: Node) -> bool:
    return isinstance(node, Scalar) and node.plain and not node.text
