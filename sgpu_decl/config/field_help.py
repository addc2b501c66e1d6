"""What a field means, in words: `sgpu explain run.env.variables`."""

import types
from enum import StrEnum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sgpu_decl.config.backend import BackendOptions, known_options
from sgpu_decl.config.env import SecretRef
from sgpu_decl.config.gpu_type import GpuType
from sgpu_decl.config.project import ProjectFile
from sgpu_decl.config.run import RunConfig
from sgpu_decl.config.text_types import Duration, Size
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
    GpuType: "type of GPU",
    SecretRef: "reference to a secret",
}


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
        path: dotted, from `run` or `project`: `run`, `run.env.variables`, `project.runs`.

    Raises:
        NotFound: there is no such field.
    """
    parts = path.split(".")
    root = _ROOTS.get(parts[0])
    if root is None:
        raise NotFound(f"there is no field `{path}`", hint="a path begins with `run` or `project`")
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
        elif model is None and values is not None:
            annotation = values
            field_help = FieldHelp(path=here, type=_type(values), default=None, required=False,
                              description=field_help.description)  # fmt: skip
        else:
            known = list(fields)
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
    return FieldHelp(path=path, type=field_help.type, default=field_help.default, children=children,
                     required=field_help.required, description=field_help.description)  # fmt: skip


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
