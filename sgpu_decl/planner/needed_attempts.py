"""Attempts whose folders active ones still look at: for an output that they read, or for the end
of a run that they come after (`after`)."""

from collections import defaultdict
from collections.abc import Iterable
from typing import cast

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.run_outputs import pins
from sgpu_decl.model.state import Attempt


def needed_by_active(attempts: Iterable[Attempt]) -> dict[AttemptRef, AttemptRef]:
    """The attempts that active ones look at, each with one of these.

    Of a run that an active one comes after, that is the newest attempt that was launched before it;
    of a matrix, one for each combination.
    """
    by_name: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        by_name[attempt.ref.address.name].append(attempt)
    needed: dict[AttemptRef, AttemptRef] = {}
    for active in (one for group in by_name.values() for one in group if one.state.active):
        read = pins(active.inputs.spec.text)
        for name, number in read.items():
            for other in by_name.get(name, ()):
                if other.ref.number == number:
                    needed[other.ref] = active.ref
        for name in cast("tuple[str, ...]", active.inputs.spec.fields.get("after", ())):
            newest: dict[Address, AttemptRef] = {}
            for other in by_name.get(name, ()):
                if other.created_at <= active.created_at:
                    before = newest.get(other.ref.address, other.ref)
                    newest[other.ref.address] = max(before, other.ref)
            needed.update(dict.fromkeys(newest.values(), active.ref))
    return needed
