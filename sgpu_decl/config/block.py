"""What every block of the YAML shares."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictInt

from sgpu_decl.text.shape import OtherToolKey

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$"

Flag = StrictBool
WholeNumber = Annotated[StrictInt, Field(ge=0)]
Positive = Annotated[StrictInt, Field(ge=1)]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]


def name_or_address(kind: str) -> str:
    """The pattern of a name that may be written as an address, `run.train`."""
    return NAME_PATTERN.replace("^", rf"^({kind}\.)?", 1)


class Block(BaseModel):
    """Frozen, and unknown keys are errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        protected_namespaces=(),
        hide_input_in_errors=True,
        allow_inf_nan=False,
        defer_build=True,  # blocks inside of others need no validator of their own
    )

    short: ClassVar[str | None] = None
    """The field that a value in the place of the block stands for: `backend: ray`."""

    elsewhere: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Names that one may look for here in vain, and why they are not."""

    other_tools: ClassVar[Mapping[str, OtherToolKey]] = MappingProxyType({})
    """Names that other tools have for fields of this block."""

    def __eq__(self, other: object) -> bool:
        """By the fields alone: a block has neither private nor extra ones, which pydantic adds."""
        if self is other:
            return True
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Itself: it never changes, and pydantic would copy a default block for every run."""
        return self


Value = TypeVar("Value")


def _or_none(value: Value) -> Value | None:
    return value or None


NONE_IF_EMPTY = AfterValidator(_or_none)
"""Makes an empty value the same as a missing one in the spec of a run."""
