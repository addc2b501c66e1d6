"""Keys of runs that need the same checks: of the cells of a matrix, one cell is checked for all."""

import json
import re
from collections.abc import Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sgpu_decl.config.loaded import LoadedRun

__all__ = ["check_key"]

_UNCHECKED = ("description", "parameters", "tags")
"""Fields that no check looks into. All others are part of the key, so a new field is checked in
each cell where it differs until it is named here."""


# A word of a command, or what stands behind its `=`, that is a number.
_NUMBER = re.compile(r"(?<=[\s='\"])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?=[\s'\"])", re.IGNORECASE)


def check_key(run: "LoadedRun") -> Hashable:
    """Return what decides which checks a run needs. Of arguments and variables the names count, and
    the values do not: they differ from cell to cell, but not in a way that matters to a check.
    Neither do the numbers of a command."""
    if not run.address.key:
        return run.address
    spec = json.loads(run.spec)
    for field in _UNCHECKED:
        spec.pop(field, None)
    for block, field in ((spec, "args"), (spec.get("env", {}), "variables")):
        if isinstance(block.get(field), dict):
            block[field] = list(block[field])
    command = _NUMBER.sub("0", repr(spec.pop("command", None)))
    return run.address.name, command, repr(spec)
