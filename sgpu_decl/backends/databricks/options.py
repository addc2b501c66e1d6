"""The `backend` block of a Databricks workspace."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from sgpu_decl.config.backend import BackendOptions
from sgpu_decl.config.problems import problem

_HOST = re.compile(r"(https?://)?([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*)(:\d{1,5})?/?")
_VOLUME = re.compile(r"/Volumes/[^/]+/[^/]+/[^/]+(/.+)?")


def _host(value: str) -> str:
    match = _HOST.fullmatch(value)
    if match is None:
        raise problem(
            "bad_host",
            "{path} must be the URL of a workspace",
            "such as `https://dbc-1234.cloud.databricks.com`, with nothing behind it",
        )
    return f"{match[1] or 'https://'}{match[2].lower()}{match[3] or ''}"


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
    host: Annotated[str, AfterValidator(_host)] | None = Field(
        None,
        description="Databricks: the workspace's URL; credentials come from the profile for it, "
        "and one that is for another workspace is refused.",
    )
    staging: Annotated[str, AfterValidator(_staging)] | None = Field(
        None,
        description="Databricks: the folder for what a run takes along, below `/Workspace` or "
        "`/Volumes`; default: `.sgpu` in your own folder of the workspace.",
    )
