"""The `backend` block of a Ray cluster."""

from pydantic import Field

from sgpu_decl.config.backend import BackendOptions

__all__ = ["RayOptions"]


class RayOptions(BackendOptions):
    """Ranks run on a Ray cluster."""

    address: str | None = Field(
        None, description="Ray: the address of the cluster (`auto`, `ray://host:10001`)."
    )
