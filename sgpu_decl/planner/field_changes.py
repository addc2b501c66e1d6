"""What differs between two configs, as dotted paths; of a run that has nothing to be compared with,
all fields are new.

Mappings are walked, everything else is one value: a list that grew is one changed field. A missing
field and a field that holds `null` are different.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias, overload

from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.desired import NO_PLACES
from sgpu_decl.model.jsonable import Json, Spec, canonical
from sgpu_decl.model.plan import FieldChange, FieldDifference, FieldEffect
from sgpu_decl.planner.plan_checks import place_of
from sgpu_decl.planner.policy import SECRETS, SWITCHES

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_OF_TASK = re.compile(r"tasks\.[A-Za-z0-9_-]+\.(?=run\.)")
"""What stands before a field of a run that one of several tasks launches."""
_Object: TypeAlias = Mapping[str, Json]


_NOTHING = frozenset({"args", "env.dependencies", "on_finish"})
"""Fields of a run that say the same empty as absent. Specs leave them out; older ones that are
recorded have them."""


class _Missing:
    __slots__ = ()


_MISSING = _Missing()


@lru_cache(maxsize=4096)
def join(parent: str, key: str) -> str:
    """Return the path of `key` in `parent`; a key with odd characters is quoted as in JSON."""
    part = key if _PLAIN.fullmatch(key) else json.dumps(key, ensure_ascii=False)
    return f"{parent}.{part}" if parent else part


def leaves(spec: _Object, parent: str = "") -> list[tuple[str, Json]]:
    """Return every path and its value in sorted order of keys; an empty mapping is a value."""
    items: list[tuple[str, Json]] = []
    for key in sorted(spec):
        value = spec[key]
        path = join(parent, key)
        if isinstance(value, dict) and value:
            items += leaves(value, path)
        else:
            items.append((path, _shown(path, value)))
    return items


def compare(
    before: Spec, after: Spec, *, ignored: Collection[str] = ()
) -> tuple[FieldDifference, ...]:
    """Return what differs between two configs, sorted by path.

    `ignored` names paths that are left out, with all below them.
    """
    if before == after:
        return ()
    items = _walk(before.fields, after.fields, "")
    return tuple(
        sorted(
            (item for item in items if not covered(item.path, ignored)), key=lambda item: item.path
        )
    )


def covered(path: str, roots: Collection[str]) -> bool:
    """Tell whether `path` is one of `roots` or lies below one."""
    return any(path == root or path.startswith(root + ".") for root in roots)


def _walk(before: _Object, after: _Object, parent: str) -> Iterator[FieldDifference]:
    for key in before.keys() | after.keys():
        path = join(parent, key)
        old = before.get(key, _MISSING)
        new = after.get(key, _MISSING)
        if _says_nothing(path, old) and _says_nothing(path, new):
            continue
        # A block that appears or goes is shown field by field, as one that merely changes.
        if isinstance(new, _Missing) and isinstance(old, Mapping) and old and path not in SWITCHES:
            yield from _walk(old, {}, path)
        elif (
            isinstance(old, _Missing) and isinstance(new, Mapping) and new and path not in SWITCHES
        ):
            yield from _walk({}, new, path)
        elif isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _walk(old, new, path)
        elif not _equal(old, new):
            yield FieldDifference(
                path=path,
                before=_side(path, old),
                after=_side(path, new),
                added=isinstance(old, _Missing),
                removed=isinstance(new, _Missing),
            )


def _in_run(path: str) -> str:
    """The path of a field of a run, by itself or launched by a job."""
    if path.startswith("tasks."):
        path = _OF_TASK.sub("", path, count=1)
    return path.removeprefix("run.")


def _says_nothing(path: str, value: Json | _Missing) -> bool:
    if _in_run(path) not in _NOTHING:
        return False
    return isinstance(value, _Missing) or (isinstance(value, (Mapping, list)) and not value)


def _equal(old: Json | _Missing, new: Json | _Missing) -> bool:
    # In Python 1 == 1.0 == True; the program would tell them apart.
    if isinstance(old, _Missing) or isinstance(new, _Missing):
        return False
    return type(old) is type(new) and (old == new) and canonical(old) == canonical(new)


def _side(path: str, value: Json | _Missing) -> Json:
    return None if isinstance(value, _Missing) else _shown(path, value)


def _shown(path: str, value: Json) -> Json:
    if isinstance(value, str):
        secret = _in_run(path).startswith(SECRETS) and not value.startswith(("https://", "http://"))
        return {"secret": value} if secret else value
    if value == {} and _in_run(path) in SWITCHES:
        return True  # as a user writes it
    return value


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
