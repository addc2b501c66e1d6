"""One opened project and target: its state store, the stores of code and environments, its
backends."""

import uuid
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from sgpu_decl.applying.opening import Location, Opened
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.state import Attempt, State
from sgpu_decl.storing.sqlite import SqliteStore

if TYPE_CHECKING:
    from sgpu_decl.backends.base import Backend, Survey
    from sgpu_decl.backends.keeping import JobKeeper
    from sgpu_decl.config.backend import Backend as BackendBlock
    from sgpu_decl.environments.stored.store import EnvironmentStore
    from sgpu_decl.staging.store import Store
    from sgpu_decl.storing.store import StateWriter

__all__ = ["Site", "now"]


class Site:
    """What every call works on. Cheap to make; reads what it needs when it needs it."""

    def __init__(self, opened: Opened, location: Location) -> None:
        self.opened = opened
        self.location = location
        self.root = opened.root
        self.state_dir = opened.state_dir
        self.states = SqliteStore(opened.state_dir / "state.db")
        self._backends: dict[str, Backend] = {}
        self._keepers: dict[BackendBlock, JobKeeper] = {}

    @cached_property
    def store(self) -> "Store":
        from sgpu_decl.staging.store import Store, default_root

        return Store(default_root())

    @cached_property
    def environments(self) -> "EnvironmentStore":
        from sgpu_decl.environments.stored.store import EnvironmentStore
        from sgpu_decl.staging.store import default_root

        return EnvironmentStore(default_root() / "environments")

    def backend(self, kind: str) -> "Backend":
        """The backend of that name, opened once.

        Raises:
            BackendError: there is none of that name.
        """
        from sgpu_decl.backends.registry import Surroundings, open_backend

        if kind not in self._backends:
            surroundings = Surroundings(
                project=self.root,
                state_dir=self.state_dir,
                store=self.store,
                environments=lambda: self.environments,
                recorded=self._recorded,
            )
            self._backends[kind] = open_backend(kind, surroundings)
        return self._backends[kind]

    def keeper(self, block: "BackendBlock") -> "JobKeeper":
        """The keeper of jobs that a `backend` block names, opened once.

        Raises:
            BackendError: there is none of that kind.
        """
        from sgpu_decl.backends.registry import open_keeper

        if block not in self._keepers:
            self._keepers[block] = open_keeper(block, self.backend)
        return self._keepers[block]

    def survey(self, kind: str) -> "Survey | None":
        """What planning asks of the backend of that name; `None` where there is none."""
        from sgpu_decl.backends.registry import open_survey

        return open_survey(kind, self.backend)

    def _recorded(self, ref: AttemptRef) -> tuple[str, Attempt | None]:
        """The lineage, and what is recorded of an attempt, its launch maybe not over."""
        state = self.states.read()
        if state is None:
            return "", None
        launching = (it.attempt_record for it in state.intents)
        known = (*launching, *self.states.history(ref.address))
        return state.lineage, next((it for it in known if it is not None and it.ref == ref), None)

    def state(self) -> State:
        """What is recorded; an empty state with a lineage of its own where nothing is."""
        return self.states.read() or State(lineage=str(uuid.uuid4()), serial=0, resources={})

    def believed(self, state: State | None = None) -> State:
        """The state, read now unless given, with the launches that a crash kept from being
        recorded."""
        from sgpu_decl.applying.observing import believe_intents

        state = state or self.state()
        return believe_intents(state, self.backend, self.keeper) if state.intents else state

    def writing(self, operation: str) -> "AbstractContextManager[StateWriter]":
        """The lock of the state, for a command that mends it."""
        return self.states.lock(operation, lineage=self.state().lineage)


def now() -> datetime:
    """The time in UTC, to the millisecond that state and plans keep."""
    moment = datetime.now(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
