"""One declared run to the runs it stands for: itself, or the cells of its matrix."""

import posixpath
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sgpu_decl.config.cross_field import ORIGINS, ComparedFields, contradictions
from sgpu_decl.config.entry import calls_function, is_entrypoint
from sgpu_decl.config.error_messages import ErrorExplainer, misspelt
from sgpu_decl.config.gpu_type import GpuType
from sgpu_decl.config.idle import unmeasured
from sgpu_decl.config.loaded import Places
from sgpu_decl.config.matrix import Axes, Cell, cells, read_axes
from sgpu_decl.config.on_finish import open_addresses
from sgpu_decl.config.plain_values import Conversion, run_shape
from sgpu_decl.config.report_unkept import unkept_reports
from sgpu_decl.config.run import NOT_IN_SPEC, RunConfig
from sgpu_decl.config.run_layers import with_shared_environment
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related, Severity, has_errors
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.text import yaml_nodes
from sgpu_decl.text.interpolation import Scope, axes_in, interpolate
from sgpu_decl.text.near_references import shell_references_of
from sgpu_decl.text.shape import Shape, as_written
from sgpu_decl.text.yaml_nodes import resolve

TextArguments = Callable[[str, str], Mapping[str, Shape]]

_STARTS = ("entrypoint", "command")
_AXIS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredRun:
    config: RunConfig
    key: str
    places: Mapping[str, Place]
    spec: Spec


