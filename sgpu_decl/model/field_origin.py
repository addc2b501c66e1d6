"""One of the places that a value of a field comes from."""

from enum import StrEnum

from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass


class OriginRole(StrEnum):
    """What a place has to do with the value."""

    VALUE = "value"
    FILLED = "filled"
    REFERENCE = "reference"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldOrigin:
    """`layer` is what the place belongs to, if that is not the run or job itself: `target prod`,
    `defaults`, `presets`."""

    place: Place
    role: OriginRole
    layer: str | None = None
