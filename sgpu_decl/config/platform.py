"""What platforms have and this machine has not: who may see a run, who hears of its end."""

from typing import Literal

from pydantic import Field

from sgpu_decl.config.block import Block

__all__ = ["OnFinish", "Permission"]


class Permission(Block):
    level: Literal["view", "run", "manage"] = Field(description="What is allowed.")
    user: str | None = Field(None, description="A user's name.")
    group: str | None = Field(None, description="A group's name.")
    service_principal: str | None = Field(None, description="A service principal's id.")


class OnFinish(Block):
    success: tuple[str, ...] = Field((), description="Who is told when a run has succeeded.")
    failure: tuple[str, ...] = Field((), description="Who is told when a run has failed.")