def no_source(entrypoint: str, root: str) -> Mapping[str, Shape]:  # noqa: ARG001
    """The arguments that are text where no source is read: none."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceContext:
    """What references and paths of runs mean.

    Attributes:
        types: the types of the variables that have one.
        targets: the names of all targets of the file.
        references: false for files that can hold none.
        environments: those of the project, `None` in a run file.
        folders: the folder of each file that lies in one below the project's.
        run_files: the included files that describe one run, by its name.
        text_arguments: where the arguments of an entrypoint are text, by its source and the root of
            its code.
    """

    variables: Mapping[str, yaml_nodes.Node]
    types: Mapping[str, str]
    target: str
    project: str | None
    environ: Mapping[str, str]
    git: Callable[[], Mapping[str, str]]
    references: bool
    targets: Sequence[str] = ()
    environments: yaml_nodes.Mapping | None = None
    folders: Mapping[str, str] = field(default_factory=dict)
    run_files: Mapping[str, str] = field(default_factory=dict)
    text_arguments: TextArguments = no_source

    def scope(self, axes: Mapping[str, yaml_nodes.Scalar] | None) -> Scope:
        return Scope(
            variables=self.variables, types=self.types, target=self.target, project=self.project,
            environ=self.environ, git=self.git, axes=axes,
        )  # fmt: skip


def spec_of(config: RunConfig) -> Spec:
    """The spec of a run: no defaults, no name, no matrix.

    Raises:
        ValueError: an argument is not a finite number.
    """
    return Spec.of(config.model_dump(mode="json", exclude_defaults=True, exclude=set(NOT_IN_SPEC)))


def read_run(
    node: yaml_nodes.Mapping, name: str | None, place: Place, context: ReferenceContext
) -> tuple[tuple[DeclaredRun, ...], tuple[Diagnostic, ...]]:
    """Read one run.

    Args:
        node: its block.
        name: its key in a project; `None` in a run file, which names itself.
        place: where it is named.

    Returns:
        The runs, none where anything is wrong, and what is wrong.
    """
    findings: list[Diagnostic] = []
    matrix = node.entries.get("matrix")
    if context.references:
        scope = context.scope(None if isinstance(matrix, yaml_nodes.Mapping) else {})
        changed = interpolate(node, scope)
        node = changed if isinstance(changed, yaml_nodes.Mapping) else node
        matrix = node.entries.get("matrix")
        axes = matrix.entries if isinstance(matrix, yaml_nodes.Mapping) else {}
        findings += scope.findings
        findings += shell_references_of(node, variables=context.variables, axes=axes)
    node, new_findings = with_shared_environment(node, context.environments)
    findings += new_findings
    if context.run_files.get(name or "") in context.folders:
        node = _with_own_folder(node, context.run_files[name or ""])
    texts = _text_arguments(node, context)
    node = _as_declared(node, texts)
    prefix = f"runs.{name}" if name is not None else ""
    explainer = ErrorExplainer(node=node, shape=run_shape(), prefix=prefix, place=place)
    if name is not None and "name" in node.entries:
        findings.append(
            Diagnostic(
                code="name_in_project",
                summary=f"the name of a run in a project is its key, `{name}`",
                place=node.keys["name"],
                hint="remove `name`",
            )
        )
    if not isinstance(matrix, yaml_nodes.Mapping):
        config, new_findings = _validated(explainer, node, name, context)
        findings += at_new_places(new_findings, findings)
        if config is None or has_errors(findings):
            return (), tuple(findings)
        run = DeclaredRun(config=config, key="", places=Places(node), spec=spec_of(config))
        findings += [*_unused_limit(config, node), *_remarks((run,), run.places)]
        return (run,), tuple(findings)
    runs, new_findings = _of_matrix(explainer, node, matrix, name, context, texts)
    findings += at_new_places(new_findings, findings)
    runs = () if has_errors(findings) else runs
    return runs, (*findings, *_remarks(runs, Places(node)))


def _remarks(runs: Sequence[DeclaredRun], places: Mapping[str, Place]) -> tuple[Diagnostic, ...]:
    """Warnings about the fields of a run, or of its cells."""
    found = (*open_addresses(runs, places), *unmeasured(runs, places))
    return (*found, *unkept_reports(runs, places))


def _text_arguments(node: yaml_nodes.Mapping, context: ReferenceContext) -> Mapping[str, Shape]:
    """Where the arguments of a run are text. The source is read only if a value would be something
    else."""
    entry, args, matrix = (node.entries.get(key) for key in ("entrypoint", "args", "matrix"))
    if not isinstance(entry, yaml_nodes.Scalar) or not calls_function(entry.text):
        return {}
    if not any(isinstance(one, yaml_nodes.Mapping) and _no_text_in(one) for one in (args, matrix)):
        return {}
    code = node.entries.get("code")
    root = code.entries.get("root") if isinstance(code, yaml_nodes.Mapping) else None
    if not isinstance(root, yaml_nodes.Scalar):
        return context.text_arguments(entry.text, "")
    folder = context.folders.get(root.file, "")
    return context.text_arguments(entry.text, posixpath.join(folder, root.text))


def _no_text_in(node: yaml_nodes.Node) -> bool:
    if isinstance(node, yaml_nodes.Scalar):
        return node.plain and ("${" in node.text or not isinstance(resolve(node.text), str))
    return any(map(_no_text_in, yaml_nodes.children(node)))


def _as_declared(node: yaml_nodes.Mapping, texts: Mapping[str, Shape]) -> yaml_nodes.Mapping:
    """A run whose arguments are text as written where its function wants text."""
    args = node.entries.get("args")
    if not texts or not isinstance(args, yaml_nodes.Mapping):
        return node
    return replace(node, entries={**node.entries, "args": as_written(args, Shape(keys=texts))})


def _with_own_folder(node: yaml_nodes.Mapping, file: str) -> yaml_nodes.Mapping:
    """The run of an included run file. Its code is where it would be alone: in the file's folder,
    unless another is named."""
    code = node.entries.get("code")
    block = code if isinstance(code, yaml_nodes.Mapping) else None
    if code is not None and block is None and _value(node, "code") is not None:
        return node  # validation refuses it
    if block is not None and _value(block, "root") is not None:
        return node
    place = Place(file, node.line, node.column)
    root = yaml_nodes.Scalar(".", True, place.line, place.column, file)  # noqa: FBT003
    if block is None:
        block = yaml_nodes.Mapping({}, {}, place.line, place.column, file)
    block = replace(
        block, entries={**block.entries, "root": root}, keys={**block.keys, "root": place}
    )
    keys = {**node.keys, "code": node.keys.get("code", place)}
    return replace(node, entries={**node.entries, "code": block}, keys=keys)


def _unused_limit(config: RunConfig, node: yaml_nodes.Mapping) -> tuple[Diagnostic, ...]:
    """Warn of a `max_parallel` that limits nothing: no matrix, and no attempts side by side."""
    if config.max_parallel is None or config.on_active == "parallel":
        return ()
    return (
        Diagnostic(
            code="max_parallel_unused",
            severity=Severity.WARNING,
            summary="`max_parallel` limits the runs of a matrix, and this run has no `matrix`",
            place=node.keys["max_parallel"],
            hint="remove it, or add a `matrix`",
        ),
    )


def at_new_places(more: Iterable[Diagnostic], findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The findings at places that have none yet. So an unresolved reference is not also reported as
    a wrong number."""
    places = {one.place for one in findings}
    return [one for one in more if one.place not in places]


