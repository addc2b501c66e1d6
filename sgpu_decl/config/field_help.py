"""What a field means, in words: `sgpu explain run.env.variables`."""

import types
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sgpu_decl.config.backend import BackendOptions, known_options
from sgpu_decl.config.env import SecretRef
from sgpu_decl.config.gpu_type import GpuType
from sgpu_decl.config.on_finish import WebhookUrl
from sgpu_decl.config.project import ProjectFile
from sgpu_decl.config.run import RunConfig
from sgpu_decl.config.text_types import Duration, Percent, Size
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.errors import NotFound
from sgpu_decl.frozen_dataclass import dataclass

_ROOTS: dict[str, type[BaseModel]] = {"run": RunConfig, "project": ProjectFile}
_WORDS: dict[object, str] = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    Duration: "duration (`90s`, `6h`)",
    Size: "size (`2GiB`)",
    Percent: "share (`5%`)",
    GpuType: "type of GPU",
    SecretRef: "reference to a secret",
    WebhookUrl: "URL, or reference to a secret",
}
VARIABLES = (
    "Values that `${var.name}` refers to. `--var name=value` overrides `SGPU_VAR_name`, which "
    "overrides files of `--var-file`."
)
VARIABLE_FIELDS = {
    "type": "What the value must be; default: the type of the default.",
    "default": "The value unless `--var` or a file gives another.",
    "values": "The values that are allowed.",
    "description": "What the variable is for.",
    "lookup": "The name of an object whose id a plan asks the workspace for, instead of `default`: "
    "`{warehouse: NAME}`, `{service_principal: NAME}` or `{notification_destination: NAME}`.",
}
TARGETS = "Named sets of overrides, chosen with `-t`."
TARGET_FIELDS = {
    "default": "Whether commands that name no target use this one.",
    "extends": "Another target: this one is laid over it.",
    "branch": "The git branch that the target is applied from; from another one, apply is refused.",
    "requires": "`reviewed`: apply needs `--reviewed`, so that proposals show all that it does.",
    "user": "Who applies the target: a user name, or the application id of a service principal.",
}
"""Blocks that every file may have, beside what its model says; the fields of a target are those of
a project's, beside what it overrides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldHelp:
    """`default` is text as in YAML, `None` where the field is required or has none."""

    path: str
    type: str
    default: str | None
    description: str
    required: bool
    children: "tuple[FieldHelp, ...]" = ()


def describe(path: str) -> FieldHelp:
    """Describe a field and what is directly inside it.

    Args:
        path: dotted, from `run` or `project`: `run`, `run.env.variables`, `project.runs`. The name
            of an entry may be left out: `project.jobs.trigger`.

    Raises:
        NotFound: there is no such field.
    """
    parts = path.split(".")
    root = _ROOTS.get(parts[0])
    if root is None:
        raise NotFound(f"there is no field `{path}`", hint="a path begins with `run` or `project`")
    if parts[1:2] == ["variables"]:
        return _variables(parts[0], parts[2:])
    if parts[1:2] == ["targets"]:
        return _targets(parts[0], parts[2:])
    annotation: object = root
    field_help = FieldHelp(
        path=parts[0], type="mapping", default=None, required=True,
        description=(root.__doc__ or f"A {parts[0]} file.").strip().splitlines()[0],
    )  # fmt: skip
    for index, part in enumerate(parts[1:], start=2):
        here = ".".join(parts[:index])
        model = _model(annotation)
        values = _values(annotation)
        fields = _fields(model)
        if part in fields:
            info = fields[part]
            annotation = info.annotation
            field_help = _help(here, info)
        elif model is None and part in (entry := _fields(_model(values))):
            annotation = entry[part].annotation
            field_help = _help(here, entry[part])
        elif model is None and values is not None:
            annotation = values
            field_help = FieldHelp(path=here, type=_type(values), default=None, required=False,
                              description=field_help.description)  # fmt: skip
        else:
            known = [*fields, *(("variables", "targets") if index == 2 else ())]
            near = nearest(part, known)
            raise NotFound(
                f"there is no field `{here}`",
                hint=f"did you mean `{'.'.join((*parts[: index - 1], near))}`?" if near else
                f"known: {', '.join(f'`{name}`' for name in known)}" if known else None,
            )  # fmt: skip
    fields = _fields(_model(annotation) or _model(_values(annotation)))
    children = tuple(
        _help(f"{path}.{name}" if _model(annotation) else f"{path}.NAME.{name}", info)
        for name, info in fields.items()
    )
    if len(parts) == 1:
        children += (_variables(path, []), replace(_targets(path, []), children=()))
    return FieldHelp(path=path, type=field_help.type, default=field_help.default, children=children,
                     required=field_help.required, description=field_help.description)  # fmt: skip


def _variables(root: str, below: list[str]) -> FieldHelp:
    path = f"{root}.variables"
    fields = {name: _text_field(f"{path}.NAME", name) for name in VARIABLE_FIELDS}
    match below:
        case [name] | [_, name] if name in fields:
            return fields[name]
        case [] | [_]:
            return FieldHelp(
                path=".".join((path, *below)), type="mapping of text, number, true or false",
                default=None, description=VARIABLES, required=False, children=(*fields.values(),),
            )  # fmt: skip
    raise NotFound(
        f"there is no field `{'.'.join((path, *below))}`", hint=f"`sgpu explain {path}` lists them"
    )


def _targets(root: str, below: list[str]) -> FieldHelp:
    path = f"{root}.targets"
    named = f"{path}.NAME"
    said = TARGET_FIELDS if root == "project" else {}
    own = {name: _text_field(named, name) for name in said}
    inside = [*_fields(_ROOTS[root]), "variables"]
    rest = below if below[:1] and below[0] in (*own, *inside) else below[1:]
    if rest[:1] and rest[0] in own:
        return own[rest[0]]
    if rest and rest[0] != "targets":
        return _inside(describe(".".join((root, *rest))), root, named)
    if rest:
        raise NotFound(f"there is no field `{'.'.join((path, *below))}`", hint="targets hold none")
    overridden = (describe(f"{root}.{name}") for name in inside)
    children = (replace(_inside(one, root, named), children=()) for one in overridden)
    return FieldHelp(
        path=".".join((path, *below)), type="mapping of mapping", default=None, required=False,
        description=TARGETS, children=(*own.values(), *children),
    )  # fmt: skip


def _inside(field: FieldHelp, root: str, named: str) -> FieldHelp:
    """The help of a field where a target overrides it: nothing is required, or a default."""
    return replace(
        field, path=named + field.path.removeprefix(root), default=None, required=False,
        children=tuple(_inside(child, root, named) for child in field.children),
    )  # fmt: skip


def _text_field(block: str, name: str) -> FieldHelp:
    of_target = block.endswith(".targets.NAME")
    kinds = {
        "default": "true or false" if of_target else "any value",
        "values": "list of any value",
        "lookup": "mapping of text",
    }
    return FieldHelp(
        path=f"{block}.{name}", type=kinds.get(name, "text"), default=None, required=False,
        description=(TARGET_FIELDS if of_target else VARIABLE_FIELDS)[name],
    )  # fmt: skip


def _help(path: str, info: FieldInfo) -> FieldHelp:
    return FieldHelp(
        path=path,
        type=_type(info.annotation),
        default=None if info.is_required() else _default(info.default),
        required=info.is_required(),
        description=info.description or "",
    )


def _default(value: Any) -> str | None:
    if value is None or isinstance(value, BaseModel) or value == () or value == {}:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value)


def _members(annotation: object) -> tuple[object, ...]:
    """The members of a union without `None`, annotations taken off."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(
            one for member in get_args(annotation) if member is not type(None)
            for one in _members(member)
        )  # fmt: skip
    return (annotation,)


