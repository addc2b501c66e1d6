"""The places that findings are shown with: the field that they are about, with paths from here."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place

__all__ = ["from_here", "locator", "placed"]


def locator(places: Mapping[str, Place]) -> Callable[[str], Place | None]:
    """A function that gives the place of a dotted path, or of the nearest path above it."""

    def locate(path: str) -> Place | None:
        while path:
            if (place := places.get(path)) is not None:
                return place
            path = path.rpartition(".")[0]
        return None

    return locate


def placed(
    findings: Sequence[Diagnostic], places: Mapping[str, Place], path: str
) -> list[Diagnostic]:
    place = locator(places)(path)
    return [one if one.place else replace(one, place=place) for one in findings]


def from_here(root: Path, finding: Diagnostic, shown: str) -> Diagnostic:
    """The finding with a place in a Python file made relative to the current folder. Before, it is
    relative to the root of the code."""
    place = finding.place
    if place is None or place.is_option or place.file == shown:
        return finding
    file = os.path.relpath(root / place.file)
    return replace(finding, place=replace(place, file=file))
