"""`functions`: what decorated functions take where their decorators are silent."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, create_model
from pydantic.fields import FieldInfo

from sgpu_decl.config.block import Block
from sgpu_decl.config.run import RunConfig
from sgpu_decl.config.units import Duration

DECIDED = {
    "name": "it is the name of the function",
    "renamed_from": "the history of its calls stays under their name",
    "entrypoint": "it is the decorated function",
    "command": "it is the decorated function",
    "args": "they are the arguments of the call",
    "code": "a function travels with what it uses",
    "matrix": "each call is one run: `.map([...])` calls the function for each combination",
    "ray": "the decorator decides it: `@ray_launch` makes a call a Ray program",
    "after": "a call starts when it is made",
    "until": "each call launches, whatever became of the last one",
    "on_active": "each call is an attempt beside the others",
    "lifecycle": "no plan changes or removes a call",
}
"""The fields of a run that a call decides itself, with the reason."""


class _Functions(Block):
    elsewhere: ClassVar[Mapping[str, str]] = DECIDED

    keep_warm: Duration | None = Field(
        None,
        description="How long what ranks import stays imported after a call, for the next one on "
        "this machine; default: 2m in notebooks, elsewhere 0, which is off.",
    )


_MEANT = {"max_parallel": "How many calls run at once, of all functions; the others wait."}


def _optional(name: str, info: FieldInfo) -> tuple[Any, Any]:
    """The type and the field of a run as they are, but that nothing is required."""
    kind: Any = info.annotation
    if info.is_required():
        kind = (Annotated[kind, *info.metadata] if info.metadata else kind) | None
    elif name not in _MEANT:
        return kind, info
    return kind, Field(None, description=_MEANT.get(name, info.description))


_FIELDS: dict[str, Any] = {
    name: _optional(name, info)
    for name, info in RunConfig.model_fields.items()
    if name not in DECIDED
}

Functions = create_model(
    "Functions",
    __base__=_Functions,
    __doc__="The defaults of decorated functions.",
    **_FIELDS,
)
