"""The `backend` block of a Databricks workspace."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from sgpu_decl.config.backend import BackendOptions
from sgpu_decl.config.block import WorkspaceUrl
from sgpu_decl.config.text_types import problem

_VOLUME = re.compile(r"/Volumes/[^/]+/[^/]+/[^/]+(/.+)?")


def _staging(value: str) -> str:
    path = value.rstrip("/")
    if ".." in path.split("/") or not (path.startswith("/Workspace/") or _VOLUME.fullmatch(path)):
        raise problem(
            "bad_staging",
            "{path} must be a folder of the workspace",
            "such as `/Workspace/Users/me@example.com/.sgpu` or `/Volumes/main/ml/sgpu`",
        )
    return path


class DatabricksOptions(BackendOptions):
    """Ranks run on the serverless GPU compute of a Databricks workspace."""

    profile: str | None = Field(
        None, description="Databricks: the profile of `~/.databrickscfg` to use."
    )
    host: WorkspaceUrl | None = Field(
        None,
        description="Databricks: the workspace's URL. The credentials come from the profile for "
        "this URL; a profile for another workspace is refused.",
    )
    staging: Annotated[str, AfterValidator(_staging)] | None = Field(
        None,
        description="Databricks: the folder for the files of runs, below `/Workspace` or "
        "`/Volumes`; default: `.sgpu` in your own folder of the workspace.",
    )
