"""One declared run to the runs it stands for: itself, or the cells of its matrix."""

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sgpu_decl.config.cross_field import ORIGINS, Contradiction, Crossing, contradictions
from sgpu_decl.config.entry import calls_function, is_entrypoint
from sgpu_decl.config.error_messages import Explained, misspelt
from sgpu_decl.config.field_places import Places
from sgpu_decl.config.gpu_type import GpuType
from sgpu_decl.config.matrix import Axes, Cell, cells, read_axes
from sgpu_decl.config.matrix_cells import Common, dumped
from sgpu_decl.config.plain_values import Conversion, run_shape
from sgpu_decl.config.run import RunConfig
from sgpu_decl.config.shared_environments import with_shared_environment
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related, Severity, has_errors
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.jsonable import canonical
from sgpu_decl.text import yaml_nodes
from sgpu_decl.text.core_schema import is_null
from sgpu_decl.text.interpolation import Scope, axes_in, interpolate

__all__ = ["Declared", "Surroundings", "beyond", "crossed", "read_run", "spec_of"]

_STARTS = ("entrypoint", "command")
_AXIS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    config: RunConfig
    key: str
    places: Mapping[str, Place]
    spec: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What references may refer to; `references` is false where the file can hold none.
    `environments` are those of the project, `None` in a run file."""

    variables: Mapping[str, yaml_nodes.Scalar]
    target: str
    project: str | None
    environ: Mapping[str, str]
    git: Callable[[], Mapping[str, str]]
    references: bool
    environments: yaml_nodes.Mapping | None = None

    def scope(self, axes: Mapping[str, yaml_nodes.Scalar] | None) -> Scope:
        return Scope(
            variables=self.variables, target=self.target, project=self.project,
            environ=self.environ, git=self.git, axes=axes,
        )  # fmt: skip


def spec_of(config: RunConfig) -> str:
    """The canonical JSON of a run: no defaults, no name, no matrix.

    Raises:
        ValueError: an argument is not a finite number.
    """
    return canonical(dumped(config))


def read_run(
    node: yaml_nodes.Mapping, name: str | None, place: Place, around: Surroundings
) -> tuple[tuple[Declared, ...], tuple[Diagnostic, ...]]:
    """Read one run.

    Args:
        node: its block.
        name: its key in a project; `None` in a run file, which names itself.
        place: where it is named.

    Returns:
        The runs, none where anything is wrong, and what is wrong.
    """
    found: list[Diagnostic] = []
    matrix = node.entries.get("matrix")
    if around.references:
        scope = around.scope(None if isinstance(matrix, yaml_nodes.Mapping) else {})
        changed = interpolate(node, scope)
        node = changed if isinstance(changed, yaml_nodes.Mapping) else node
        matrix = node.entries.get("matrix")
        found += scope.found
    node, wrong = with_shared_environment(node, around.environments)
    found += wrong
    prefix = f"runs.{name}" if name is not None else ""
    explained = Explained(node=node, shape=run_shape(), prefix=prefix, place=place)
    if name is not None and "name" in node.entries:
        found.append(
            Diagnostic(
                code="name_in_project",
                summary=f"the name of a run in a project is its key, `{name}`",
                place=node.keys["name"],
                hint="remove `name`",
            )
        )
    if not isinstance(matrix, yaml_nodes.Mapping):
        config, wrong = _validated(explained, node, name)
        found += beyond(wrong, found)
        if config is None or found:
            return (), tuple(found)
        run = Declared(config=config, key="", places=Places(node), spec=spec_of(config))
        return (run,), _unused_limit(config, node)
    runs, wrong = _of_matrix(explained, node, matrix, name, around)
    found += beyond(wrong, found)
    return (() if has_errors(found) else runs), tuple(found)


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


def beyond(more: Iterable[Diagnostic], found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """What is not about a value that is known to be wrong: an unresolved reference is no number."""
    places = {one.place for one in found}
    return [one for one in more if one.place not in places]


def _validated(
    explained: Explained, node: yaml_nodes.Mapping, name: str | None
) -> tuple[RunConfig | None, tuple[Diagnostic, ...]]:
    conversion = Conversion()
    data: dict[str, Any] = conversion.plain(node, explained.shape)
    if name is not None:
        data["name"] = name
    try:
        return RunConfig.model_validate(data), tuple(conversion.found)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
    found = list(explained.errors(errors))
    shown = {one.code for one in found}
    meant = misspelt(node, explained.shape)
    found += [
        explained.contradiction(one)
        for one in crossed(data, errors, meant=meant)
        if one.code not in shown
    ]
    return None, (*conversion.found, *found)


def crossed(
    data: Mapping[str, Any], errors: Iterable[ErrorDetails], *, meant: Container[str] = ()
) -> tuple[Contradiction, ...]:
    """The contradictions between fields of a run that is not valid, so that a user sees all errors
    at once. Values that are wrong by themselves are left out; `meant` are fields that are
    misspelt."""
    started = any(field in data or field in meant for field in _STARTS)
    sound = data
    for error in errors:
        if error["type"] != "missing":
            sound = _without(sound, error["loc"])
    if not any(field in data for field in _STARTS):  # else another key may be near by chance
        sound = {**{field: "" for field in _STARTS if field in meant}, **sound}
    found = contradictions(_comparable(sound))
    return tuple(one for one in found if one.code != "no_entrypoint" or not started)


def _without(data: Mapping[str, Any], loc: Sequence[str | int]) -> Mapping[str, Any]:
    """A block without the value at a place, or the nearest one around it."""
    key = str(loc[0]) if loc else ""
    if key not in data:
        return data
    inner = data[key]
    if len(loc) > 1 and isinstance(inner, Mapping) and loc[1] in inner:
        return {**data, key: _without(inner, loc[1:])}
    return {name: value for name, value in data.items() if name != key}


def _comparable(data: Mapping[str, Any]) -> Crossing:
    gpus, ray = data.get("gpus"), data.get("ray")
    env, launch, logs = data.get("env"), data.get("launch"), data.get("logs")
    variables = env.get("variables") if isinstance(env, dict) else None
    secrets = env.get("secrets") if isinstance(env, dict) else None
    return Crossing(
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
        launch=launch if isinstance(launch, dict) else (),
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _of_matrix(
    explained: Explained,
    node: yaml_nodes.Mapping,
    matrix: yaml_nodes.Mapping,
    name: str | None,
    around: Surroundings,
) -> tuple[tuple[Declared, ...], tuple[Diagnostic, ...]]:
    bad = tuple(
        Diagnostic(code="bad_name", summary=f"`{axis}` is not the name of an axis",
                   place=matrix.keys[axis], hint="use letters, digits and `_`, no digit first")
        for axis in matrix.entries
        if not _AXIS.fullmatch(axis)
    )  # fmt: skip
    axes, found = read_axes(matrix)
    if axes is None or bad or not all(axes.values()) or not axes:
        _, wrong = _validated(explained, node, name)
        return (), (*bad, *found, *beyond(wrong, bad))
    args = node.entries.get("args")
    inside = axes_in(args) if args is not None and around.references else frozenset()
    outside = axes_in(_but(node, "args", "matrix")) if around.references else frozenset()
    given = _given(node, axes, inside)
    found = _unknown(node, axes, inside | outside, around)
    if _known(node) and not misspelt(node, explained.shape) & {"args", "entrypoint"}:
        found += _unused(matrix, axes, (*given, *inside, *outside), takes=_takes(node))
    if found:
        # a field that holds a reference still is no number yet: it would be told as a mistake
        wrong = () if outside else _validated(explained, node, name)[1]
        return (), (*found, *beyond(wrong, found))
    if inside or outside:
        runs, found = _cell_by_cell(explained, node, name, around, axes, given)
    else:
        base, found = _validated(explained, node, name)
        if base is None or found:
            return (), found
        runs, found = _by_arithmetic(base, node, axes, given)
    return runs, found or _replaced_arguments(node, matrix, given)


def _known(node: yaml_nodes.Mapping) -> bool:
    """Whether it is known what the run starts and how it takes arguments."""
    args, entry = _value(node, "args"), _value(node, "entrypoint")
    if args is not None:
        return not isinstance(args, yaml_nodes.Scalar)
    if isinstance(entry, yaml_nodes.Scalar) and entry.text:
        return is_entrypoint(entry.text)
    return "command" in node.entries


def _value(node: yaml_nodes.Mapping, key: str) -> yaml_nodes.Node | None:
    """The value of a key; None where there is none, or `null` takes it away."""
    found = node.entries.get(key)
    if isinstance(found, yaml_nodes.Scalar) and found.plain and is_null(found.text):
        return None
    return found


def _takes(node: yaml_nodes.Mapping) -> bool:
    """Whether the run has a mapping of arguments, or may have one."""
    args, entry = _value(node, "args"), _value(node, "entrypoint")
    if args is None:
        return isinstance(entry, yaml_nodes.Scalar) and calls_function(entry.text)
    return isinstance(args, yaml_nodes.Mapping)


def _given(node: yaml_nodes.Mapping, axes: Axes, inside: frozenset[str]) -> tuple[str, ...]:
    """The axes whose values become arguments: all that `args` does not place itself."""
    return tuple(axis for axis in axes if axis not in inside) if _takes(node) else ()


def _unused(
    matrix: yaml_nodes.Mapping, axes: Axes, used: Iterable[str], *, takes: bool
) -> tuple[Diagnostic, ...]:
    known = frozenset(used)
    return tuple(
        Diagnostic(
            code="unused_axis",
            summary=f"the axis `{axis}` is used nowhere: all its runs would be the same",
            place=matrix.keys[axis],
            hint=f"write `${{matrix.{axis}}}` where its value belongs"
            + ("" if takes else ", or make `args` a mapping of the function's arguments"),
        )
        for axis in axes
        if axis not in known
    )


def _replaced_arguments(
    node: yaml_nodes.Mapping, matrix: yaml_nodes.Mapping, given: Iterable[str]
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
        for axis in given
        if axis in args.entries
    )


def _unknown(
    node: yaml_nodes.Mapping, axes: Axes, used: frozenset[str], around: Surroundings
) -> tuple[Diagnostic, ...]:
    if used <= frozenset(axes):
        return ()
    scope = around.scope({axis: values[0] for axis, values in axes.items() if values})
    interpolate(_but(node, "matrix"), scope)
    return tuple(scope.found)


def _by_arithmetic(
    base: RunConfig, node: yaml_nodes.Mapping, axes: Axes, given: tuple[str, ...]
) -> tuple[tuple[Declared, ...], tuple[Diagnostic, ...]]:
    """The cells of a matrix that touches `args` alone: the rest is validated and written once.

    `args` is the first key of a spec, so that a cell's spec is its arguments and the common rest.
    """
    conversion = Conversion()
    plain = {value: conversion.plain(value, None) for values in axes.values() for value in values}
    if conversion.found:
        return (), tuple(conversion.found)
    common = base.args if isinstance(base.args, dict) else {}
    bare = base.model_copy(update={"args": None, "matrix": None})
    rest = spec_of(bare)[1:]
    tail = f",{rest}" if rest != "}" else rest
    runs = []
    for cell in cells(axes):
        args = {**common, **{axis: plain[cell.values[axis]] for axis in given}}
        runs.append(
            Declared(
                config=bare.model_copy(update={"args": args}),
                key=cell.key,
                places=Places(node, _places(cell, given)),
                spec=f'{{"args":{canonical(args)}{tail}',
            )
        )
    return tuple(runs), ()


def _cell_by_cell(
    explained: Explained,
    node: yaml_nodes.Mapping,
    name: str | None,
    around: Surroundings,
    axes: Axes,
    given: tuple[str, ...],
) -> tuple[tuple[Declared, ...], tuple[Diagnostic, ...]]:
    """Cells whose values stand elsewhere than in `args`. The first is read whole, of the others
    the fields that a value stands in. The first cell that is wrong is told; the others would repeat
    it."""
    each = cells(axes)
    first = next(each)
    bare = _but(node, "matrix")
    filled, found = _filled(bare, first, around, given)
    if found:
        return (), found
    config, found = _validated(replace(explained, node=filled), filled, name)
    if config is None or found:
        return (), found
    # The matrix itself is validated once, with the first cell.
    kept = replace(filled, entries={**filled.entries, "matrix": node.entries["matrix"]})
    checked, found = _validated(replace(explained, node=kept), kept, name)
    if checked is None or found:
        return (), found
    varying = frozenset(key for key, value in bare.entries.items() if axes_in(value))
    varying |= {"args"} if given else frozenset()
    common, part = Common(config, varying), _only(bare, varying & bare.entries.keys())
    # Every value is where the first cell's is, but for those that the matrix gives itself.
    places = Places(filled)
    runs = [Declared(config=config, key=first.key, places=places, spec=spec_of(config))]
    for cell in each:
        own, found = _filled(part, cell, around, given)
        conversion = Conversion()
        values = conversion.plain(own, explained.shape)
        if found or conversion.found:
            return (), (*found, *conversion.found)
        try:
            config, spec = common.cell(values)
        except ValidationError:
            whole, _ = _filled(bare, cell, around, given)
            return (), _validated(replace(explained, node=whole), whole, name)[1]
        where = Places(filled, _places(cell, given)) if given else places
        runs.append(Declared(config=config, key=cell.key, places=where, spec=spec))
    return tuple(runs), ()


def _filled(
    node: yaml_nodes.Mapping, cell: Cell, around: Surroundings, given: tuple[str, ...]
) -> tuple[yaml_nodes.Mapping, tuple[Diagnostic, ...]]:
    """A run, or some fields of it, with the values of one cell in their places."""
    scope = around.scope(cell.values)
    filled = interpolate(node, scope)
    assert isinstance(filled, yaml_nodes.Mapping)  # noqa: S101 - references stand in scalars
    return (_with_args(filled, cell, given) if given else filled), tuple(scope.found)


def _with_args(node: yaml_nodes.Mapping, cell: Cell, given: tuple[str, ...]) -> yaml_nodes.Mapping:
    values = {axis: cell.values[axis] for axis in given}
    places = {axis: yaml_nodes.place_of(value) for axis, value in values.items()}
    old = node.entries.get("args")
    if isinstance(old, yaml_nodes.Mapping):
        args = replace(old, entries={**old.entries, **values}, keys={**old.keys, **places})
    else:
        args = yaml_nodes.Mapping(dict(values), places, node.line, node.column, node.file)
    keys = {"args": yaml_nodes.place_of(args), **node.keys}
    return replace(node, entries={**node.entries, "args": args}, keys=keys)


def _places(cell: Cell, given: tuple[str, ...]) -> dict[str, Place]:
    return {f"args.{axis}": yaml_nodes.place_of(cell.values[axis]) for axis in given}


def _but(node: yaml_nodes.Mapping, *names: str) -> yaml_nodes.Mapping:
    return _only(node, (key for key in node.entries if key not in names))


def _only(node: yaml_nodes.Mapping, names: Iterable[str]) -> yaml_nodes.Mapping:
    return replace(node, entries={key: node.entries[key] for key in names})
