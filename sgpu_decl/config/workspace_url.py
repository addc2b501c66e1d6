"""A field that names a workspace by its URL."""

import re

from sgpu_decl.config.problems import problem

__all__ = ["workspace_url"]

_HOST = re.compile(r"(https?://)?([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*)(:\d{1,5})?/?")


def workspace_url(value: str) -> str:
    """The URL in one form, for a validator of pydantic."""
    match = _HOST.fullmatch(value)
    if match is None:
        raise problem(
            "bad_host",
            "{path} must be the URL of a workspace",
            "such as `https://dbc-1234.cloud.databricks.com`, with nothing behind it",
        )
    return f"{match[1] or 'https://'}{match[2].lower()}{match[3] or ''}"
