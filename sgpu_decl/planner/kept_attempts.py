"""Which ended attempts gc frees, and why it keeps one that is old enough to go."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from enum import StrEnum

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.state import KEEP_LAST, Attempt
from sgpu_decl.planner.needs import needed_by_active

UNKNOWN = "?"
"""The place of an output where the backend does not say whether there is one."""


class Keep(StrEnum):
    """Why an attempt stays that its number and age would let go, in words: `views.gc_text`."""

    ACTIVE = "active"
    READ = "read"
    OUTPUT = "output"
    SUCCESS = "success"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True, kw_only=True)
class GcRule:
    """Attempts go beyond the newest `keep_last` of each run, and those that ended more than
    `older_than` seconds ago where an age is given. With an age alone, age alone decides.
    `everything` includes what only later launches would look for."""

    keep_last: int | None = None
    older_than: float | None = None
    everything: bool = False

    @property
    def newest(self) -> int:
        """How many of the newest attempts of each run stay."""
        if self.keep_last is not None:
            return self.keep_last
        return 0 if self.older_than is not None else KEEP_LAST


def surplus(attempts: Iterable[Attempt], rule: GcRule, now: datetime) -> list[Attempt]:
    """The ended attempts that their number and age let go, by address and number."""
    chosen = []
    for history in _by_run(attempts).values():
        for attempt in history[rule.newest :]:
            ended = attempt.ended_at or attempt.created_at
            old = rule.older_than is None or (now - ended).total_seconds() > rule.older_than
            if old and not attempt.state.active:
                chosen.append(attempt)
    return sorted(chosen, key=lambda item: item.ref)


def kept(
    attempts: Collection[Attempt],
    rule: GcRule,
    *,
    read: Iterable[AttemptRef],
    outputs: Mapping[AttemptRef, str | None],
) -> dict[AttemptRef, Keep]:
    """The attempts that gc keeps whatever their number and age, each with the reason.

    Args:
        read: attempts whose output launches of the state name (`Needs.outputs`).
        outputs: the place where the output of each attempt lies; None if it left none. A launch
            finds what lies in its own place.
    """
    reasons: dict[AttemptRef, Keep] = {}
    if not rule.everything:
        for history in _by_run(attempts).values():
            success = (one.ref for one in history if one.state is AttemptState.SUCCEEDED)
            reasons |= dict.fromkeys(list(success)[:1], Keep.SUCCESS)
            reasons |= dict.fromkeys(_found(history, outputs), Keep.OUTPUT)
        names = _names(attempts)
        reasons |= {names[ref]: Keep.READ for ref in read if ref in names}
    reasons |= dict.fromkeys(needed_by_active(attempts), Keep.ACTIVE)
    return reasons


def _found(
    history: Iterable[Attempt], outputs: Mapping[AttemptRef, str | None]
) -> Iterable[AttemptRef]:
    """The outputs of a run that launches with `resume` find: in each place the newest, for the
    launches to come, and the newest before each attempt that is active. What is not known to be an
    output hides no older one."""
    looked_for: set[str | None] = set()  # places in which the newest was found
    for attempt in history:  # the newest first
        if attempt.state.active:
            looked_for.clear()  # it found what is older, and may read it still
            continue
        place = outputs.get(attempt.ref)
        if place is not None and place not in looked_for:
            yield attempt.ref
        if place != UNKNOWN:
            looked_for.add(place)


def _by_run(attempts: Iterable[Attempt]) -> Mapping[Address, list[Attempt]]:
    """The attempts of each run, the newest first."""
    runs: dict[Address, list[Attempt]] = defaultdict(list)
    for attempt in sorted(attempts, key=lambda item: item.ref.number, reverse=True):
        runs[attempt.ref.address].append(attempt)
    return runs


def _names(attempts: Iterable[Attempt]) -> dict[AttemptRef, AttemptRef]:
    """What attempts are called now, by the names that they had and have."""
    names: dict[AttemptRef, AttemptRef] = {}
    for attempt in attempts:
        for address in attempt.formerly:
            names.setdefault(AttemptRef(address, attempt.ref.number), attempt.ref)
    return names | {attempt.ref: attempt.ref for attempt in attempts}
