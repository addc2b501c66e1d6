"""`mlflow`: the tracking of a run."""

from pydantic import Field

from sgpu_decl.config.block import Block, Flag

__all__ = ["Mlflow"]


class Mlflow(Block):
    enabled: Flag = Field(
        default=True, description="Whether an MLflow run is made for each attempt."
    )
    experiment: str | None = Field(
        None, description="The experiment's name; default: the project's or the run's name."
    )
    run_name: str | None = Field(
        None, description="The MLflow run's name; default: `name#attempt`."
    )
    tracking_uri: str | None = Field(
        None, description="Where MLflow stores; default: a local database under `.sgpu/`."
    )
    system_metrics: Flag = Field(
        default=True, description="Whether CPU, memory and GPU use is logged."
    )
