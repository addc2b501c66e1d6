"""The places that findings are shown with: the field that they are about, with paths from here."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.planner.plan_checks import place_of


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
