"""What platforms have and this machine has not: who may see a run, who hears of its end."""

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from sgpu_decl.config.block import Block
from sgpu_decl.config.other_tool_keys import PERMISSION_KEYS
from sgpu_decl.config.problems import problem
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.text.shape import OtherToolKey


def _mail(address: str) -> str:
    name, _, host = address.rpartition("@")
    if not name or not host or " " in address:
        raise problem("bad_mail", "{path} is not a mail address", "such as `me@example.com`")
    return address


Mail = Annotated[str, AfterValidator(_mail)]


LEVELS = ("view", "run", "manage")
_OF_PLATFORM = re.compile(r"[A-Z][A-Z_]*_[A-Z_]*")


def _level(value: object) -> object:
    """A level of ours, or one that a platform may have."""
    if not isinstance(value, str) or value in LEVELS or _OF_PLATFORM.fullmatch(value):
        return value
    near = nearest(value, LEVELS)
    raise problem(
        "unknown_value",
        "{path} must be `view`, `run` or `manage`, not {given}",
        f"did you mean `{near}`?"
        if near
        else "or the name that the platform has for a level, such as `CAN_VIEW`",
    )


class Permission(Block):
    other_tools: ClassVar[Mapping[str, OtherToolKey]] = PERMISSION_KEYS

    level: Annotated[
        str,
        Field(pattern=rf"^({'|'.join(LEVELS)}|{_OF_PLATFORM.pattern})$|\$\{{"),
        BeforeValidator(_level),
    ] = Field(
        description="What is allowed: `view`, `run` or `manage`, or the name that the platform has "
        "for a level, such as `CAN_VIEW`."
    )
    user: str | None = Field(None, description="A user's name.")
    group: str | None = Field(None, description="A group's name.")
    service_principal: str | None = Field(None, description="A service principal's id.")

    @model_validator(mode="after")
    def _somebody(self) -> Self:
        if (
            len([holder for holder in (self.user, self.group, self.service_principal) if holder])
            != 1
        ):
            raise problem(
                "contradiction",
                "{path} is for one of `user`, `group` and `service_principal`",
                "write `{level: view, group: users}`, one entry for each",
            )
        return self


class OnFinish(Block):
    success: tuple[Mail, ...] = Field((), description="Who gets a mail when a run has succeeded.")
    failure: tuple[Mail, ...] = Field((), description="Who gets a mail when a run has failed.")
