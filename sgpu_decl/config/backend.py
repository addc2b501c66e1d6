"""`backend`: where ranks run."""

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from sgpu_decl.config.block import Block
from sgpu_decl.config.units import Size

__all__ = ["Backend"]


class Backend(Block):
    """A backend's name, or a mapping with its `kind`."""

    short: ClassVar[str | None] = "kind"

    kind: Literal["local", "ray", "databricks"] = Field(
        "local", description="`local` (this machine), `ray` (a cluster) or `databricks`."
    )
    address: str | None = Field(
        None, description="Ray: the address of the cluster (`auto`, `ray://host:10001`)."
    )
    profile: str | None = Field(
        None, description="Databricks: the profile of `~/.databrickscfg` to use."
    )

    environment_limit: Size = Field(
        Size(15 << 30),
        description="The most that a captured environment may hold; larger ones are refused.",
    )

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {"kind": value} if isinstance(value, str) else value