def _validated(
    explainer: ErrorExplainer,
    node: yaml_nodes.Mapping,
    name: str | None,
    context: ReferenceContext,
) -> tuple[RunConfig | None, tuple[Diagnostic, ...]]:
    conversion = Conversion(folders=context.folders)
    data: dict[str, Any] = conversion.plain(node, explainer.shape)
    if name is not None:
        data["name"] = name
    try:
        return RunConfig.model_validate(data), tuple(conversion.findings)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
    findings = list(explainer.errors(errors))
    shown = {one.code for one in findings}
    intended = misspelt(node, explainer.shape)
    findings += [
        explainer.placed(one)
        for one in cross_field_errors(data, errors, intended=intended)
        if one.code not in shown
    ]
    return None, (*conversion.findings, *findings)


def cross_field_errors(
    data: Mapping[str, Any], errors: Iterable[ErrorDetails], *, intended: Container[str] = ()
) -> tuple[Diagnostic, ...]:
    """The contradictions between fields of a run that is not valid, so that a user sees all errors
    at once. Values that are wrong by themselves are not compared. `intended` are the fields that
    misspelt keys are near to."""
    started = any(field in data or field in intended for field in _STARTS)
    valid = data
    for error in errors:
        if error["type"] != "missing":
            valid = _without(valid, error["loc"])
    if not any(field in data for field in _STARTS):  # else another key may be near by chance
        valid = {**{field: "" for field in _STARTS if field in intended}, **valid}
    findings = contradictions(_compared_fields(valid))
    return tuple(one for one in findings if one.code != "no_entrypoint" or not started)


def _without(data: Mapping[str, Any], loc: Sequence[str | int]) -> Mapping[str, Any]:
    """A block without the value at a place, or the nearest one around it."""
    key = str(loc[0]) if loc else ""
    if key not in data:
        return data
    inner = data[key]
    if len(loc) > 1 and isinstance(inner, Mapping) and loc[1] in inner:
        return {**data, key: _without(inner, loc[1:])}
    return {name: value for name, value in data.items() if name != key}


