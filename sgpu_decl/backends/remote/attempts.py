"""Attempts of remote backends: what nodes brought back, by launch folder."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import Attempts
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.rank_output import Output
from sgpu_decl.model.step_progress import Progress

if TYPE_CHECKING:
    from sgpu_decl.backends.remote.remote_results import RemoteResults
    from sgpu_decl.backends.remote.staging_area import StagingArea

__all__ = ["BroughtBack", "PlacedLaunch", "RemoteAttempts"]


@dataclass(frozen=True, slots=True)
class PlacedLaunch:
    """Where a launch lies: its launch folder, and the staging area that this is in."""

    area: "StagingArea"
    folder: str


@dataclass(frozen=True, slots=True)
class BroughtBack:
    """What nodes brought back of an attempt: where, and in which attempt of the platform."""

    results: "RemoteResults"
    attempt: int
    view: AttemptView

    @property
    def nodes(self) -> list[tuple[int, int]]:
        """Each rank, and its node."""
        return [(rank.rank, rank.node_rank or 0) for rank in self.view.ranks]


class RemoteAttempts(Attempts):
    """Results, output and errors, for backends that say where these lie."""

    @abstractmethod
    def placed(self, record: LaunchRecord) -> PlacedLaunch | None:
        """Where a launch lies; None where nothing was begun."""

    @abstractmethod
    def brought_back(self, record: LaunchRecord) -> BroughtBack | None:
        """What nodes brought back; None where that is nothing yet."""

    def forget(self, record: LaunchRecord) -> None:  # noqa: ARG002  a default
        """What this machine had of an attempt was deleted."""
        return

    def active(self, record: LaunchRecord) -> bool:
        """Whether an attempt has not ended."""
        view = self.look([record]).get(record.ref)
        return view is not None and view.state.active

    def results(self, record: LaunchRecord) -> list[dict[str, Json]]:
        found = self.brought_back(record)
        return found.results.values(found.attempt, found.nodes) if found is not None else []

    def output(self, record: LaunchRecord, progress: Progress) -> Output:
        if self.active(record):
            raise BackendError(
                f"`{record.ref}` has not ended, and its nodes bring back what ranks left when it "
                "has",
                hint=f"`sgpu wait '{record.ref}'` waits for that",
                code="nothing_yet",
            )
        found = self.brought_back(record)
        if found is None:
            raise BackendError(
                f"nothing of `{record.ref}` was brought back from its nodes",
                hint=f"`sgpu show '{record.ref}'` says how it ended",
                code="nothing_yet",
            )
        nodes = sorted({node for _, node in found.nodes})
        return found.results.output(found.attempt, nodes, progress)

    def error(self, record: LaunchRecord, rank: int) -> bytes | None:
        found = self.brought_back(record)
        node = dict(found.nodes).get(rank) if found is not None else None
        if found is None or node is None:
            return None
        return found.results.error(found.attempt, rank, node, found.view.restart)
