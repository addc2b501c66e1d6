"""The decision table: what the last attempt and the fingerprint say about a run, as data."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.attempt import AttemptState, Blame, FailureClass, blame_of
from sgpu_decl.model.plan import Reason


class Situation(StrEnum):
    """Where a run stands by its last attempt."""

    ABSENT = "absent"
    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED_BY_USER = "failed_by_user"
    FAILED_BY_INFRA = "failed_by_infra"
    LOST = "lost"
    CANCELLED = "cancelled"
    UNSEEN = "unseen"
    """It is over, and how it ended is not to be seen from here."""


class RunVerdict(StrEnum):
    """`ask` leaves it to `on_active`."""

    KEEP = "keep"
    ADOPT = "adopt"
    LAUNCH = "launch"
    ASK = "ask"


@dataclass(frozen=True, slots=True)
class Decision:
    """`reason` is None where it is whatever differs: config, code or environment."""

    verdict: RunVerdict
    reason: Reason | None


DECISIONS: Mapping[tuple[Situation, bool], Decision] = MappingProxyType(
    {
        # (situation, same fingerprint)
        (Situation.ABSENT, True): Decision(RunVerdict.LAUNCH, Reason.FIRST_RUN),
        (Situation.ABSENT, False): Decision(RunVerdict.LAUNCH, Reason.FIRST_RUN),
        (Situation.ACTIVE, True): Decision(RunVerdict.ADOPT, Reason.ALREADY_RUNNING),
        (Situation.ACTIVE, False): Decision(RunVerdict.ASK, None),
        (Situation.SUCCEEDED, True): Decision(RunVerdict.KEEP, Reason.UP_TO_DATE),
        (Situation.SUCCEEDED, False): Decision(RunVerdict.LAUNCH, None),
        (Situation.FAILED_BY_USER, True): Decision(RunVerdict.KEEP, Reason.FAILED_NOT_RETRIED),
        (Situation.FAILED_BY_USER, False): Decision(RunVerdict.LAUNCH, None),
        (Situation.FAILED_BY_INFRA, True): Decision(RunVerdict.LAUNCH, Reason.PREVIOUS_FAILED),
        (Situation.FAILED_BY_INFRA, False): Decision(RunVerdict.LAUNCH, Reason.PREVIOUS_FAILED),
        (Situation.LOST, True): Decision(RunVerdict.LAUNCH, Reason.PREVIOUS_LOST),
        (Situation.LOST, False): Decision(RunVerdict.LAUNCH, Reason.PREVIOUS_LOST),
        (Situation.CANCELLED, True): Decision(RunVerdict.KEEP, Reason.CANCELLED_BY_USER),
        (Situation.CANCELLED, False): Decision(RunVerdict.LAUNCH, None),
        # It may have succeeded: it is launched again on request, or by whoever sees that it failed.
        (Situation.UNSEEN, True): Decision(RunVerdict.KEEP, Reason.UP_TO_DATE),
        (Situation.UNSEEN, False): Decision(RunVerdict.LAUNCH, None),
    }
)

_OF_STATE: Mapping[AttemptState, Situation] = MappingProxyType(
    {
        AttemptState.SUCCEEDED: Situation.SUCCEEDED,
        AttemptState.CANCELLED: Situation.CANCELLED,
        AttemptState.LOST: Situation.LOST,
    }
)


def situation_of(state: AttemptState, failure: FailureClass | None) -> Situation:
    """Return where a run stands. A failure without a class counts as the user's: it is not
    launched again unasked."""
    if state.active:
        return Situation.ACTIVE
    if state is AttemptState.FAILED:
        infra = failure is not None and blame_of(failure) is Blame.INFRA
        return Situation.FAILED_BY_INFRA if infra else Situation.FAILED_BY_USER
    return _OF_STATE[state]


def decide(
    situation: Situation, *, same: bool, rerun: bool, retry_failed: bool, heal: bool = False
) -> Decision:
    """Look the decision up; `rerun` (asked for, or `until: always`), `retry_failed` and `heal` come
    before the table."""
    if rerun:
        verdict = RunVerdict.ASK if situation is Situation.ACTIVE else RunVerdict.LAUNCH
        return Decision(verdict, Reason.REQUESTED_RERUN)
    if retry_failed and situation is Situation.FAILED_BY_USER:
        return Decision(RunVerdict.LAUNCH, Reason.PREVIOUS_FAILED)
    if heal and same and situation is Situation.CANCELLED:
        return Decision(RunVerdict.LAUNCH, Reason.CANCELLED_BY_USER)
    return DECISIONS[situation, same]
