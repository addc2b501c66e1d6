"""How a target is named: its state lies in a folder of that name."""

import re
from enum import StrEnum

BASE = "default"  # the folder of what is applied without a target
USER = "${user}"
"""In values of runs and jobs: who plans them, as `short_name` says it."""
TARGET_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}"
_NO_NAME = re.compile(r"[^\w]|_", re.UNICODE)


class Mode(StrEnum):
    """What a target is for, in the words of Databricks bundles."""

    DEVELOPMENT = "development"
    PRODUCTION = "production"


def short_name(user: str) -> str:
    """A user's name as bundles shorten it: what is before the `@`, letters and digits alone."""
    return _NO_NAME.sub("_", user.partition("@")[0])


def misnamed(name: str) -> str | None:
    """What to do about a name that no target can have; `None` for a good one."""
    if name == BASE:
        return f"`{BASE}` is what is applied without a target: take another name"
    if re.fullmatch(TARGET_NAME, name) is None:
        return "take letters, digits, `_`, `-` and `.`, no `.` first, at most 100"
    return None
