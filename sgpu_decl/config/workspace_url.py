"""A field that names a workspace by its URL."""

import re
from typing import Annotated, TypeAlias

from pydantic import AfterValidator

from sgpu_decl.config.problems import problem

_HOST = re.compile(r"(https?://)?([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*)(:\d{1,5})?/?")


def _in_one_form(value: str) -> str:
    match = _HOST.fullmatch(value)
    if match is None:
        raise problem(
            "bad_host",
            "{path} must be the URL of a workspace",
            "such as `https://dbc-1234.cloud.databricks.com`, with nothing behind it",
        )
    return f"{match[1] or 'https://'}{match[2].lower()}{match[3] or ''}"


WorkspaceUrl: TypeAlias = Annotated[str, AfterValidator(_in_one_form)]
"""Each workspace has one text."""
