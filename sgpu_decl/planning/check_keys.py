"""Keys of runs that need the same checks: of the cells of a matrix, one cell is checked for all."""

import re
from collections.abc import Hashable
from typing import TYPE_CHECKING

from sgpu_decl.model.jsonable import Json

if TYPE_CHECKING:
    from sgpu_decl.config.loaded import LoadedRun

_UNCHECKED = ("command", "description", "parameters", "tags")
"""Fields that no check looks into; of a command, see below. All others are part of the key, so a
new field is checked in each cell where it differs until it is named here."""


# A word of a command, or what stands behind its `=`, that is a number.
_NUMBER = re.compile(r"(?<=[\s='\"])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?=[\s'\"])", re.IGNORECASE)


def check_key(run: "LoadedRun") -> Hashable:
    """Return what decides which checks a run needs. Of arguments and variables the names count, and
    the values do not: they differ from cell to cell, but not in a way that matters to a check.
    Neither do the numbers of a command."""
    if not run.address.key:
        return run.address
    fields = run.spec.fields
    kept = {key: value for key, value in fields.items() if key not in _UNCHECKED}
    kept["args"] = _names(kept.get("args"))
    if isinstance(env := kept.get("env"), dict):
        kept["env"] = {**env, "variables": _names(env.get("variables"))}
    command = _NUMBER.sub("0", repr(fields.get("command")))
    return run.address.name, command, repr(kept)


def _names(value: Json) -> Json:
    return list(value) if isinstance(value, dict) else value
