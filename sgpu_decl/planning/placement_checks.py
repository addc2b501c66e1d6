"""Where a backend puts what is launched, as checks of the plan."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.model.desired import DesiredRun, Placement
from sgpu_decl.model.plan import Check
from sgpu_decl.planning.plan_checks import check_of, place_of


def placement_checks(launched: Sequence[DesiredRun]) -> tuple[Check, ...]:
    """Return one check for each placement, with the first run that it holds for; without a run
    where it holds for all. Launches with the same placement share its room and its limit."""
    placed: dict[Placement, list[DesiredRun]] = {}
    for run in launched:
        if run.placement is not None:
            placed.setdefault(run.placement, []).append(run)
    alone = len(placed) == 1 and all(run.placement is not None for run in launched)
    return tuple(
        check_of(
            replace(finding, place=place_of(runs[0].places, placement.field or "")),
            None if alone else runs[0].address,
        )
        for placement, runs in placed.items()
        for finding in _findings(placement, len(runs))
    )


def _findings(placement: Placement, runs: int) -> Iterator[Diagnostic]:
    yield _with_room(placement, runs)
    if placement.limit is not None and placement.beyond is not None and runs > placement.limit:
        yield placement.beyond


def _with_room(placement: Placement, runs: int) -> Diagnostic:
    """The note, with how many of several runs find room at the same time."""
    note, room = placement.note, placement.room
    if room is None or runs == 1:
        return note
    return replace(note, summary=f"{note.summary}; {min(room, runs)} of {runs} runs fit at once")
