"""The cells of a matrix that a plan changes alike, as one block: what they share, then the axes."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import cell_order, cell_texts, cell_values
from sgpu_decl.model.plan import Action, Change, Plan, Reason
from sgpu_decl.views.plan_words import (
    adopt_words,
    moved_words,
    only_moved,
    reason_words,
    stops_active,
    upstream_words,
)
from sgpu_decl.views.terminal import count, escape


@dataclass(frozen=True, slots=True, kw_only=True)
class CellGroup:
    """Two or more cells of one matrix, in the order of the file.

    `shared` is the change of the first of them with the fields that all have alike, `varying` are
    the paths of the others; the arguments that the axes are stand in neither. `axes` are the values
    of each axis; it is empty where the cells are not all combinations of these.
    """

    changes: tuple[Change, ...]
    shared: Change
    varying: tuple[str, ...]
    axes: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def address(self) -> str:
        """The address of all cells: `run.sweep`."""
        first = self.changes[0].address
        return f"{first.kind}.{first.name}"


def grouped(changes: Iterable[Change]) -> list[Change | CellGroup]:
    """Return the changes with those of cells that change alike in one group, where the first of
    them stood. What stops an active run stays alone."""
    by_key: dict[Hashable, list[Change]] = {}
    for change in changes:
        by_key.setdefault(_key(change), []).append(change)
    return [_group(some) if len(some) > 1 else some[0] for some in by_key.values()]


def group_what(group: CellGroup) -> str:
    """Return what happens: `create 6 runs`."""
    runs = count(len(group.changes), "run")
    if group.shared.moved_from is not None:
        moved = f"{runs} {moved_words(group.shared)}"
        rest = replace(group, shared=replace(group.shared, moved_from=None))
        return moved if only_moved(group.shared) else f"{moved}; {group_what(rest)}"
    match group.shared.action:
        case Action.ADOPT:
            return adopt_words(runs, unanswered=group.shared.unavailable is not None)
        case Action.FORGET:
            return f"forget {runs}; their history stays"
        case Action.NO_OP:
            return runs
        case Action.CREATE:
            waits = bool(group.shared.waits_for)
            ends = " after their active attempts have ended" if waits else ""
            return f"create {runs}{ends}{upstream_words(group.shared, also=waits)}"
        case action:
            return f"{action} {runs}"


def group_because(
    changes: Sequence[Change], plan: Plan, *, literal: Callable[[str], str] | None = None
) -> str:
    """Return the reason in words that changes share, with what became of the last attempts.
    `literal` makes a user's text safe where text for a terminal is not meant."""
    first = changes[0]
    reason = reason_words(first, plan, literal=literal)
    priors = [item.prior for item in changes if item.prior is not None]
    states = Counter("could not start" if one.not_started else str(one.state) for one in priors)
    if not states:
        return reason
    last = ", ".join(f"{number:,} {state}" for state, number in states.items())
    if first.unavailable is not None:
        known = f"last attempts, as far as is known: {last}; they cannot be asked now"
        return known if first.reason is Reason.ALREADY_RUNNING else f"{reason} ({known})"
    return f"{reason} (last attempts: {last})"


def _key(change: Change) -> Hashable:
    if not change.address.key or stops_active(change):
        return change.address
    return (
        change.address.name,
        change.backend,
        change.action,
        change.reason,
        change.cause,
        change.moved_from.name if change.moved_from else None,
        change.prior is None,
        change.unavailable is None,
        bool(change.waits_for),
        change.depends_on,
        change.after,
        change.code,
        change.environment,
        change.unchanged,
        tuple([(field.path, field.effect, field.drifted) for field in change.fields]),
    )


def _group(changes: Sequence[Change]) -> CellGroup:
    def order(change: Change) -> tuple[str, tuple[int, ...], str]:
        return cell_order(change.address, change.launch.inputs.cell if change.launch else None)

    cells = sorted(changes, key=order)
    first = cells[0]
    if first.moved_from is not None:
        first = replace(first, moved_from=replace(first.moved_from, key=""))
    same = [
        all(
            other is field or (other.before, other.after) == (field.before, field.after)
            for other in (cell.fields[at] for cell in cells)
        )
        for at, field in enumerate(first.fields)
    ]
    fields = [
        (field, is_same)
        for field, is_same in zip(first.fields, same, strict=True)
        if not _is_axis(field.path, cells)
    ]
    axes = tuple((axis, tuple(texts)) for axis, texts in _axes(cells).items())
    names = {frozenset(cell_texts(cell.address.key)) for cell in cells}
    all_combinations = len(names) == 1 and math.prod(len(texts) for _, texts in axes) == len(cells)
    return CellGroup(
        changes=tuple(cells),
        shared=replace(first, fields=tuple(field for field, is_same in fields if is_same)),
        varying=tuple(field.path for field, is_same in fields if not is_same),
        axes=axes if all_combinations else (),
    )


def _is_axis(path: str, cells: Sequence[Change]) -> bool:
    """Whether a field is the argument that has the name and, in each cell, the value of an axis."""
    axis = path.removeprefix("args.")
    if axis == path or axis not in cell_texts(cells[0].address.key):
        return False
    return all(
        field.after == cell_values(cell.address.key).get(axis, ...)
        for cell in cells
        for field in cell.fields
        if field.path == path
    )


def _axes(cells: Sequence[Change]) -> dict[str, dict[str, None]]:
    """The values of each axis, in the order in which the cells have them first."""
    axes: dict[str, dict[str, None]] = {}
    for cell in cells:
        for axis, text in cell_texts(cell.address.key).items():
            axes.setdefault(axis, {})[escape(text)] = None
    return axes
