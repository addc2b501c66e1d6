"""`backend`: where ranks run."""

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from sgpu_decl.config.block import Block, problem
from sgpu_decl.config.units import Size

__all__ = ["Backend"]

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


Host = Annotated[str, AfterValidator(_host)]
Staging = Annotated[str, AfterValidator(_staging)]


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
    host: Host | None = Field(
        None,
        description="Databricks: the workspace's URL; credentials come from the profile for it, "
        "and one that is for another workspace is refused.",
    )
    staging: Staging | None = Field(
        None,
        description="Databricks: the folder for what a run takes along, below `/Workspace` or "
        "`/Volumes`; default: `.sgpu` in your own folder of the workspace.",
    )
    environment_limit: Size = Field(
        Size(15 << 30),
        description="The most that a captured environment may hold; larger ones are refused.",
    )

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {"kind": value} if isinstance(value, str) else value
