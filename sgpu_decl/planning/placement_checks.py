"""Where a backend puts what is launched, as checks of the plan."""

from collections.abc import Sequence
from dataclasses import replace

from sgpu_decl.model.desired import Desired, Placement
from sgpu_decl.model.plan import Check
from sgpu_decl.planning.unsupported_fields import check_of, place_of

__all__ = ["placement_checks"]


def placement_checks(launched: Sequence[Desired]) -> tuple[Check, ...]:
    """Return one check for each placement, with the first run that it holds for; without a run
    where it holds for all."""
    first: dict[Placement, Desired] = {}
    for wanted in launched:
        if wanted.placement is not None:
            first.setdefault(wanted.placement, wanted)
    alone = len(first) == 1 and all(wanted.placement is not None for wanted in launched)
    return tuple(
        check_of(
            replace(placement.note, place=place_of(wanted.places, placement.field or "")),
            None if alone else wanted.address,
        )
        for placement, wanted in first.items()
    )
