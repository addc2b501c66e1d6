"""The fields of a run that has nothing to be compared with: all of them are new."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import overload

from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.desired import NO_PLACES
from sgpu_decl.model.jsonable import Json, Spec
from sgpu_decl.model.plan import FieldChange, FieldEffect
from sgpu_decl.planner.field_changes import leaves
from sgpu_decl.planner.plan_checks import place_of

_SCALARS = (str, int, float, bool, type(None))


class NewFields(Sequence[FieldChange]):
    """The fields of one run, each made when it is looked at: a plan may hold ten thousand runs, and
    its text shows no place of theirs.

    Args:
        places: where the user wrote it.
    """

    __slots__ = ("_spec", "places")

    def __init__(self, spec: Spec, places: Mapping[str, Place]) -> None:
        self._spec = spec
        self.places = places

    def values(self) -> list[tuple[str, Json]]:
        """The path and the value of each."""
        return leaves(self._spec.fields)

    def __iter__(self) -> Iterator[FieldChange]:
        return (self.field(path, value) for path, value in self.values())

    def field(self, path: str, value: Json) -> FieldChange:
        """One of them."""
        return FieldChange(
            path=path,
            before=None,
            after=value,
            effect=FieldEffect.NEW_ATTEMPT,
            origin=place_of(self.places, path),
            added=True,
        )

    def __len__(self) -> int:
        return len(self.values())

    @overload
    def __getitem__(self, index: int) -> FieldChange: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[FieldChange]: ...
    def __getitem__(self, index: int | slice) -> FieldChange | Sequence[FieldChange]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NewFields | tuple) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


class CellFields:
    """Makes those of cells at once. Cells of a matrix share their places and are alike in most
    fields: from the second one on, they share those."""

    def __init__(self) -> None:
        self._places: Mapping[str, Place] = NO_PLACES
        self._made: dict[tuple[str, type, Json], FieldChange] = {}

    def of(self, new: NewFields) -> tuple[FieldChange, ...]:
        if new.places is self._places:
            return tuple([self._field(new, path, value) for path, value in new.values()])
        self._places = new.places
        self._made.clear()
        return tuple(new)

    def _field(self, new: NewFields, path: str, value: Json) -> FieldChange:
        kind = type(value)  # `1` and `true` are equal, and not the same
        if kind not in _SCALARS:
            return new.field(path, value)
        key = (path, kind, value)
        if key not in self._made:
            self._made[key] = new.field(path, value)
        return self._made[key]


def new_values(fields: Sequence[FieldChange]) -> Iterable[tuple[str, Json]]:
    """The path and the new value of each field, for those who need nothing else of it."""
    if isinstance(fields, NewFields):
        return fields.values()
    return [(field.path, field.after) for field in fields]
