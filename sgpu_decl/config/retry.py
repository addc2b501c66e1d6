"""`retry`: when the ranks of an attempt are started again."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from sgpu_decl.config.block import Block, WholeNumber
from sgpu_decl.config.other_tool_keys import RETRY_KEYS
from sgpu_decl.config.units import Duration
from sgpu_decl.text.shape import OtherToolKey

_FIRST_BACKOFF = Duration(1.0)


class Retry(Block):
    other_tools: ClassVar[Mapping[str, OtherToolKey]] = RETRY_KEYS

    max: WholeNumber = Field(0, description="How many restarts at most, within one attempt.")
    on: tuple[Literal["infra", "error"], ...] = Field(
        ("infra",),
        description="Which failures lead to a restart: `infra` (the machine), `error` (the user's "
        "code).",
    )
    backoff: Duration | None = Field(
        None,
        description="The wait before the first restart, a second by default. It doubles for each "
        "further restart, up to a minute, or up to `backoff` if that is longer.",
    )

    @property
    def first_backoff(self) -> Duration:
        """The wait before the first restart."""
        return self.backoff or _FIRST_BACKOFF
