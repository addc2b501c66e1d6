"""Findings of a check that is made once for several runs: the key that tells which runs need the
same checks, and the places that findings are shown with."""

import os
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.jsonable import Json
from sgpu_decl.planner.plan_checks import place_of

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


def placed(
    findings: Sequence[Diagnostic], places: Mapping[str, Place], path: str
) -> list[Diagnostic]:
    place = place_of(places, path)
    return [one if one.place else replace(one, place=place) for one in findings]


def from_here(root: Path, finding: Diagnostic, shown: str) -> Diagnostic:
    """The finding with a place in a Python file made relative to the current folder. Before, it is
    relative to the root of the code."""
    place = finding.place
    if place is None or place.is_option or place.file == shown:
        return finding
    file = os.path.relpath(root / place.file)
    return replace(finding, place=replace(place, file=file))
