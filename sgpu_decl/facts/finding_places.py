"""Where findings are shown: at the field that they are about, in the words of paths from here."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place

__all__ = ["from_here", "locator", "placed"]


def locator(places: Mapping[str, Place]) -> Callable[[str], Place | None]:
    """A path's place, or that of the nearest path above it."""

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
    return [found if found.place else replace(found, place=place) for found in findings]


def from_here(root: Path, found: Diagnostic, shown: str) -> Diagnostic:
    """A place in a Python file is relative to the code's root; people count from where they are."""
    if found.place is None or found.place.is_option or found.place.file == shown:
        return found
    file = os.path.relpath(root / found.place.file)
    return replace(found, place=replace(found.place, file=file))
