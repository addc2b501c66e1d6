"""What platforms have and this machine has not: who may see a run, who hears of its end."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from sgpu_decl.config.block import Block
from sgpu_decl.config.problems import problem

__all__ = ["OnFinish", "Permission"]


def _mail(address: str) -> str:
    name, _, host = address.rpartition("@")
    if not name or not host or " " in address:
        raise problem("bad_mail", "{path} is not a mail address", "such as `me@example.com`")
    return address


Mail = Annotated[str, AfterValidator(_mail)]


class Permission(Block):
    level: Literal["view", "run", "manage"] = Field(description="What is allowed.")
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
