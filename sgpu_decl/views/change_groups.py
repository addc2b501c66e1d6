"""The changes of many runs or jobs that a comment shows once: those that change alike, and new ones
with what they share."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Kind
from sgpu_decl.model.jsonable import canonical
from sgpu_decl.model.plan import Change, FieldChange, Plan
from sgpu_decl.views.cell_groups import CellGroup
from sgpu_decl.views.plan_words import reason_words, stops_active

LEAST = 3
"""Fewer changes than this are shown one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeGroup:
    """Changes of one kind, action and reason, in the order of the plan.

    `shared` is the change of the first one with the fields that all have alike; a field has no
    place if it is not the same place for all. `own` has the other fields of each, in the order of
    `changes`: those of new runs and jobs may differ, all others have none. The code of `shared` is
    None if it differs.
    """

    changes: tuple[Change, ...]
    shared: Change
    own: tuple[tuple[FieldChange, ...], ...]

    @property
    def is_new(self) -> bool:
        return is_new(self.shared)


Item = Change | CellGroup | ChangeGroup


def is_new(change: Change) -> bool:
    """Whether nothing was there before, so that fields have one side."""
    return change.prior is None and all(field.added for field in change.fields)


def joined(items: Iterable[Change | CellGroup], plan: Plan) -> list[Item]:
    """Return the items with equal changes in one group, where the first of them stood. What
    destroys something or stops an active run stays alone, as do environments."""
    keys = [(item, _key(item, plan)) for item in items]
    amounts = Counter(key for _, key in keys)
    by_key: dict[Hashable, list[Change | CellGroup]] = {}
    for item, key in keys:  # new ones of the same code, if that are enough
        group, code = key
        by_key.setdefault(
            key if amounts[key] >= LEAST or code is None else (group, None), []
        ).append(item)
    found: list[Item] = []
    for some in by_key.values():
        changes = [item for item in some if isinstance(item, Change)]
        found += [_group(changes)] if len(changes) >= LEAST else some
    return found


def _key(item: Change | CellGroup, plan: Plan) -> tuple[Hashable, str | None]:
    """What a group shares, and the code, which new ones may have each for itself."""
    if isinstance(item, CellGroup):
        return id(item), None
    change = item
    lone = change.destructive or stops_active(change) or change.moved_from is not None
    if lone or change.kind is Kind.ENVIRONMENT:
        return change.address, None
    new = is_new(change)
    group = (
        change.kind,
        change.backend,
        change.action,
        change.cause,
        change.prior is None,
        change.unavailable is None,
        reason_words(change, plan),
        None if new else (_values(change.fields), change.code, change.environment),
    )
    return group, change.code.digest if new and change.code else None


def _values(fields: Sequence[FieldChange]) -> tuple[Hashable, ...]:
    """What fields change, wherever they are written."""
    return tuple(map(_value, fields))


def _value(field: FieldChange) -> Hashable:
    sides = canonical([field.before, field.after])
    return field.path, sides, field.effect, field.added, field.removed, field.drifted


def _group(changes: Sequence[Change]) -> ChangeGroup:
    first = changes[0]
    alike = set(_values(first.fields)).intersection(*(_values(one.fields) for one in changes[1:]))
    places = defaultdict[Hashable, set[Place | None]](set)
    for one in changes:
        for field in one.fields:
            places[_value(field)].add(field.origin)
    shared = [field for field in first.fields if _value(field) in alike]
    return ChangeGroup(
        changes=tuple(changes),
        shared=replace(
            first,
            fields=tuple(
                field if len(places[_value(field)]) == 1 else replace(field, origin=None)
                for field in shared
            ),
            code=first.code if all(one.code == first.code for one in changes) else None,
        ),
        own=tuple(
            tuple(field for field in one.fields if _value(field) not in alike) for one in changes
        ),
    )
