"""The proposals of a target, kept beside its state. Adding one needs no right to write the state,
so whoever may only plan can do it."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Protocol

from sgpu_decl.frozen_dataclass import dataclass

KEPT = timedelta(days=30)
"""How long a proposal counts, by the clock of the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredProposal:
    """A proposal as the store keeps it. `at` is the time of the store when it was added."""

    id: str
    content: bytes
    at: datetime


class ProposalStore(Protocol):
    """The proposals of one project and target.

    Every call may raise:
        StoreDown: try again; `propose` may have happened.
        SgpuError: the store refuses; trying again is no use.
    """

    def propose(self, id: str, content: bytes) -> None:  # noqa: A002
        """Add a proposal. Once it returns, the proposal survives a power cut."""

    def proposals(self) -> Iterator[StoredProposal]:
        """Those that are not older than `KEPT`, newest first. Each is read when it is asked for."""

    def drop_expired(self) -> int:
        """Delete those that are older than `KEPT`; returns how many.

        Raises:
            SgpuError: this user may not delete anything.
        """

    def close(self) -> None:
        """Close connections. A later call opens them again."""
