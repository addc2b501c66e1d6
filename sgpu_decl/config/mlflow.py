"""`mlflow`: the tracking of a run."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from sgpu_decl.config.block import Block, Flag
from sgpu_decl.config.file_paths import LOCATION, STORE
from sgpu_decl.config.other_tool_keys import MLFLOW_KEYS
from sgpu_decl.text.shape import OtherToolKey


class Mlflow(Block):
    other_tools: ClassVar[Mapping[str, OtherToolKey]] = MLFLOW_KEYS

    enabled: Flag = Field(
        default=True,
        description="Whether each attempt gets an MLflow run. A written `true` is an error if "
        "MLflow is not installed.",
    )
    experiment: str | None = Field(
        None,
        min_length=1,
        description="The experiment; default: MLFLOW_EXPERIMENT_NAME, else the run's name.",
    )
    run_name: str | None = Field(
        None, min_length=1, description="The MLflow run's name; default: `name#attempt`."
    )
    tracking_uri: Annotated[str | None, STORE] = Field(
        None,
        min_length=1,
        description="The MLflow server or store; default: MLFLOW_TRACKING_URI, else a local "
        "database "
        "under `.sgpu/`.",
    )
    artifact_location: Annotated[str | None, LOCATION] = Field(
        None,
        min_length=1,
        description="Where a new experiment keeps its artifacts: a folder, a volume "
        "(`/Volumes/...`) or a URI. An existing experiment keeps its location.",
    )
    system_metrics: Flag = Field(
        default=True, description="Whether CPU, memory and GPU use is logged."
    )
