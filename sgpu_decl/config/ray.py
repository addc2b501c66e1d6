"""`ray`: a run that is a Ray program."""

from typing import Any, ClassVar

from pydantic import Field, model_validator

from sgpu_decl.config.block import Block, Flag, Positive, WholeNumber
from sgpu_decl.config.units import Duration, Size

__all__ = ["Ray"]


class Ray(Block):
    """`true`, or the options of the cluster that is started for the run."""

    short: ClassVar[str | None] = "enabled"

    enabled: Flag = Field(
        default=True, description="Whether Ray is started; `ray: true` says the same."
    )
    cpus_per_node: Positive | None = Field(
        None, description="The CPUs that Ray counts on each node; default: all."
    )
    gpus_per_worker: WholeNumber = Field(1, description="The GPUs that each worker is given.")
    object_store_memory: Size | None = Field(
        None, description="The memory of the object store on each node."
    )
    dashboard: Flag = Field(default=False, description="Whether Ray's dashboard is started.")
    startup_timeout: Duration | None = Field(
        None, description="How long the nodes may take to join."
    )

    @model_validator(mode="before")
    @classmethod
    def _switched(cls, value: Any) -> Any:
        return {"enabled": value} if isinstance(value, bool) else value
