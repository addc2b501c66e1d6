"""What a project file says beside its runs, and its runs one by one."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from sgpu_decl.config.crossing import contradictions
from sgpu_decl.config.declaring import Declared, Surroundings, beyond, comparable, read_run
from sgpu_decl.config.explaining import Explained, unknown_key
from sgpu_decl.config.functions import Functions
from sgpu_decl.config.lending import lend
from sgpu_decl.config.project import ProjectFile
from sgpu_decl.config.shaping import Conversion, project_shape
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.diagnostics.suggesting import nearest
from sgpu_decl.text.interpolating import interpolate
from sgpu_decl.text.nodes import Mapping, Node, Scalar, place_of, without
from sgpu_decl.text.shape import Shape

__all__ = ["ReadProject", "read_project", "unknown_keys"]

_NOT_YET = ("include", "jobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadProject:
    """`around` is what references in the project mean, its name and environments included."""

    name: str | None
    runs: tuple[Declared, ...]
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
    found += _head(head)
    runs: list[Declared] = []
    block = root.entries.get("runs")
    if isinstance(block, Mapping):
        for key, node in block.entries.items():
            declared, wrong = _run(key, node, block.keys[key], around)
            runs += declared
            found += wrong
        found += _jobs_without_runs(root.entries.get("jobs"), block)
    elif block is not None and not _nothing(block):
        found.append(
            Diagnostic(
                code="wrong_type",
                summary="`runs` must be a mapping of runs by name",
                place=root.keys["runs"],
                hint="write `runs: {train: {…}}`",
            )
        )
    unsupported = tuple(
        (key, root.keys[key])
        for key in _NOT_YET
        if key in root.entries and not _nothing(root.entries[key])
    )
    read = ReadProject(name=name, runs=tuple(runs), unsupported=unsupported, around=around)
    return read, tuple(found)


def unknown_keys(node: Node, shape: Shape, path: str) -> Iterator[Diagnostic]:
    """The keys in a partial block that its shape does not have."""
    if not isinstance(node, Mapping) or shape.anything:
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


def _head(head: Mapping) -> tuple[Diagnostic, ...]:
    shape = project_shape()
    conversion = Conversion()
    data: dict[str, Any] = conversion.plain(head, shape)
    try:
        ProjectFile.model_validate(data)
    except ValidationError as error:
        explained = Explained(node=head, shape=shape, prefix="", place=place_of(head))
        errors = error.errors(include_url=False, include_input=False)
        return (*conversion.found, *explained.errors(errors))
    return tuple(conversion.found)


def _functions(block: Mapping, environments: Mapping) -> tuple[Diagnostic, ...]:
    """What is wrong with the block, whether a function is ever called or not."""
    block, found = lend(block, environments)
    shape = project_shape().keys["functions"]
    conversion = Conversion()
    data: dict[str, Any] = conversion.plain(block, shape)
    found += tuple(conversion.found)
    explained = Explained(node=block, shape=shape, prefix="functions", place=place_of(block))
    try:
        Functions.model_validate(data)
    except ValidationError as error:
        errors = explained.errors(error.errors(include_url=False, include_input=False))
        found += tuple(beyond(errors, found))
    crossed = contradictions(comparable(data, {"entrypoint"}))
    return (*found, *(explained.contradiction(one) for one in crossed))


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


def _jobs_without_runs(jobs: Node | None, runs: Mapping) -> Iterator[Diagnostic]:
    for name, job in jobs.entries.items() if isinstance(jobs, Mapping) else ():
        run = job.entries.get("run") if isinstance(job, Mapping) else None
        if isinstance(run, Scalar) and run.text not in runs.entries and "${" not in run.text:
            near = nearest(run.text, runs.entries)
            yield Diagnostic(
                code="unknown_run",
                summary=f"`jobs.{name}.run` names no run: `{run.text[:80]}`",
                place=place_of(run),
                hint=f"did you mean `{near}`?" if near else "it is a key under `runs`",
            )


def _nothing(node: Node) -> bool:
    return isinstance(node, Scalar) and node.plain and not node.text
