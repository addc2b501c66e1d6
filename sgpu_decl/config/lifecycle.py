"""`lifecycle`: what plans may do to a run."""

from pydantic import Field

from sgpu_decl.config.block import Block, Flag


class Lifecycle(Block):
    prevent_destroy: Flag = Field(
        default=False,
        description="Refuse any plan that would destroy the run or replace it while active.",
    )
    ignore_changes: tuple[str, ...] = Field(
        (), description="Dotted paths of fields whose changes are ignored (`env.variables.SEED`)."
    )