def _compared_fields(data: Mapping[str, Any]) -> ComparedFields:
    gpus, ray = data.get("gpus"), data.get("ray")
    env, launch, logs = data.get("env"), data.get("launch"), data.get("logs")
    variables = env.get("variables") if isinstance(env, dict) else None
    secrets = env.get("secrets") if isinstance(env, dict) else None
    return ComparedFields(
        gpus=_whole(gpus),
        type=GpuType.find(str(data.get("type"))),
        entrypoint="entrypoint" in data,
        command="command" in data,
        args="args" in data,
        parameters=isinstance(data.get("parameters"), dict),
        per_node=isinstance(launch, dict) and launch.get("per") == "node",
        warm_modules=isinstance(launch, dict) and isinstance(launch.get("warm"), list),
        redacted=isinstance(logs, dict) and logs.get("redact") is True,
        variables=variables if isinstance(variables, dict) else (),
        secrets=secrets if isinstance(secrets, dict) else (),
        environment=[item for item in ORIGINS if isinstance(env, dict) and env.get(item)],
        ray=isinstance(ray, dict) or ray is True,
        ray_gpus=_whole(ray.get("num_gpus")) if isinstance(ray, dict) else None,
        drives_existing=isinstance(ray, dict) and ray.get("cluster") == "existing",
        ray_fields=[name for name in ray if ray[name] is not None] if isinstance(ray, dict) else (),
        launch=launch if isinstance(launch, dict) else (),
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _of_matrix(
    explainer: ErrorExplainer,
    node: yaml_nodes.Mapping,
    matrix: yaml_nodes.Mapping,
    name: str | None,
    context: ReferenceContext,
    texts: Mapping[str, Shape],
) -> tuple[tuple[DeclaredRun, ...], tuple[Diagnostic, ...]]:
    bad = tuple(
        Diagnostic(code="bad_name", summary=f"`{axis}` is not the name of an axis",
                   place=matrix.keys[axis], hint="use letters, digits and `_`, no digit first")
        for axis in matrix.entries
        if not _AXIS.fullmatch(axis)
    )  # fmt: skip
    axes, findings = read_axes(matrix)
    if axes is None or bad or not all(axes.values()) or not axes:
        _, new_findings = _validated(explainer, node, name, context)
        return (), (*bad, *findings, *at_new_places(new_findings, bad))
    args = node.entries.get("args")
    inside = axes_in(args) if args is not None and context.references else frozenset()
    outside = axes_in(_without_keys(node, "args", "matrix")) if context.references else frozenset()
    argument_axes = _argument_axes(node, axes, inside)
    findings = _unknown_axes(node, axes, inside | outside, context)
    if _start_is_known(node) and not misspelt(node, explainer.shape) & {"args", "entrypoint"}:
        findings += _unused_axes(
            matrix,
            axes,
            (*argument_axes, *inside, *outside),
            takes_arguments=_takes_arguments(node),
        )
    if findings:
        # a field that still holds a reference is not a number yet: that is no mistake
        new_findings = () if outside else _validated(explainer, node, name, context)[1]
        return (), (*findings, *at_new_places(new_findings, findings))
    runs, findings = _cells(explainer, node, name, context, axes, argument_axes, texts)
    findings = findings or _equal_cells(runs, node.keys["matrix"])
    return runs, findings or _replaced_arguments(node, matrix, argument_axes)


def _equal_cells(runs: Iterable[DeclaredRun], place: Place) -> tuple[Diagnostic, ...]:
    """Find two cells of one spec: their values differ and all that is made of them is the same, as
    of `1` and `"1"` in the text of a command."""
    first: dict[Spec, str] = {}
    for run in runs:
        same = first.setdefault(run.spec, run.key)
        if same != run.key:
            return (
                Diagnostic(
                    code="duplicate_cell",
                    summary=f"the combinations `{same}` and `{run.key}` would run the same",
                    place=place,
                    hint="keep one of these values: each combination is one run",
                ),
            )
    return ()


def _start_is_known(node: yaml_nodes.Mapping) -> bool:
    """Whether it is clear what the run starts and how it takes arguments."""
    args, entry = _value(node, "args"), _value(node, "entrypoint")
    if args is not None:
        return not isinstance(args, yaml_nodes.Scalar)
    if isinstance(entry, yaml_nodes.Scalar) and entry.text:
        return is_entrypoint(entry.text)
    return "command" in node.entries


def _value(node: yaml_nodes.Mapping, key: str) -> yaml_nodes.Node | None:
    """The value of a key; `None` if there is none, or if it is `null`."""
    value = node.entries.get(key)
    return None if yaml_nodes.is_nothing(value) else value


def _takes_arguments(node: yaml_nodes.Mapping) -> bool:
    """Whether the run has a mapping of arguments, or may get one."""
    args, entry = _value(node, "args"), _value(node, "entrypoint")
    if args is None:
        return isinstance(entry, yaml_nodes.Scalar) and calls_function(entry.text)
    return isinstance(args, yaml_nodes.Mapping)


def _argument_axes(node: yaml_nodes.Mapping, axes: Axes, inside: frozenset[str]) -> tuple[str, ...]:
    """The axes whose values become arguments: those that `args` does not refer to."""
    return tuple(axis for axis in axes if axis not in inside) if _takes_arguments(node) else ()


def _unused_axes(
    matrix: yaml_nodes.Mapping, axes: Axes, used: Iterable[str], *, takes_arguments: bool
) -> tuple[Diagnostic, ...]:
    known = frozenset(used)
    return tuple(
        Diagnostic(
            code="unused_axis",
            summary=f"the axis `{axis}` is used nowhere: all its runs would be the same",
            place=matrix.keys[axis],
            hint=f"write `${{matrix.{axis}}}` where its value belongs"
            + ("" if takes_arguments else ", or make `args` a mapping of the function's arguments"),
        )
        for axis in axes
        if axis not in known
    )


def _replaced_arguments(
    node: yaml_nodes.Mapping, matrix: yaml_nodes.Mapping, argument_axes: Iterable[str]
) -> tuple[Diagnostic, ...]:
    """Warn of values in `args` that no run gets: an axis of the same name replaces them."""
    args = node.entries.get("args")
    if not isinstance(args, yaml_nodes.Mapping):
        return ()
    return tuple(
        Diagnostic(
            code="argument_replaced",
            severity=Severity.WARNING,
            summary=f"no run gets this value of `args.{axis}`: "
            f"the matrix has an axis `{axis}`, which replaces it",
            place=args.keys[axis],
            hint=f"remove `args.{axis}`, or rename the axis and write `${{matrix.NAME}}` where its "
            "value belongs",
            related=(Related(place=matrix.keys[axis], note="the axis"),),
        )
        for axis in argument_axes
        if axis in args.entries
    )


def _unknown_axes(
    node: yaml_nodes.Mapping, axes: Axes, used: frozenset[str], context: ReferenceContext
) -> tuple[Diagnostic, ...]:
    if used <= frozenset(axes):
        return ()
    scope = context.scope({axis: values[0] for axis, values in axes.items() if values})
    interpolate(_without_keys(node, "matrix"), scope)
    return tuple(scope.findings)


def _cells(
    explainer: ErrorExplainer,
    node: yaml_nodes.Mapping,
    name: str | None,
    context: ReferenceContext,
    axes: Axes,
    argument_axes: tuple[str, ...],
    texts: Mapping[str, Shape],
) -> tuple[tuple[DeclaredRun, ...], tuple[Diagnostic, ...]]:
    """Read the cells of a matrix. The matrix itself is validated with the first one. Only the first
    wrong cell is reported, since the others would repeat its errors."""
    bare = _without_keys(node, "matrix")
    runs: list[DeclaredRun] = []
    first: Places | None = None  # a value is where that of the first cell is, unless an axis is it
    for cell in cells(axes):
        cell_node, findings = _with_values(bare, cell, context, argument_axes, texts)
        if findings:
            return (), findings
        if not runs:
            entries = {**cell_node.entries, "matrix": node.entries["matrix"]}
            whole = replace(cell_node, entries=entries, keys=node.keys)
            checked, findings = _validated(replace(explainer, node=whole), whole, name, context)
            if checked is None or findings:
                return (), findings
        config, findings = _validated(replace(explainer, node=cell_node), cell_node, name, context)
        if config is None or findings:
            return (), findings
        first = first or Places(cell_node)
        where = Places(first.node, _places(cell, argument_axes)) if argument_axes else first
        runs.append(DeclaredRun(config=config, key=cell.key, places=where, spec=spec_of(config)))
    return tuple(runs), ()


def _with_values(
    node: yaml_nodes.Mapping,
    cell: Cell,
    context: ReferenceContext,
    argument_axes: tuple[str, ...],
    texts: Mapping[str, Shape],
) -> tuple[yaml_nodes.Mapping, tuple[Diagnostic, ...]]:
    """A run, or some fields of it, with the values of one cell in their places."""
    scope = context.scope(cell.values)
    cell_node = interpolate(node, scope)
    assert isinstance(cell_node, yaml_nodes.Mapping)  # noqa: S101 - references stand in scalars
    if argument_axes:
        cell_node = _with_args(cell_node, cell, argument_axes)
    return _as_declared(cell_node, texts), tuple(scope.findings)


def _with_args(
    node: yaml_nodes.Mapping, cell: Cell, argument_axes: tuple[str, ...]
) -> yaml_nodes.Mapping:
    values = {axis: cell.values[axis] for axis in argument_axes}
    places = {axis: yaml_nodes.place_of(value) for axis, value in values.items()}
    old = node.entries.get("args")
    if isinstance(old, yaml_nodes.Mapping):
        args = replace(old, entries={**old.entries, **values}, keys={**old.keys, **places})
    else:
        args = yaml_nodes.Mapping(dict(values), places, node.line, node.column, node.file)
    keys = {"args": yaml_nodes.place_of(args), **node.keys}
    return replace(node, entries={**node.entries, "args": args}, keys=keys)


def _places(cell: Cell, argument_axes: tuple[str, ...]) -> dict[str, Place]:
    return {f"args.{axis}": yaml_nodes.place_of(cell.values[axis]) for axis in argument_axes}


def _without_keys(node: yaml_nodes.Mapping, *names: str) -> yaml_nodes.Mapping:
    return _with_keys(node, (key for key in node.entries if key not in names))


def _with_keys(node: yaml_nodes.Mapping, names: Iterable[str]) -> yaml_nodes.Mapping:
    return replace(node, entries={key: node.entries[key] for key in names})
