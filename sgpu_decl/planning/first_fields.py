"""The fields of a run that has nothing to be compared with: all of them are new."""

from collections.abc import Mapping

from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.desired import NO_PLACES, DesiredRun
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.plan import FieldChange, FieldEffect
from sgpu_decl.planning.field_changes import leaves, parse
from sgpu_decl.planning.plan_checks import place_of

_SCALARS = (str, int, float, bool, type(None))


class NewFields:
    """Makes them for one run after the other. Cells of a matrix share their places and are alike in
    most fields: from the second one on, they share those. A plan may hold ten thousand cells."""

    def __init__(self) -> None:
        self._places: Mapping[str, Place] = NO_PLACES
        self._made: dict[tuple[str, type, Json], FieldChange] = {}

    def of(self, desired: DesiredRun) -> tuple[FieldChange, ...]:
        make = self._field
        if desired.places is not self._places:
            self._places = desired.places
            self._made.clear()
            make = self._new
        return tuple([make(path, value) for path, value in leaves(parse(desired.spec))])

    def _field(self, path: str, value: Json) -> FieldChange:
        kind = type(value)  # `1` and `true` are equal, and not the same
        if kind not in _SCALARS:
            return self._new(path, value)
        key = (path, kind, value)
        if key not in self._made:
            self._made[key] = self._new(path, value)
        return self._made[key]

    def _new(self, path: str, value: Json) -> FieldChange:
        return FieldChange(
            path=path,
            before=None,
            after=value,
            effect=FieldEffect.NEW_ATTEMPT,
            origin=place_of(self._places, path),
            added=True,
        )
