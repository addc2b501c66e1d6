"""What happens while a plan is applied, as values: the views and the log read the same stream."""

from enum import StrEnum

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef


class Step(StrEnum):
    STARTED = "started"
    STOPPED = "stopped"
    LAUNCHED = "launched"
    CREATED = "created"
    ADOPTED = "adopted"
    UPDATED = "updated"
    STAGED = "staged"
    MOVED = "moved"
    FORGOTTEN = "forgotten"
    DESTROYED = "destroyed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyEvent:
    """`waits_for` are older attempts that one which was launched waits for."""

    step: Step
    address: Address
    attempt: AttemptRef | None = None
    message: str = ""
    waits_for: tuple[AttemptRef, ...] = ()
