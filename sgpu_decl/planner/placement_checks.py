"""Where a backend puts what is launched, as checks of the plan."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.model.desired import DesiredRun, LaunchRoom
from sgpu_decl.model.plan import Change
from sgpu_decl.planner.plan_checks import check_of, place_of
from sgpu_decl.planner.run_order import launch_levels

_Runs = Sequence[DesiredRun]
_Key = TypeVar("_Key")


def placement_checks(launched: _Runs, changes: Iterable[Change]) -> tuple[Diagnostic, ...]:
    """Return one check for each placement, with the first run that it holds for; without a run
    where it holds for all. Launches of all placements that share a room are counted together.

    Args:
        changes: those that launch the runs.
    """
    placed = _by(launched, lambda run: run.placement)
    sharing = _by(launched, lambda run: run.placement.room if run.placement else None)
    fitting = _fitting_in_words(sharing, changes)
    checks = []
    for placement, runs in placed.items():
        note, room = placement.note, placement.room
        if room is not None and room in fitting and len(runs) == len(sharing[room]):
            note = replace(note, summary=f"{note.summary}; {fitting.pop(room)} fit at once")
        checks.append(_check(note, runs, launched))
    for room, runs in sharing.items():
        first = runs[0].placement
        if room in fitting and first is not None:
            note = replace(first.note, summary=f"{fitting[room]} on {room.name} fit at once")
            checks.append(_check(replace(note, hint=None), runs, launched))
        if room.limit is not None and room.beyond is not None and len(runs) > room.limit:
            checks.append(_check(room.beyond, runs, launched))
    return tuple(checks)


def _by(launched: _Runs, key: Callable[[DesiredRun], _Key | None]) -> dict[_Key, list[DesiredRun]]:
    found: dict[_Key, list[DesiredRun]] = {}
    for run in launched:
        of = key(run)
        if of is not None:
            found.setdefault(of, []).append(run)
    return found


def _fitting_in_words(
    sharing: dict[LaunchRoom, list[DesiredRun]], changes: Iterable[Change]
) -> dict[LaunchRoom, str]:
    """How many runs find room at the same time, as `3 of 8 runs`, where several could start at the
    same time. Runs of different levels never do: one waits for the other. Of several levels, the
    one counts in which the most have to wait for room."""
    several = {room: runs for room, runs in sharing.items() if len(runs) > 1}
    if not several:
        return {}
    levels = launch_levels(changes)
    found = {}
    for room, runs in several.items():
        together: dict[int, Counter[str]] = {}
        for run in runs:
            identity = run.placement.id if run.placement else None
            level = together.setdefault(levels.get(run.address, 0), Counter())
            level[identity or ""] += 1
        counts = [
            (launches.total() - fitting, launches.total())
            for launches in together.values()
            if launches.total() > 1 and (fitting := room.fitting(launches)) is not None
        ]
        if counts:
            waiting, number = max(counts)
            found[room] = f"{number - waiting} of {number} runs"
    return found


def _check(finding: Diagnostic, runs: _Runs, launched: _Runs) -> Diagnostic:
    first = runs[0]
    field = first.placement.field if first.placement else None
    every = len(runs) == len(launched)
    several = len({run.address.name for run in runs}) > 1
    return check_of(
        replace(finding, place=place_of(first.places, field or "")),
        (None if several else replace(first.address, key="")) if every else first.address,
    )
