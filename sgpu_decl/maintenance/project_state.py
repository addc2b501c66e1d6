"""The state of a project and target: shown, edited, restored, and moved to a store that machines
share."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.errors import SgpuError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.argument_checks import checked_calls
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.selectors import resource_named
from sgpu_decl.model.state import Resource
from sgpu_decl.planning.project import Project
from sgpu_decl.storing.stores import local_store, shared_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sgpu_decl.model.project_home import ProjectHome
    from sgpu_decl.model.state import Attempt, State
    from sgpu_decl.model.state_log import LogEntry
    from sgpu_decl.storing.migration import Migrated


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedState:
    """How much was recorded."""

    resources: int
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedState:
    """How many entries and proposals were deleted. `first` is the number of the oldest entry that
    stays after the first one of all; None where no entry was deleted."""

    entries: int
    first: int | None
    proposals: int


@checked_calls
class ProjectState:
    """`Session.state`: the calls about the recorded state of a project and target."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def resources(self, at: int | None = None) -> list[Resource]:
        """Every recorded resource by address; those that were destroyed or forgotten are `gone`.
        `at` is the number of an entry in `log`: the state as it was after it.

        An address that a run was moved away from is left out: its history is at the new one.

        Raises:
            NotFound: there is no such entry.
        """

        def moved_away(item: Resource) -> bool:
            return item.gone and item.last is None and item.address.kind is Kind.RUN

        resources = sorted(self._recorded(at).items())
        return [resource for _, resource in resources if not moved_away(resource)]

    def show(self, text: str, at: int | None = None) -> Resource:
        """One recorded resource, gone or not; `at` as in `resources`."""
        return resource_named(self._recorded(at), text)

    def move(self, source: str, destination: str) -> tuple[Address, Address]:
        """Rename a resource, or all runs of a matrix by its name: history follows. Returns the old
        and the new address."""
        from sgpu_decl.maintenance.state_edit import move

        return move(self._project, source, destination)

    def remove(self, text: str) -> Address:
        """Forget a resource; its attempts stay in history."""
        from sgpu_decl.maintenance.state_edit import remove

        return remove(self._project, text)

    def pull(self, at: int | None = None) -> dict[str, Json]:
        """The whole state (`schemas/state.v1.schema.json`); `at` as in `resources`."""
        from sgpu_decl.storing.state_json import state_to_json

        return state_to_json(self._project.states.read_all() if at is None else self._past(at))

    def push(self, file: str | Path) -> PushedState:
        """Record a state that `pull` gave, as JSON in a file, in the place of what is recorded.

        Raises:
            SgpuError: it is no such file, another state is recorded (`state_taken`), or a newer
                version of this one (`state_older`).
        """
        from sgpu_decl.storing.migration import restore
        from sgpu_decl.storing.state_json import UNREADABLE, problem_of, state_from_json

        try:
            state, attempts = state_from_json(json.loads(Path(file).read_bytes()))
        except OSError as error:
            raise SgpuError(
                f"`{file}` cannot be read: {error.strerror}", code="unreadable"
            ) from error
        except UNREADABLE as error:
            raise SgpuError(
                f"`{file}` holds no state that `sgpu state pull` has printed: it "
                + problem_of(error),
                hint="print it again with this version of sgpu: `sgpu state pull > state.json`",
                code="no_state_file",
            ) from error
        local = self._project.shared_place is None
        store = local_store(self._project.state_dir) if local else self._project.states
        restore(store, state, attempts, patience=self._project.patience)
        return PushedState(resources=len(state.resources), attempts=len(attempts))

    def log(self, most: int = 20) -> "Sequence[LogEntry]":
        """The newest entries of a shared state, `most` of them at most, the last one first.

        Raises:
            SgpuError: the state is one of this machine, which keeps no log (`no_log`).
        """
        entries = self._project.states.log(most)
        if entries is None:
            raise _no_log()
        return entries

    def last_read(self) -> "tuple[int, datetime] | None":
        """The number and the time of the last entry of a shared state that this machine has read,
        where the session is `offline`; None for a state of this machine.

        Raises:
            SgpuError: it has read none (`no_copy`).
        """
        return self._project.states.last_read()

    def migrate(self) -> "Migrated":
        """Copy the state of this machine to the shared store that the project names.

        Raises:
            SgpuError: it names none, there is nothing to copy, or the store has another state of
                this project.
        """
        from sgpu_decl.storing.migration import migrate

        place = self._project.shared_place
        if place is None:
            raise _no_shared_state("there is no store to copy the state of this machine to")

        def reference(launch: LaunchRecord) -> str | None:
            return self._project.backend(launch.backend).launcher.provisional_reference(launch)

        shared = self._project.open_shared(place)
        try:
            return migrate(
                local_store(self._project.state_dir),
                shared,
                reference=reference,
                patience=self._project.patience,
            )
        finally:
            shared.close()

    def claim(self) -> "ProjectHome":
        """Record that the shared state belongs to the repository and the folder of this project.

        Raises:
            SgpuError: the project names no shared store, nothing is recorded there yet, or this is
                no checkout of a repository that others can reach.
        """
        project = self._project
        place, homes = project.shared_place, project.homes()
        if place is None:
            raise _no_shared_state("a state of this machine belongs to its folder")
        if not homes:
            raise SgpuError(
                f"`{project.root}` is no git checkout with a remote that other machines can reach",
                hint="add one with `git remote add origin URL`",
                code="no_remote",
            )
        # It compares no homes.
        store = shared_store(place, project.state_dir, commit=project.commit)
        try:
            store.claim(homes[0], patience=project.patience)
        finally:
            store.close()
        return homes[0]

    def compact(self, older_than: float) -> CompactedState:
        """Delete entries of a shared state that are older than `older_than` seconds, and proposals
        that have expired. What the state holds stays.

        Raises:
            SgpuError: the project names no shared store, this user may not delete there, or a newer
                sgpu has written what would be deleted.
        """
        place = self._project.shared_place
        if place is None:
            raise _no_shared_state("there is nothing to compact in a state of this machine")
        store = self._project.open_shared(place)
        try:
            done = store.compact(older_than, patience=self._project.patience)
        finally:
            store.close()
        expired = self._project.proposals.drop_expired()
        return CompactedState(entries=done.entries, first=done.first, proposals=expired)

    def unlock(self, lock_id: str) -> None:
        """Release a lock that a dead sgpu left behind."""
        self._project.states.unlock(lock_id)

    def _recorded(self, at: int | None) -> "Mapping[Address, Resource]":
        return (self._project.state() if at is None else self._past(at)[0]).resources

    def _past(self, number: int) -> "tuple[State, tuple[Attempt, ...]]":
        past = self._project.states.read_past(number)
        if past is None:
            raise _no_log()
        return past


def _no_log() -> SgpuError:
    return SgpuError(
        "the state of this machine keeps no log",
        hint="a shared state does: name its store with `state` in `sgpu.yml`",
        code="no_log",
    )


def _no_shared_state(why: str) -> SgpuError:
    """The error of a command that is about a shared state alone."""
    return SgpuError(
        f"the project names no shared state: {why}",
        hint="name its store with `state` in `sgpu.yml`",
        code="no_shared_state",
    )