def _model(annotation: object) -> type[BaseModel] | None:
    for member in _members(annotation):
        if isinstance(member, type) and issubclass(member, BaseModel):
            return member
    return None


def _fields(model: type[BaseModel] | None) -> dict[str, FieldInfo]:
    """The fields of a block; those of all kinds where they depend on its kind."""
    if model is BackendOptions:
        return {
            k: field for one in known_options().values() for k, field in one.model_fields.items()
        }
    return model.model_fields if model is not None else {}


def _values(annotation: object) -> object | None:
    """What the entries of a mapping or the members of a list are."""
    for member in _members(annotation):
        if get_origin(member) is dict:
            return get_args(member)[1]  # type: ignore[no-any-return]
        if get_origin(member) in (tuple, list):
            return get_args(member)[0]  # type: ignore[no-any-return]
    return None


def _type(annotation: object) -> str:
    return " or ".join(dict.fromkeys(_word(member) for member in _members(annotation)))


def _word(member: object) -> str:
    origin = get_origin(member)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in get_args(member))
    if origin is dict:
        return f"mapping of {_type(get_args(member)[1])}"
    if origin in (tuple, list):
        return f"list of {_type(get_args(member)[0])}"
    if isinstance(member, type) and issubclass(member, BaseModel):
        return "mapping"
    if isinstance(member, type) and issubclass(member, StrEnum):
        return ", ".join(f"`{one}`" for one in member)
    return _WORDS.get(member, "any value")
