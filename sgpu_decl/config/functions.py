"""`functions`: what decorated functions take where their decorators are silent."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, create_model
from pydantic.fields import FieldInfo

from sgpu_decl.config.block import Block
from sgpu_decl.config.run import RunConfig

__all__ = ["DECIDED", "Functions"]

DECIDED = {
    "name": "it is the name of the function",
    "entrypoint": "it is the decorated function",
    "command": "it is the decorated function",
    "args": "they are the arguments of the call",
    "matrix": "each call is one run: call the function for each combination",
    "ray": "the decorator decides it: `@ray_launch` makes a call a Ray program",
    "until": "each call launches, whatever became of the last one",
    "on_active": "each call is an attempt beside the others",
    "lifecycle": "no plan changes or removes a call",
}
"""The fields of a run that a call decides itself, with the reason."""


class _Functions(Block):
    elsewhere: ClassVar[Mapping[str, str]] = DECIDED


def _optional(info: FieldInfo) -> tuple[Any, Any]:
    """The type and the field of a run as they are, but that nothing is required."""
    if not info.is_required():
        return info.annotation, info
    kind: Any = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
    return kind | None, Field(None, description=info.description)


_FIELDS: dict[str, Any] = {
    name: _optional(info) for name, info in RunConfig.model_fields.items() if name not in DECIDED
}

Functions = create_model(
    "Functions",
    __base__=_Functions,
    __doc__="What decorated functions take where their decorators are silent.",
    **_FIELDS,
)
