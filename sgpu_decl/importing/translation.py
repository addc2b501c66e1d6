"""What becomes of one field of another tool's file."""

from enum import StrEnum
from typing import TypeAlias

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.jsonable import Json

Keys: TypeAlias = tuple[str, ...]
NEXT = "+"
"""As the last part of a path: one more member of the list."""


class Fate(StrEnum):
    """`carried`: the YAML says the same. `changed`: it says something else, or sgpu does it
    otherwise. `lost`: the YAML does not say it."""

    CARRIED = "carried"
    CHANGED = "changed"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """`puts` are fields of ours and their values. `note` says what is different, or why the field
    is lost, and `hint` what to do."""

    fate: Fate
    puts: tuple[tuple[Keys, Json], ...] = ()
    note: str | None = None
    hint: str | None = None


def put(field: str, value: Json) -> tuple[Keys, Json]:
    """A field of ours by its dotted path, and its value."""
    return tuple(field.split(".")), value


def carried(*puts: tuple[Keys, Json]) -> Translation:
    return Translation(fate=Fate.CARRIED, puts=puts)


def changed(note: str, *puts: tuple[Keys, Json], hint: str | None = None) -> Translation:
    return Translation(fate=Fate.CHANGED, puts=puts, note=note, hint=hint)


def lost(note: str, hint: str | None = None) -> Translation:
    return Translation(fate=Fate.LOST, note=note, hint=hint)
