"""What every state store can do. Values come from `sgpu_decl.model.state`."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from sgpu_decl.errors import Locked
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address
from sgpu_decl.model.argument_checks import checked_fields
from sgpu_decl.model.state import Attempt, Intent, IntentEnd, LockHolder, Resource, State

if TYPE_CHECKING:
    from sgpu_decl.model.environment import PackageList
    from sgpu_decl.model.owner import Presence
    from sgpu_decl.model.state_log import ApplySource, LogEntry


def user_name() -> str:
    """The user's name."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user in this container
        return f"uid {os.getuid()}"


@checked_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait for the lock, in seconds from the first time that it was not free.

    `on_wait` is called with the error each time but the last. The error says who holds the lock.
    `on_wait` may raise to give up.
    """

    seconds: float
    on_wait: Callable[[Locked], None] = lambda _: None


AT_ONCE = Patience(seconds=0)

LOST = ("lock_lost", "state_diverged")
"""The codes of errors after which a writer records nothing more."""

_T = TypeVar("_T")


def until_free(take: Callable[[], _T], patience: Patience, *, pause: float) -> _T:
    """What `take` returns once it no longer raises `Locked`. It is called again after `pause`
    seconds, for as long as `patience` lasts.

    Raises:
        Locked: patience is at its end.
    """
    deadline: float | None = None  # a slow first look takes nothing from the patience
    while True:
        try:
            return take()
        except Locked as refused:
            now = time.monotonic()
            deadline = now + patience.seconds if deadline is None else deadline
            if now >= deadline:
                raise
            patience.on_wait(refused)
            time.sleep(min(deadline - now, pause))


class StateWriter(Protocol):
    """The only door to change a state, open while the lock is held.

    Each call that changes anything is one committed transaction: it happens as a whole or not at
    all, survives a power cut once it returns, and moves the serial by one, or by one for each of
    several intents. A call that changes nothing leaves the serial. Threads may share a writer.

    Every call may raise:
        Locked: the lock was broken by hand, and maybe taken by another process (`lock_lost`).
        StateError: what is recorded cannot be read.
        SgpuError: the store cannot be reached, or takes nothing (`state_unreachable`).
    Nothing was recorded then.
    """

    @property
    def state(self) -> State:
        """The state as of now, this writer's own changes included."""

    def check_held(self) -> None:
        """Check that the lock is held still, and for a while yet: before a side effect that the
        store cannot take back."""

    def begin(self, *intents: Intent) -> None:
        """Record intents, before their side effects. The same token again is the same intent."""

    def launched(self, intent: Intent, resource: Resource, attempt: Attempt) -> None:
        """Close an intent and record what it launched: the resource, and a line of its history.

        The same launch may be recorded twice. What was decided at launch stays as it was first
        recorded. `resource.last` is not looked at: the resource's last attempt is the one of the
        highest number.

        Raises:
            StateError: another launch has this attempt number.
        """

    def made(self, intent: Intent, resource: Resource) -> None:
        """Close an intent and record the resource that it made, which launches nothing now."""

    def abandon(self, intent: Intent) -> None:
        """Close an intent whose side effect never happened. One that is closed stays so."""

    def end(self, ends: Sequence[IntentEnd]) -> None:
        """Close intents, as `launched` and `abandon` do with one."""

    def keep(self, ends: Sequence[IntentEnd]) -> Path | None:
        """Keep on this machine what `end` could not record.

        Returns:
            The file; None where the state itself is one of this machine.

        Raises:
            SgpuError: it cannot be kept.
        """

    def push_kept(self) -> None:
        """Record what an earlier writer of this machine has kept, as far as its intents are open
        still: what others have settled since stays as it is."""

    def record_resource(self, resource: Resource) -> None:
        """Record a resource as it is now. Its history stays, its last attempt is never an older
        one than before, and no number that was given is taken back."""

    def record_packages(self, lists: "Sequence[PackageList]") -> None:
        """Record what package lists hold; those that are known change nothing."""

    def record_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Record what was observed of attempts: state, times, exit code, failure. If all of it is
        known, nothing changes."""

    def plan_applied(self, plan_id: str) -> None:
        """Record that a plan was applied. It is never applied again."""

    def attribute(self, source: "ApplySource") -> None:
        """Let the log of the state, if it has one, say on whose behalf this writer records what
        follows."""

    def replace(self, state: State, attempts: Sequence[Attempt]) -> None:
        """Put another version of this state in the place of what is recorded, with the history of
        all runs. The serial is higher after it than both were."""

    def applied(self, plan_id: str) -> bool:
        """Whether a plan was applied."""

    def move(self, source: Address, destination: Address) -> None:
        """Give a resource, its history and its intents another address. Its numbers stay taken at
        the old one, which is marked gone.

        Raises:
            NotFound: nothing is recorded at `source`.
            SgpuError: `destination` has a history of its own, or is of another kind
                (`move_refused`).
        """

    def remove(self, address: Address) -> None:
        """Let go of a resource without touching what runs: it is marked gone, its intents are
        dropped, and attempts that were active are lost. History and numbers stay, so that a later
        launch cannot fall on an older attempt's folder.

        Raises:
            NotFound: nothing is recorded there.
        """


class StateStore(Protocol):
    """The state of one project and target. Reading needs no lock and creates nothing; each answer
    is of one moment, of what was committed then.

    Every call may raise:
        StateError: what is there is corrupt, of another program, or of a newer sgpu.
        SgpuError: it cannot be reached (`state_unreachable`).
    """

    @property
    def url(self) -> str:
        """How `stores.open_state_store` finds this store again, in another process and from any
        folder. It holds no password."""

    @property
    def file(self) -> Path | None:
        """The file that keeps the state; None where that is no file of this machine."""

    def targets(self) -> tuple[str, ...]:
        """The targets of the same project that have a state, sorted; `default` is that of no
        target."""

    def of_target(self, target: str) -> "StateStore":
        """The store of another target of the same project."""

    def presence(self, lineage: str) -> "Presence":
        """Whether this store keeps the state of that lineage. It raises nothing: `UNKNOWN` where
        the store cannot be asked, or cannot tell. gc deletes what a state needs some time after
        the answer is `MISSING`."""

    def last_read(self) -> tuple[int, datetime] | None:
        """The last entry in `log` that this machine has read, and its time by the clock of the
        store; None if this store is asked anew for each answer.

        Raises:
            SgpuError: it has read none (`no_copy`).
        """

    def read(self) -> State | None:
        """The state; `None` when nothing was ever applied."""

    def read_all(self) -> tuple[State, tuple[Attempt, ...]] | None:
        """The state and every attempt in its history, by address and number."""

    def history(self, address: Address) -> tuple[Attempt, ...]:
        """Every attempt of a run, oldest first."""

    def log(self, most: int) -> "Sequence[LogEntry] | None":
        """The newest changes, `most` of them at most, the last one first; None if this store does
        not keep what changed."""

    def read_past(self, number: int) -> tuple[State, tuple[Attempt, ...]] | None:
        """As `read_all`, as it was after the entry of that number in `log`; None if this store does
        not keep what changed.

        Raises:
            NotFound: there is no such entry.
        """

    def check(self) -> None:
        """Read all that is there, for `sgpu doctor`.

        Raises:
            StateError: it is damaged.
        """

    def lock(
        self, operation: str, *, lineage: str, patience: Patience = AT_ONCE
    ) -> AbstractContextManager[StateWriter]:
        """Hold the state for writing. A state that is not there is made with `lineage`; one that is
        there keeps its own. The lock of a process that is certainly dead is taken over.

        Raises:
            Locked: a process that may be alive held it for as long as `patience` lasts. The error
                names the holder.
        """

    def unlock(self, lock_id: str) -> None:
        """Break a lock by its id: its holder's next write fails.

        Raises:
            NotFound: that lock is not held.
        """

    def holder(self) -> LockHolder | None:
        """Who holds the lock; a dead process too, until the next `lock` finds that out."""

    def abandoned_lock(self) -> LockHolder | None:
        """The holder of the lock if that process is certainly dead."""

    def close(self) -> None:
        """Close the connections of this store. A later call opens them again."""
