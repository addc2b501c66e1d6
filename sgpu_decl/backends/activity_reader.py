"""What says what the ranks of an attempt do now, for backends that can tell: see
`Attempts.activity`."""

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.rank_activity import RankActivity


class ActivityReader(Protocol):
    """Says what the ranks of one attempt do, at the cost of a look each second."""

    @abstractmethod
    def look(self, view: AttemptView) -> tuple[datetime | None, Sequence[RankActivity]]:
        """When the ranks were measured last, and what each of them does, in rank order. `view` is
        the attempt as it was just seen."""

    def newest_lines(
        self,
        view: AttemptView,  # noqa: ARG002  a default
        rank: int,  # noqa: ARG002
    ) -> Sequence[str] | None:
        """The last lines of a rank's log, in the order of time as far as that is known; None where
        `Attempts.logs` has to read all of it. Values of secrets that can be resolved here are
        hidden."""
        return None
