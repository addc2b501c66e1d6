"""`launch`: how ranks are started."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, StrictInt, Tag

from sgpu_decl.config.block import Block


def _form(value: object) -> str:
    return "<list>" if isinstance(value, list | tuple) else "<word>"


Warm = Annotated[
    Annotated[Literal["auto", "off"], Tag("<word>")] | Annotated[tuple[str, ...], Tag("<list>")],
    Discriminator(_form),
]


class Launch(Block):
    per: Literal["rank", "node"] = Field(
        "rank",
        description="`rank`: one process per GPU. `node`: a command that starts its own ranks.",
    )
    warm: Warm = Field(
        "auto",
        description="Ranks fork from one process that has imported these modules: `auto` (those "
        "that the entrypoint begins with, if torch is among them), `off`, or a list.",
    )
    master_port: Annotated[StrictInt, Field(ge=1, le=65535)] | None = Field(
        None, description="The port of rank 0's store; default: a free port."
    )
