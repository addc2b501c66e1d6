"""What happens between a plan and its launches, for whoever shows it."""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from sgpu_decl.model.step_progress import Progress, Quiet

if TYPE_CHECKING:
    from sgpu_decl.applying.apply_result import Applied
    from sgpu_decl.diagnostics.diagnostic import Diagnostic
    from sgpu_decl.errors import StalePlan
    from sgpu_decl.model.event import ApplyEvent
    from sgpu_decl.planning.prepared import Prepared


class RolloutEvents:
    """What happens on the way. Whoever is told of it may raise to end it there."""

    def planning(self) -> AbstractContextManager[Progress]:
        """Who is told how much of an environment was read."""
        return nullcontext(Quiet())

    def planned(self, prepared: "Prepared", *, same: bool) -> None:
        """A plan that is carried out next: refuse or approve it. `same` if it was made again, and
        does what the one before it would have done."""

    def staging(self) -> AbstractContextManager[Progress]:
        """Who is told how much of the code and the environments was stored."""
        return nullcontext(Quiet())

    def launching(self) -> AbstractContextManager[Progress]:
        """Who is told how much of the code was copied for the launches."""
        return nullcontext(Quiet())

    def noticed(self, findings: "tuple[Diagnostic, ...]") -> None:
        """Warnings of staging and of recording."""

    def changed(self, event: "ApplyEvent") -> None:
        """A step of the apply."""

    def waiting(self) -> None:
        """It waits for the lock of the state, or for attempts that are replaced to stop. Called
        repeatedly."""

    def moved(self, why: "StalePlan") -> None:
        """Somebody else changed the state: it is planned again."""

    def applied(self, applied: "Applied") -> None:
        """All is launched."""
