"""`retry`: when the ranks of an attempt are started again."""

from typing import Literal

from pydantic import Field

from sgpu_decl.config.block import Block, WholeNumber
from sgpu_decl.config.units import Duration

__all__ = ["Retry"]


class Retry(Block):
    max: WholeNumber = Field(0, description="How many restarts at most, within one attempt.")
    on: tuple[Literal["infra", "error"], ...] = Field(
        ("infra",),
        description="Which failures lead to a restart: `infra` (the machine), `error` (the user's "
        "code).",
    )
    backoff: Duration = Field(Duration(10.0), description="The wait before each restart.")
